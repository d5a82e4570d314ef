"""Functions for every subcommand that load models and data, and run models on data.

:func:`load` returns a :class:`System`, and :func:`read_text` a :class:`Text` that its task can read. :func:`generate`
is beam search. :func:`force` decodes known targets, and yields the models' outputs other than the logits, sentence by
sentence. :func:`run_batches` yields all outputs, batch by batch.

The sources of a batch are equally long, so they have no padding. A model's outputs are in the columns of the source,
even if the model does not track padding, such as the stock ``lstm``.
"""

import argparse
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.models.nat import FairseqNATModel
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from torch import Tensor
from tqdm import tqdm

from fairseq_attnvariants.criterions.costs import output_named
from fairseq_attnvariants.models.hub import symbols
from fairseq_attnvariants.models.warm_start import not_finite
from fairseq_attnvariants.nn.attention import adds_up
from fairseq_attnvariants.patches.loading.checkpoints import load_checkpoint
from fairseq_attnvariants.registry import ConfigurationError

from ..options import SEARCH, BatchOptions, TextOptions
from ..text.alignments import parse_lines
from ..text.files import UserError, note_input, read_parallel, reason, say


class System(NamedTuple):
    """A model, or several as an ensemble, with the task that is stored in the first one's checkpoint."""

    path: str
    task: Any
    models: list[Any]
    device: torch.device

    @property
    def model(self) -> Any:
        """The one model, for computations that an ensemble cannot do.

        Raises:
            UserError: there are several models.
        """
        if len(self.models) > 1:
            raise UserError(f"{self.path} is an ensemble: give one checkpoint")
        return self.models[0]


class Sentence(NamedTuple):
    """A sentence, or a pair, as the task reads it and as the files have it."""

    item: dict[str, Any]  # of the task's dataset: id (the number of the line, from 0), source and target, with EOS
    source_line: str  # empty for binarised data, which does not keep unknown words
    target_line: str  # also empty if the target is generated


class Text(NamedTuple):
    """Sentences, and how the task collates them."""

    name: str  # for messages
    sentences: list[Sentence]
    collate: Callable[[list[dict[str, Any]]], dict[str, Any]]

    def select(self, number: int) -> "Text":
        """Return the text of one sentence, by its number from 0.

        Raises:
            UserError: there is no such sentence.
        """
        if not 0 <= number < len(self.sentences):
            raise UserError(f"{self.name} has lines 1 to {len(self.sentences)}, and no line {number + 1}")
        return self._replace(sentences=[self.sentences[number]])

    def with_targets(self, targets: Sequence[Tensor | None]) -> "Text":
        """Return the sources with other targets, or with none."""
        pairs = zip(self.sentences, targets, strict=True)
        sentences = [Sentence({**one.item, "target": target}, one.source_line, "") for one, target in pairs]
        return self._replace(sentences=sentences)


class Pair(NamedTuple):
    """The tokens of a sentence pair; unknown words are as in the text."""

    number: int  # of the sentence, from 0
    source: list[str]  # S tokens, EOS last
    target: list[str]  # T tokens, EOS last


class Batch(NamedTuple):
    """The models' output for a batch."""

    sample: dict[str, Any]  # as the task collates it
    outputs: list[tuple[Tensor, Any]]  # of each model: logits B x T x V, and the rest
    pairs: list[Pair]  # of each row


class Forced(NamedTuple):
    """The models' output for one sentence pair; the tokens are those of :class:`Pair`."""

    number: int
    source: list[str]
    target: list[str]
    extra: dict[str, np.ndarray]  # T x ..., float32, mean of the models; "attn" is T x S


def load(path: str | Sequence[str], data: str, cpu: bool = False) -> System:
    """Load a checkpoint, or an ensemble (paths with colons between, or a list), with the task that is stored in it.

    fairseq's loading is used, which loads only tensors and plain data.

    Raises:
        UserError: a file is missing, is not a checkpoint, is of another kind of model, does not match the data, or is
            also an output.
    """
    # these files may have moved since the training, and nothing here needs them
    unneeded = dict.fromkeys(["encoder_embed_path", "decoder_embed_path", "warm_start"])
    overrides = {"data": data, "left_pad_target": False, **unneeded}  # the first step is that of the first word
    task = None
    models: list[Any] = []
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    paths = utils.split_paths(path) if isinstance(path, str) else path
    for name in paths:
        note_input(name)
        try:
            state = checkpoint_utils.load_checkpoint_to_cpu(name, overrides)
            _check(name, state)
            if hasattr(stored := state["cfg"]["task"], "eval_bleu"):  # tasks without it would warn of an override
                stored.eval_bleu = False  # with it the task would build a generator
            [model], _, task = checkpoint_utils.load_model_ensemble_and_task([name], overrides, task, state=state)
        except UserError:
            raise
        except Exception as error:  # fairseq raises bare Exceptions, too
            raise _refusal(name, f" with the data folder {data}", error) from error
        if isinstance(model, FairseqNATModel) or not (hasattr(model, "encoder") and hasattr(model, "decoder")):
            raise UserError(
                f"{name} is a {type(model).__name__}, and subcommands read only models with an encoder and an "
                "autoregressive decoder"
            )
        models.append(model.to(device).eval())
    return System(os.pathsep.join(paths), task, models, device)


def read_checkpoint(path: str) -> dict[str, Any]:
    """Return the content of a checkpoint without the optimizer's state.

    Raises:
        UserError: the file cannot be read, or is not a checkpoint.
    """
    try:
        state = load_checkpoint(path)
    except Exception as error:  # a damaged file can raise any error
        raise _refusal(path, "", error) from error
    _check(path, state)
    state.pop("last_optimizer_state", None)
    return state


def _refusal(path: str, circumstances: str, error: Exception) -> UserError:
    why = reason(error)
    if isinstance(error, OSError) and why.startswith(f"{path}: "):
        why, circumstances = why.removeprefix(f"{path}: "), ""  # the data folder is not the cause
    elif why.startswith((f"{path}: ", f"{path} ")):  # an error of this package
        return UserError(why)
    too_little = (AttributeError, LookupError, TypeError)
    if isinstance(error, too_little) and not isinstance(error, ConfigurationError):
        why = f"it is not a checkpoint of fairseq 0.12, or damaged ({why})"
    return UserError(f"{path} cannot be loaded{circumstances}: {why}")


def _check(path: str, state: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks what subcommands read, or whose parameters are not finite.

    :func:`load_checkpoint` has already checked that it is a checkpoint with tensors by name.

    Raises:
        UserError: the checkpoint is refused; the message has the reason.
    """
    try:
        fits = all(isinstance(state["cfg"][part], (Mapping, argparse.Namespace)) for part in ("model", "task"))
        fits &= isinstance(state["optimizer_history"][-1]["num_updates"], int) and "extra_state" in state
        diverged = not_finite(state["model"])
    except (LookupError, TypeError, RuntimeError):
        fits, diverged = False, None
    if not fits:
        raise UserError(f"{path} is not a checkpoint of fairseq 0.12")
    if diverged:
        raise UserError(f"{path}: {diverged} holds NaN or infinity: the training diverged, use an earlier one")


def read_files(options: TextOptions, reference: bool) -> list[tuple[str, ...]] | None:
    """Read the lines of ``--source`` and, if it is needed, ``--reference``; return None for ``--gen-subset``.

    Raises:
        UserError: files cannot be read, are empty or have unequal lengths, or the reference is missing.
    """
    if options.source is None:
        if options.reference:
            raise UserError("--reference needs --source")
        return None
    if not reference:
        return read_parallel(options.source)
    if options.reference is None:
        raise UserError("--source needs --reference")
    return read_parallel(options.source, options.reference)


def read_text(options: TextOptions, system: System, reference: bool = True) -> Text:
    """Read the text that the options name: ``--source`` and, if it is needed, ``--reference``, or ``--gen-subset``.

    Raises:
        UserError: :func:`read_files` or :func:`make_text` refuses the text.
    """
    return make_text(read_files(options, reference), options, system, reference)


def make_text(lines: list[tuple[str, ...]] | None, options: TextOptions, system: System, reference: bool) -> Text:
    """Return the ``lines`` of :func:`read_files`, or else ``--gen-subset``, as a text of the system's task.

    Raises:
        UserError: the split cannot be loaded, or the task needs ``--gen-subset``.
    """
    task = system.task
    if lines is None:
        return read_subset(options.gen_subset, task, reference)
    if isinstance(task, TranslationMultiSimpleEpochTask):
        raise UserError(
            f"{system.path} is of several pairs (--task translation_multi_simple_epoch), whose language token a "
            "subcommand does not add to --source: give --gen-subset"
        )
    names = [options.source, options.reference] if reference else [options.source]
    dictionaries = task.source_dictionary, task.target_dictionary
    for name, side, dictionary in zip(names, zip(*lines, strict=True), dictionaries):
        if not in_its_units(dictionary, side):
            say(f"{name} has unknown words and no subwords, which {system.path} reads: apply its codes to the text")
    sources = (source for source, *_ in lines)
    tokens = parse_lines(str(options.source), sources, lambda source: _encode(task.source_dictionary, source))
    dataset = task.build_dataset_for_inference(tokens, [len(sentence) for sentence in tokens])
    sentences = []
    for k, (source, *target) in enumerate(lines):
        item = dict(dataset[k])
        if reference:
            item["target"] = _encode(task.target_dictionary, target[0])
        sentences.append(Sentence(item, source, target[0] if reference else ""))
    return Text(str(options.source), sentences, dataset.collater)


def in_its_units(dictionary, lines: Sequence[str]) -> bool:
    """Return whether a text may be in the subwords of a dictionary: it has their mark, or no unknown word."""
    for marked in (re.compile(r"@@(?!\S)"), re.compile(r"(?<!\S)\u2581")):
        if any(map(marked.search, getattr(dictionary, "symbols", ()))) and not any(map(marked.search, lines)):
            return all(word in dictionary for line in lines for word in line.split())
    return True


def read_subset(name: str, task, reference: bool = True) -> Text:
    """Load a split of binarised data.

    Raises:
        UserError: the split cannot be loaded, is empty or damaged, or lacks the ``reference``.
    """
    try:
        task.load_dataset(name)
        dataset = task.dataset(name)
        sentences = [Sentence(dataset[k], "", "") for k in range(len(dataset))]
    except Exception as error:  # fairseq's readers raise any error for a damaged file
        raise UserError(f"split {name!r} cannot be loaded: {reason(error)}") from error
    if not sentences:
        raise UserError(f"split {name!r} is empty")
    if reference and any(sentence.item.get("target") is None for sentence in sentences):
        raise UserError(f"split {name!r} has no target side")
    for side, dictionary in (("source", task.source_dictionary), ("target", task.target_dictionary)):
        for number, (item, *_) in enumerate(sentences, start=1):
            tokens = item.get(side)
            if tokens is not None and dictionary.eos() not in tokens:
                raise UserError(
                    f"split {name!r}, line {number}: the {side} has no end of sentence, which even an empty line has: "
                    "the data is damaged, run fairseq-preprocess again"
                )
            if tokens is not None and not all(0 <= token < len(dictionary) for token in tokens.tolist()):
                raise UserError(
                    f"split {name!r}, line {number}: {side} symbols that the dictionary lacks: the data is "
                    "damaged, or of another dictionary"
                )
    return Text(f"split {name!r}", sentences, dataset.collater)


def _encode(dictionary, line: str) -> Tensor:
    return dictionary.encode_line(line, add_if_not_exist=False, append_eos=True).long()


def batches(lengths: Sequence[tuple[int, int]], limits: BatchOptions) -> Iterator[list[int]]:
    """Yield positions of ``lengths`` (source, target) in groups with one source length, within the ``limits``.

    A sentence that is longer than the limits is a group alone.
    """
    order = sorted(range(len(lengths)), key=lambda k: lengths[k])
    for _, group in itertools.groupby(order, key=lambda k: lengths[k][0]):
        batch: list[int] = []
        for k in group:  # sorted by target length
            size = len(batch) + 1
            if batch and (size > limits.batch_size or size * max(lengths[k]) > limits.max_tokens):
                yield batch
                batch = []
            batch.append(k)
        yield batch


def samples(system: System, text: Text, limits: BatchOptions, doing: str) -> Iterator[dict[str, Any]]:
    """Yield collated batches on the system's device, with a progress bar on standard error, labelled ``doing``.

    Raises:
        UserError: a sentence is longer than the model can read.
    """
    items = [sentence.item for sentence in text.sentences]
    lengths = [(len(item["source"]), 0 if item.get("target") is None else len(item["target"])) for item in items]
    longest = utils.resolve_max_positions(*(model.max_positions() for model in system.models))
    for item, pair in zip(items, lengths, strict=True):
        for side, length, most in zip(("source", "target"), pair, longest, strict=True):
            if length > most:
                raise UserError(
                    f"{text.name}, line {item['id'] + 1}: {length} {side} tokens, EOS included, "
                    f"but {system.path} reads at most {most}"
                )
    with tqdm(total=len(items), desc=doing, unit="sentence", disable=None) as bar:
        for positions in batches(lengths, limits):
            sample = text.collate([items[k] for k in positions])
            yield utils.apply_to_sample(lambda tensor: tensor.to(system.device), sample)
            bar.update(len(positions))


def decoded(
    options: Any, given: bool, line: int | None = None, check: Callable[[System], None] = lambda system: None
) -> Iterator[tuple[System, Text]]:
    """Yield each system that the options name, with their text, which is read once, because it may be a stream.

    Args:
        options: the options of the subcommand.
        given: whether the targets are those of the text, instead of the system's translations.
        line: the number of the one sentence to decode, from 1; None for all.
        check: a function that may refuse a system before it translates.

    Raises:
        UserError: :func:`load` or :func:`read_text` fails, or there is no such line.
    """
    lines = read_files(options, given)
    for path in [options.path] if isinstance(options.path, str) else options.path:
        system = load(path, options.data, options.cpu)
        check(system)
        text = make_text(lines, options, system, given)
        if line is not None:
            text = text.select(line - 1)
        yield system, text if given else generate(system, text, options)


def build_generator(system: System, options: Any, **instead: Any) -> Any:
    """Build the task's generator with the search options, or with other values ``instead``."""
    asked = {name: getattr(options, name) for name in SEARCH}
    return system.task.build_generator(system.models, argparse.Namespace(**{**asked, **instead}))


@torch.no_grad()
def search(system: System, text: Text, options: Any, **instead: Any) -> list[list[dict[str, Tensor]]]:
    """Return all hypotheses of each sentence, the best first, by beam search with :func:`build_generator`."""
    generator = build_generator(system, options, **instead)
    found: dict[int, list[dict[str, Tensor]]] = {}
    sources = text.with_targets([None] * len(text.sentences))
    for sample in samples(system, sources, options, "translating"):
        beams = system.task.inference_step(generator, system.models, sample)
        for number, beam in zip(sample["id"].tolist(), beams, strict=True):
            found[number] = utils.apply_to_sample(lambda tensor: tensor.cpu(), beam)
    return [found[sentence.item["id"]] for sentence in text.sentences]


def generate(system: System, text: Text, options: Any) -> Text:
    """Return the sources with their best hypotheses as targets."""
    return text.with_targets([beam[0]["tokens"] for beam in search(system, text, options)])


def check_probabilities(system: System, reader: str) -> None:
    """Refuse models whose attention weights are not probabilities, for a ``reader`` that needs probabilities.

    Raises:
        UserError: there is such a model; the message names the ``reader`` and the normalizer.
    """
    for model in system.models:
        if not adds_up(model):
            raise UserError(
                f"{system.path}: {reader} reads weights of attention that add up to 1, and those of "
                f"--attention-normalizer {model.cfg.attention_normalizer} do not"
            )


@torch.no_grad()
def run_batches(system: System, text: Text, limits: BatchOptions) -> Iterator[Batch]:
    """Yield batches from forced decoding of the targets, in the order of their sources' lengths."""
    sentences = {sentence.item["id"]: sentence for sentence in text.sentences}
    source, target = system.task.source_dictionary, system.task.target_dictionary
    for sample in samples(system, text, limits, "reading"):
        pairs = []
        for number, tokens in zip(sample["id"].tolist(), sample["net_input"]["src_tokens"]):
            item, source_line, target_line = sentences[number]
            pairs.append(
                Pair(number, symbols(source, tokens, source_line), symbols(target, item["target"], target_line))
            )
        yield Batch(sample, [model(**sample["net_input"])[:2] for model in system.models], pairs)


def force(
    system: System, text: Text, limits: BatchOptions, needed: Sequence[str] = ("attn",), welcome: Sequence[str] = ()
) -> Iterator[Forced]:
    """Yield outputs from forced decoding of the targets, sentence by sentence, in the order of :func:`run_batches`.

    ``needed`` and ``welcome`` are keys of the models' outputs other than the logits, tensors ``B x T x ...``. Only the
    ``welcome`` ones may be missing.

    Raises:
        UserError: a model does not return a needed output.
    """
    for _, outputs, pairs in run_batches(system, text, limits):
        means: dict[str, np.ndarray] = {}
        for name in (*needed, *welcome):
            values = [output_named(extra, name) for _, extra in outputs]
            if all(value is not None for value in values):
                stacked = torch.stack([value.float() for value in values if value is not None])
                means[name] = stacked.mean(0).cpu().numpy()
            elif name in needed:
                raise UserError(f"{system.path}: the model returns no {name!r} with the logits")
        for row, pair in enumerate(pairs):
            yield Forced(*pair, {name: value[row, : len(pair.target)] for name, value in means.items()})

"""A small model of an architecture, with a task and sentences made in memory."""

import copy
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.models.nat import FairseqNATModel
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_attnvariants.architectures.options import flag
from fairseq_attnvariants.criterions.costs import output_named
from fairseq_attnvariants.patches.messages.names import no_such
from fairseq_attnvariants.tasks import (
    CharacterDictionary,
    CharTranslationTask,
    StringDictionary,
    StringTransductionTask,
)

from ..systems.user_dirs import raised_at, user_dirs
from ..text.files import UserError, reason, refuse
from .outcome import NOT_FINITE, quiet
from .returns import Notes, watch

DIFFERING: dict[str, Any] = dict(
    encoder_embed_dim=6,
    encoder_hidden_size=8,
    encoder_char_hidden_size=4,
    encoder_filters="2-1-3-2",
    encoder_pooling=3,
    encoder_highway_layers=2,
    decoder_embed_dim=5,
    decoder_hidden_size=7,
    decoder_out_embed_dim=12,
    attention_dim=9,
    attention_via_dim=3,
    encoder_ffn_embed_dim=10,
    decoder_ffn_embed_dim=11,
    encoder_attention_heads=2,
    decoder_attention_heads=1,
)
EQUAL = {
    **dict.fromkeys(DIFFERING, 16),
    **dict(encoder_hidden_size=8, encoder_filters="8-8", encoder_pooling=3, encoder_highway_layers=2),
    **dict(encoder_attention_heads=4, decoder_attention_heads=4),
}
# sizes to try until a model can be built and run: widths that all differ, so that none can be confused with another;
# widths that divide each other; the architecture's sizes
SIZES = [DIFFERING, EQUAL, {}]
TASKS = "translation", "char_translation", "string_transduction"
WIDE = 8  # parameters are in ±1 for rows up to this length, and in a smaller range for longer rows

# the longest source first, as fairseq sorts them
SOURCES = ["a bee cab deed a", "hag if jag", "a"]
TARGETS = ["NO POP QUA", "ROT SUN TON US ON NO", "VOW OX"]
FEATURES = ["N", "PL", "PSS(2)"]  # of sources, with --task string_transduction
LONG_SOURCE = "a bee cab deed hag if jag".split()  # noqa: SIM905
LONG_TARGET = "NO POP QUA ROT SUN TON US VOW OX".split()  # noqa: SIM905


class Pairs(NamedTuple):
    """A batch of sentence pairs."""

    source: Tensor  # B x S, padded on the left by default
    lengths: Tensor  # of the sources, B
    previous: Tensor  # B x T, from EOS on, padded on the right
    sample: dict[str, Any]  # the batch as criterions read it


class Output(NamedTuple):
    """A model's output for a batch."""

    scores: Tensor  # log-probabilities, B x T x V
    attention: Tensor | None  # B x T x S, if the model returns any

    def before(self, step: int) -> "Output":
        """Return the output for the steps before ``step``."""
        return Output(self.scores[:, :step], None if self.attention is None else self.attention[:, :step])


class Subject:
    """A small model of an architecture and its test data.

    Args:
        architecture: the registered name that ``--arch`` gives.
        arguments: further options of ``fairseq-train``, which override the sizes chosen here.

    Raises:
        UserError: there is no such architecture, or no model of it can be built.
    """

    def __init__(self, architecture: str, arguments: Sequence[str] = ()):
        if architecture not in ARCH_MODEL_REGISTRY:
            folders = [os.path.basename(folder) for folder in user_dirs()]
            raise UserError(f"--arch {architecture}: {no_such(architecture, ARCH_MODEL_REGISTRY, folders)}")
        kind = ARCH_MODEL_REGISTRY[architecture]
        if not issubclass(kind, FairseqEncoderDecoderModel) or issubclass(kind, FairseqNATModel):
            raise UserError(f"--arch {architecture} is no autoregressive encoder-decoder, and check tests only those")
        self.architecture = architecture
        self.notes = Notes([], [], [])
        self._hinted = False
        refusals: list[Exception] = []
        known = _options_of(architecture)
        for sizes in SIZES:
            flags = [part for name, value in sizes.items() if name in known for part in (flag(name), str(value))]
            try:
                self._build([*flags, *arguments])
            except UserError:
                raise
            except Exception as error:  # architectures refuse sizes in many ways
                if str(error) in map(str, refusals):
                    break  # the error does not depend on sizes
                refusals.append(error)
                continue
            self.sizes = {flag(name): getattr(self.cfg.model, name) for name in sizes if name in known}
            self.refusal = refusals[0] if refusals else None  # the refusal of widths that all differ, if there was one
            return
        why = f"{reason(refusals[0])}{raised_at(refusals[0])}"
        raise UserError(f"--arch {architecture}: no model can be built: {why}") from refusals[0]

    def _build(self, arguments: Sequence[str]) -> None:
        with quiet():
            parser = options.get_training_parser()
            parser.error = refuse
            fixed = ["no data", "--arch", self.architecture, "--cpu", "--seed", "5", "--optimizer", "adam"]
            given = options.parse_args_and_arch(parser, [*fixed, "--lr", "0.01", *arguments])
            self.cfg = convert_namespace_to_omegaconf(given)
            self.task = _task(self.cfg)
            model = self.model()
            self.forward(model, self.pairs())
        self.parameters = sum(parameter.numel() for parameter in model.parameters())

    def untouched(self, seed: int = 1) -> Any:
        """Build a model with the architecture's initial parameters."""
        torch.manual_seed(seed)
        with quiet():
            return self.task.build_model(copy.deepcopy(self.cfg.model))

    def model(self, seed: int = 1) -> Any:
        """Build a model for evaluation. Its parameters are large, because small initial values could hide errors.

        The parameters of padding are large, too: embeddings that are tied to the vocabulary layer learn them.  Custom
        components are watched, see :func:`watch`.
        """
        model = self.untouched(seed).eval()
        watch(model, self.notes)
        with torch.no_grad():
            for parameter in model.parameters():
                row = parameter[0].numel() if parameter.dim() > 1 else 1
                spread = min(1, (WIDE / row) ** 0.5)
                parameter.uniform_(-spread, spread)
        return model

    @cached_property
    def shared(self) -> Any:
        """The model of the first seed, for demands that do not change it."""
        return self.model()

    def hint(self, message: str) -> str:
        """Return a hint about attributes that a component changes, for the first demand that fails; else no text.

        A message that numbers ``are not finite`` gets a hint at the component that returned the first of them.
        """
        if self.notes.not_finite and NOT_FINITE in message:
            return f"; {self.notes.not_finite[0]}"
        if self._hinted or not self.notes.on_self:
            return ""
        self._hinted = True
        return (
            f"; {self.notes.on_self[0]}, which a beam does not reorder, and which no sentence starts anew: carry it as "
            "a state, which histories, windows, cells and readouts have"
        )

    def source(self, line: str) -> Tensor:
        """Return a source as the task reads it, with features if the task has them."""
        if getattr(self.task.source_dictionary, "first_feature", None) is not None:
            line += "\t" + ";".join(FEATURES[: 1 + ord(line[:1] or "a") % 3])
        tokens = self.task.source_dictionary.encode_line(line, add_if_not_exist=False).long()
        return self.task.build_dataset_for_inference([tokens], [len(tokens)])[0]["source"]

    def target(self, line: str) -> Tensor:
        """Return a target as the task reads it."""
        return self.task.target_dictionary.encode_line(line, add_if_not_exist=False).long()

    def pairs(
        self,
        sources: Sequence[str] = SOURCES,
        targets: Sequence[str] = TARGETS,
        left: bool = True,
        wider: int = 0,
        wider_target: int = 0,
    ) -> Pairs:
        """Return a batch in the order given, with padding of sources ``left`` or right, ``wider`` than necessary."""
        items: list[dict[str, Any]] = [
            {"id": k, "source": self.source(source), "target": self.target(target)}
            for k, (source, target) in enumerate(zip(sources, targets, strict=True))
        ]
        pad, eos = self.task.source_dictionary.pad(), self.task.source_dictionary.eos()
        longest = wider + max(len(item["source"]) for item in items)
        last = wider_target + max(len(item["target"]) for item in items)
        sample = collate(items, pad, eos, left_pad_source=left, pad_to_length={"source": longest, "target": last})
        order = sample["id"].argsort()
        for part in (sample, sample["net_input"]):
            part.update({name: value[order] for name, value in part.items() if torch.is_tensor(value)})
        inputs = sample["net_input"]
        return Pairs(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"], sample)

    def forward(self, model: Any, pairs: Pairs) -> Output:
        """Return the model's output for a batch, at once."""
        made = model(pairs.source, pairs.lengths, pairs.previous)
        return Output(model.get_normalized_probs(made, log_probs=True), attention(made))

    @torch.no_grad()
    def evaluated(self, pairs: Pairs) -> Output:
        """Return the shared model's output for a batch, without gradients."""
        return self.forward(self.shared, pairs)

    def real(self, tokens: Tensor) -> Tensor:
        """Return a mask of the tokens that are not padding."""
        return tokens.ne(self.task.source_dictionary.pad())


def attention(made: tuple[Any, ...]) -> Tensor | None:
    """Return the attention, ``B x T x S``, in the output of a model or a decoder, if there is any."""
    return output_named(made[1], "attn")


def _options_of(architecture: str) -> list[str]:
    parser = options.get_parser("", default_task="translation")
    ARCH_MODEL_REGISTRY[architecture].add_args(parser)
    return [action.dest for action in parser._actions]


def _task(cfg: Any) -> Any:
    """Return the task with dictionaries of :data:`LONG_SOURCE` and :data:`LONG_TARGET`, or a joint one.

    Raises:
        UserError: the task does not translate.
    """
    kind = TASK_REGISTRY[cfg.task._name]
    if not issubclass(kind, TranslationTask):
        raise UserError(f"--task {cfg.task._name}: check makes data only for {', '.join(TASKS)}")
    joined = getattr(cfg.model, "share_all_embeddings", False)
    characters: Any = Dictionary
    if issubclass(kind, (CharTranslationTask, StringTransductionTask)):
        characters = CharacterDictionary if issubclass(kind, CharTranslationTask) else StringDictionary
    sides = []
    for words, of_words in ((LONG_SOURCE, getattr(cfg.task, "source_subwords", False)), (LONG_TARGET, False)):
        dictionary = Dictionary() if of_words else characters()
        for word in (*LONG_SOURCE, *LONG_TARGET) if joined else words:
            for symbol in word if isinstance(dictionary, CharacterDictionary) else [word]:
                dictionary.add_symbol(symbol)
        sides.append(dictionary)
    if characters is StringDictionary and not joined:
        features = Dictionary()
        for name in FEATURES:
            features.add_symbol(name)
        sides[0].add_features(features)
    return kind(cfg.task, sides[0], sides[0] if joined else sides[1])

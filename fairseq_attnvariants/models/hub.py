"""Translation from Python, with attention."""

import copy
import dataclasses
import glob
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from fairseq.token_generation_constraints import pack_constraints
from fairseq.tokenizer import tokenize_line
from omegaconf import open_dict
from torch import Tensor

from ..registry import nearest
from ..tasks.character_dictionary import CharacterDictionary
from ..tasks.string_dictionary import first_feature

logger = logging.getLogger(__name__)

PLAIN = "model.safetensors"  # in a folder that patches/loading/plain.py reads

HOLE = "\uffff"  # a noncharacter that marks <unk> in a text
GENERATE = "use fairseq-generate, which alone reads it"
LOADING = "give it to from_pretrained"
UNREAD = "beam search does not read it, leave it out"
INSTEAD = {
    "nbest": "give it to translate; generate returns all hypotheses of the beam",
    "replace_unk": "give it to translate, True or a dictionary of words",
    "constraints": "give translate the words",
    "prefix_size": "give translate the text, as prefix",
    "score_reference": "use score(sources, targets)",
    "lm_path": GENERATE,
    "lm_weight": GENERATE,
    "retain_dropout": LOADING,
    "retain_dropout_modules": LOADING,
    **dict.fromkeys(("no_early_stop", "no_beamable_mm", "sacrebleu", "print_step", "no_seed_provided"), UNREAD),
    **dict.fromkeys(("decoding_format", "eos_token", "retain_iter_history", "iter_decode_eos_penalty"), UNREAD),
    **dict.fromkeys(("iter_decode_max_iter", "iter_decode_force_max_iter", "iter_decode_with_beam"), UNREAD),
    "iter_decode_with_external_reranker": UNREAD,
}
"""Options that fairseq's interface ignores or fails with, and what to do instead."""
NO_OPTIONS = {"sentences", "tokenized_sentences", "options"}


class Translation(NamedTuple):
    """A translation, with its attention weights."""

    text: str
    source: list[str]  # S tokens, EOS last
    target: list[str]  # T tokens, EOS last
    attention: Tensor  # T x S; rows add up to 1, if the normalizer's do


class Score(NamedTuple):
    """The log-probability (natural logarithm) of a given translation."""

    total: float  # the sum over the tokens
    tokens: list[str]  # T tokens, EOS last
    log_probabilities: Tensor  # T


class Hub(GeneratorHubInterface):
    """The object that ``from_pretrained`` returns: fairseq's interface for translation."""

    def translate(
        self,
        sentences: str | Sequence[str],
        beam: int = 5,
        verbose: bool = False,
        attention: bool = False,
        *,
        nbest: int | None = None,
        prefix: None | str | Sequence[str] = None,
        constraints: Sequence[Any] | None = None,
        ordered: bool = True,
        replace_unk: bool | Mapping[str, str] = False,
        **options: Any,
    ) -> Any:
        """Translate a sentence, or each of several.

        Args:
            sentences: a string, or a list of strings.
            beam: width of the search.
            verbose: log the sentences and their hypotheses.
            attention: return a :class:`Translation` instead of a string.
            nbest: return a list of this many translations of each sentence, the best first.
            prefix: text that the translations begin with, or a list with one for each sentence.
            constraints: words and phrases that the translation contains; for several sentences a list of such lists.
            ordered: whether the constraints come in the given order.
            replace_unk: replace each ``<unk>`` by the source word with the highest attention weight; a dictionary holds
                translations of source words.
            options: of fairseq's generator, such as ``lenpen``.

        Raises:
            TypeError: there is no such option.
            ValueError: an option has no effect here or cannot have its value; a list does not have one entry per
                sentence; a prefix or constraint has a word that the target dictionary lacks, or more tokens than a
                translation may have; or an option needs attention and the model returns none.
        """
        known = self._known(self.translate, self.generate)
        check_options(options, known, {**INSTEAD, "print_alignment": "give attention=True"})
        more: dict[str, Any] = dict(nbest=nbest, ordered=ordered, replace_unk=replace_unk, **options)
        if isinstance(sentences, str):
            constraints = None if constraints is None else [constraints]
            return only(
                self.translate([sentences], beam, verbose, attention, prefix=prefix, constraints=constraints, **more)
            )
        if nbest is not None and not 1 <= nbest <= beam:
            raise ValueError(f"nbest={nbest}: give a number from 1 to the beam width, which is beam={beam}")
        if not isinstance(replace_unk, (bool, Mapping)):
            raise ValueError(f"replace_unk={replace_unk!r}: give True, or a dictionary of words")
        prefixes = [prefix] * len(sentences) if isinstance(prefix, str) else prefix
        for name, given in (("prefix", prefixes), ("constraints", constraints)):
            if given is not None and len(given) != len(sentences):
                raise ValueError(f"{name} has {len(given)} entries for {len(sentences)} sentences")
        forced: dict[str, Any] = dict(options.pop("inference_step_args", None) or {})
        if sentences and constraints is not None:
            forced["constraints"] = pack_constraints([self._phrases(phrases) for phrases in constraints])
            options["constraints"] = "ordered" if ordered else "unordered"
        empty = [torch.empty(0)] * len(sentences)
        starts = empty if prefixes is None else [self._forced(text, "prefix") for text in prefixes]
        found = self._search_after(starts, sentences, beam, verbose, forced, **options)
        translations = []
        for number, hypotheses in sorted(found.items()):
            best = [self._answer(sentences[number], one, attention, replace_unk) for one in hypotheses[: nbest or 1]]
            translations.append(best[0] if nbest is None else best)
        return translations

    def score(self, sources: str | Sequence[str], targets: str | Sequence[str]) -> Any:
        """Return the :class:`Score` of the given translation of a sentence, or a list of scores for several sentences.

        Args:
            sources: a string, or a list of strings.
            targets: their translations, likewise.

        Raises:
            ValueError: the number of translations is not that of the sentences.
        """
        if isinstance(sources, str) and isinstance(targets, str):
            return self.score([sources], [targets])[0]
        if isinstance(sources, str) or isinstance(targets, str) or len(sources) != len(targets):
            raise ValueError("score takes a translation for each sentence: two strings, or two lists of equal length")
        read = [self.encode(source) for source in sources]
        given = [self._encode_target(target, append_eos=True) for target in targets]
        dataset = self.task.build_dataset_for_inference(read, [len(tokens) for tokens in read])
        scorer = self.task.build_generator(self.models, self._settings(score_reference=True))
        found: dict[int, Score] = {}
        for batch in self._build_batches(read, False):
            pairs = [{**dataset[k], "target": given[k]} for k in batch["id"].tolist()]
            sample = utils.apply_to_sample(lambda tensor: tensor.to(self.device), dataset.collater(pairs))
            scores = self.task.inference_step(scorer, self.models, sample)
            for number, [one] in zip(sample["id"].tolist(), scores, strict=True):
                values, tokens = one["positional_scores"].cpu(), [self.tgt_dict[token] for token in given[number]]
                found[number] = Score(values.sum().item(), tokens, values)
        return [found[number] for number in range(len(sources))]

    def generate(
        self,
        tokenized_sentences: Any,
        beam: int = 5,
        verbose: bool = False,
        skip_invalid_size_inputs: bool = False,
        inference_step_args: Mapping[str, Any] | None = None,
        prefix_allowed_tokens_fn: Any = None,
        **options: Any,
    ) -> Any:
        """Return the hypotheses for sentences from :meth:`encode`; see ``fairseq.hub_utils.GeneratorHubInterface``.

        Tensors in ``inference_step_args`` have a row for each sentence.

        Raises:
            TypeError: there is no such option; stock fairseq would ignore it.
            ValueError: an option has no effect here, and the message says what to use; or the beam is below 1.
        """
        forced = dict(inference_step_args or {})
        known = self._known(self.generate)
        check_options(options, known, {option: why for option, why in INSTEAD.items() if option not in forced})
        one = torch.is_tensor(tokenized_sentences) and tokenized_sentences.dim() == 1
        sentences = [tokenized_sentences] if one else tokenized_sentences
        more = skip_invalid_size_inputs, prefix_allowed_tokens_fn
        found = [*self._search(sentences, beam, verbose, forced, *more, **options).values()]
        return only(found) if one else found

    def _search_after(
        self, prefixes: list[Tensor], sentences: Sequence[str], beam: int, verbose: bool, forced: Any, **options: Any
    ) -> dict[int, list[dict[str, Tensor]]]:
        """Search as :meth:`_search` does, for hypotheses that begin with the prefixes, which may be empty.

        While the longest prefix of a batch continues, fairseq allows empty translations of the other sentences.  So
        sentences are searched separately for each length of prefixes.
        """
        found: dict[int, list[dict[str, Tensor]]] = {}
        for length in {len(tokens) for tokens in prefixes}:
            numbers = [number for number, tokens in enumerate(prefixes) if len(tokens) == length]
            rows = {name: given[numbers] if torch.is_tensor(given) else given for name, given in forced.items()}
            if length:
                rows["prefix_tokens"] = torch.stack([prefixes[number] for number in numbers])
            read = [self.encode(sentences[number]) for number in numbers]
            beams = self._search(read, beam, verbose, rows, **options)
            found.update((numbers[position], hypotheses) for position, hypotheses in beams.items())
        return found

    def _search(
        self,
        sentences: Sequence[Tensor],
        beam: int,
        verbose: bool,
        forced: Mapping[str, Any],
        skip_invalid_size_inputs: bool = False,
        prefix_allowed_tokens_fn: Any = None,
        **options: Any,
    ) -> dict[int, list[dict[str, Tensor]]]:
        """The hypotheses of each sentence, by its number; a tensor of ``forced`` has a row for each sentence."""
        settings = self._settings(beam=beam, **options)
        generator = self.task.build_generator(self.models, settings, prefix_allowed_tokens_fn=prefix_allowed_tokens_fn)
        found: dict[int, list[dict[str, Tensor]]] = {}
        for batch in self._build_batches(sentences, skip_invalid_size_inputs) if len(sentences) else ():
            rows = {name: given for name, given in forced.items() if given is not None}
            rows = {name: given[batch["id"]] if torch.is_tensor(given) else given for name, given in rows.items()}
            batch, rows = utils.apply_to_sample(lambda tensor: tensor.to(self.device), [batch, rows])
            self._check_length(getattr(generator, "generator", generator), batch["net_input"]["src_tokens"], rows)
            beams = self.task.inference_step(generator, self.models, batch, **rows)
            found.update(zip(batch["id"].tolist(), beams, strict=True))
        found = dict(sorted(found.items()))
        for number, hypotheses in found.items() if verbose else ():
            logger.info(f"S\t{self.src_dict.string(sentences[number])}")
            for one in hypotheses:
                logger.info(f"H\t{one['score']}\t{self.decode(one['tokens'])}")
                logger.info("P\t" + " ".join(f"{score:.4f}" for score in one["positional_scores"].tolist()))
        return found

    def _check_length(self, generator: Any, sources: Tensor, rows: Mapping[str, Any]) -> None:
        """Refuse a prefix or constraints that are longer than a translation can be."""
        most = min(int(generator.max_len_a * sources.size(1) + generator.max_len_b), generator.max_len - 1)
        none = sources[:, :0]
        prefixes, constraints = rows.get("prefix_tokens", none), rows.get("constraints", none)
        lengths = {
            "prefix": int(prefixes.ne(self.tgt_dict.pad()).sum(1).max()),
            "constraints": int(constraints[:, 1:].ne(0).sum(1).max()),  # their number comes first
        }
        for option, length in lengths.items():
            if length > most:
                raise ValueError(
                    f"{option}: {length} tokens, where max_len_a, max_len_b and --max-target-positions allow {most}"
                )

    def _settings(self, **options: Any) -> Any:
        """The checkpoint's options of generation, updated by the given ones."""
        settings = copy.deepcopy(self.cfg.generation)
        with open_dict(settings):
            settings.update(options)
        return settings

    def _known(self, *methods: Callable[..., Any]) -> list[str]:
        """The names of all options of these methods."""
        own = {name for method in methods for name in inspect.signature(method).parameters}
        return [field.name for field in dataclasses.fields(GenerationConfig)] + sorted(own - NO_OPTIONS)

    @property
    def copies(self) -> bool:
        """Whether any of the models copies source words."""
        return any(getattr(getattr(model, "cfg", None), "copying", False) for model in self.models)

    def remove_bpe(self, sentence: str) -> str:
        """A translation without the marks of subwords; unchanged with ``--source-subwords``: targets have none."""
        return sentence if self._source_subwords() else super().remove_bpe(sentence)

    def _source_subwords(self) -> bool:
        return isinstance(self.tgt_dict, CharacterDictionary) and not isinstance(self.src_dict, CharacterDictionary)

    def _encode_target(self, text: str, append_eos: bool = False) -> Tensor:
        line = self.tokenize(text)
        if not self._source_subwords():
            line = self.apply_bpe(line)
        return self.tgt_dict.encode_line(line, add_if_not_exist=False, append_eos=append_eos).long()

    def _forced(self, text: str, option: str) -> Tensor:
        """The tokens of a text that translations have to contain."""
        tokens = self._encode_target(text)
        if (tokens <= self.tgt_dict.unk()).any():
            raise ValueError(
                f"{option}: {text!r} has a word that the target dictionary lacks, or a symbol such as </s>"
            )
        return tokens

    def _phrases(self, phrases: Sequence[str]) -> list[Tensor]:
        """The tokens of the constraints of one sentence."""
        given: list[Any] = [None] if isinstance(phrases, str) else [*phrases]  # an iterator can be read only once
        if not all(isinstance(phrase, str) and phrase.strip() for phrase in given):
            raise ValueError(f"constraints are a list of words and phrases for each sentence, and not {phrases!r}")
        return [self._forced(phrase, "constraints") for phrase in given]

    def _answer(self, sentence: str, hypothesis: Mapping[str, Tensor], attention: bool, replace_unk: Any) -> Any:
        if not attention and replace_unk is False:
            return self.decode(hypothesis["tokens"])
        translation = self._translation(sentence, hypothesis, replace_unk)
        return translation if attention else translation.text

    def _translation(
        self, sentence: str, hypothesis: Mapping[str, Tensor], replace_unk: bool | Mapping[str, str]
    ) -> Translation:
        tokens = self.encode(sentence)
        read = self.task.build_dataset_for_inference([tokens], [len(tokens)])[0]["source"]  # as the model gets it
        if not hypothesis["attention"].numel():  # as with fairseq's lstm
            raise ValueError("the model returns no attention: leave attention and replace_unk out")
        weights = hypothesis["attention"][-len(read) :].T.cpu()  # the padding is on the left
        target = hypothesis["tokens"].cpu()
        text, source = self.decode(target), symbols(self.src_dict, read)
        if replace_unk is not False:
            words = symbols(self.src_dict, read, self.apply_bpe(self.tokenize(sentence)))
            table = replace_unk if isinstance(replace_unk, Mapping) else {}
            letters = weights * (read < first_feature(self.src_dict))  # no tag is a word
            places = self._places(target, letters[:, :-1], source[:-1])
            chosen = (self.tgt_dict.unk_string() if k is None else table.get(words[k], words[k]) for k in places)
            filled = re.sub(HOLE, lambda _: next(chosen), self.tgt_dict.string(target, unk_string=HOLE))
            text = self.detokenize(self.remove_bpe(filled))
        return Translation(text, source, symbols(self.tgt_dict, target), weights)

    def _places(self, target: Tensor, weights: Tensor, source: Sequence[str]) -> Iterator[int | None]:
        """The place of the most attended source word of each ``<unk>``; None if no word is attended to.

        For a model that copies, only source words that the target dictionary lacks count, if any is attended to.
        """
        lacking = torch.tensor([self.tgt_dict.index(word) == self.tgt_dict.unk() for word in source])
        for row in weights[target == self.tgt_dict.unk()]:
            copied = row * lacking if self.copies else row
            row = copied if copied.any() else row
            yield int(row.argmax()) if row.any() else None


def symbols(dictionary: Dictionary, tokens: Tensor, line: str = "") -> list[str]:
    """Tokens as text; if ``line`` is given, its unknown words or characters replace UNK, in their order."""
    split = dictionary.split if isinstance(dictionary, CharacterDictionary) else tokenize_line
    index = getattr(dictionary, "letter", dictionary.index)
    unknown = iter([word for word in split(line) if index(word) == dictionary.unk()])
    return [
        next(unknown, dictionary[token]) if token == dictionary.unk() else dictionary[token]
        for token in tokens.tolist()
    ]


def only(found: Sequence[Any]) -> Any:
    """Return the only item of the results for a single sentence.

    Raises:
        ValueError: ``skip_invalid_size_inputs`` left it out.
    """
    if not found:
        raise ValueError("skip_invalid_size_inputs left the only sentence out: it is too long for the model")
    return found[0]


def check_options(options: Mapping[str, Any], known: Sequence[str], instead: Mapping[str, str]) -> None:
    """Refuse options that fairseq's interface would ignore.

    Raises:
        TypeError: there is no such option.
        ValueError: an option has no effect; the message says what to do instead.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(GenerationConfig)}
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"translation has no option {option!r}{nearest(option, known)}")
        if option in instead and value != defaults[option]:
            raise ValueError(f"{option} has no effect here: {instead[option]}")


class Pretrained:
    """Mixin for models: fairseq's ``from_pretrained``, which returns a :class:`Hub`."""

    @classmethod
    def from_pretrained(cls, model_name_or_path, checkpoint_file="model.pt", data_name_or_path=".", **options) -> Hub:
        """Load a model with its task; see ``fairseq.models.BaseFairseqModel.from_pretrained``.

        Args:
            model_name_or_path: the folder of the checkpoint, or one of plain files (:mod:`..patches.loading.plain`).
            checkpoint_file: the checkpoint's name in this folder, or the names of an ensemble, joined by colons; by
                default ``model.pt``, or ``model.safetensors`` if there is no ``model.pt``.
            data_name_or_path: the folder with the dictionaries; if it begins with a dot, relative to the model's.
            options: options that override the checkpoint's.

        Raises:
            ValueError: a file or folder is missing, an option has no effect in translation from Python, parameters and
                configuration do not fit together, or the model translates several pairs of languages.
        """
        instead = {**INSTEAD, "beam": "give it to translate or generate"}
        asked = {name: value for name, value in options.items() if instead.get(name, LOADING) != LOADING}
        check_options(asked, [*instead], instead)
        folder, data = os.fspath(model_name_or_path), os.fspath(data_name_or_path)
        if checkpoint_file == "model.pt" and not os.path.exists(os.path.join(folder, checkpoint_file)):
            checkpoint_file = PLAIN if os.path.exists(os.path.join(folder, PLAIN)) else checkpoint_file
        check_paths(folder, checkpoint_file, data)
        try:
            loaded = super().from_pretrained(folder, checkpoint_file, data, **options)  # type: ignore[misc]
        except RuntimeError as error:
            first, *details = str(error).split("\n")
            if not first.startswith("Error(s) in loading state_dict"):
                raise
            raise ValueError(
                f"{checkpoint_file} in {folder} does not fit the model that its configuration describes: "
                f"{' '.join(details[0].split())[:300]}"
            ) from None
        except FileNotFoundError as error:
            raise ValueError(f"there is no {error.filename or error}: correct the path") from error
        if isinstance(loaded.task, TranslationMultiSimpleEpochTask):
            raise ValueError(
                f"{checkpoint_file} in {folder} is of several pairs (--task translation_multi_simple_epoch), which "
                "fairseq's translation from Python does not support: use fairseq-generate or fairseq-interactive"
            )
        return Hub(loaded.cfg, loaded.task, loaded.models)


def check_paths(folder: str, checkpoint: str, data: str) -> None:
    """Refuse paths that :meth:`Pretrained.from_pretrained` cannot load; only folders are searched for files.

    Raises:
        ValueError: a path cannot be loaded; the message says what to give.
    """
    if folder.endswith(".pt"):
        parent, name = os.path.split(folder)
        raise ValueError(f"{folder} is a file: give its folder and its name, {parent or '.'!r}, {name!r}")
    if not os.path.isdir(folder):
        return
    for name in checkpoint.split(os.pathsep):
        if not os.path.isfile(os.path.join(folder, name)):
            raise ValueError(f"there is no {name} in {folder}: give its name there as checkpoint_file")
    dictionaries = os.path.join(folder if data.startswith(".") else "", data.split(os.pathsep)[0])
    if not glob.glob(os.path.join(glob.escape(dictionaries), "dict.*.txt")):
        where = " (what begins with a dot is taken from the model's folder)" if data.startswith(".") else ""
        raise ValueError(
            f"there are no dictionaries, dict.*.txt, in {os.path.normpath(dictionaries)}{where}: give the folder of "
            "fairseq-preprocess as data_name_or_path"
        )

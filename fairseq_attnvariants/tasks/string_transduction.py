"""Transduction of strings from tables: pronunciation, inflection, transliteration, spelling."""

import logging
import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Optional

import torch
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.translation import TranslationTask
from omegaconf import II

from ..architectures.options import option
from ..registry import ConfigurationError, in_folder
from . import exact_match, tsv
from .limits import with_limits
from .scores import log_scores
from .string_dictionary import StringDictionary, write
from .tsv import Columns, Table

logger = logging.getLogger(__name__)

MAX_LEN_A, MAX_LEN_B = 3, 30  # a result has at most A symbols for each source symbol, and B more


@dataclass
class StringTransductionConfig(FairseqDataclass):
    """The columns of the tables, and their symbols."""

    data: Optional[str] = option("folder with train.tsv, valid.tsv (or dev.tsv) and test.tsv")
    source_column: Optional[int] = option("column of the sources, counted from 1 (default: 1)")
    target_column: Optional[int] = option("column of the targets (default: 2)")
    features_column: Optional[int] = option(
        "column of each source's features, tags such as V;PST;NOM(3,SG) (default: no features)"
    )
    source_separator: Optional[str] = option(
        "separator of the symbols of a source: a character, or 'space'; 'none' if each grapheme cluster is a symbol; "
        "'decomposed' if each letter, mark or jamo of the clusters is one (default: none)"
    )
    target_separator: Optional[str] = option("separator of the symbols of a target, likewise")
    max_source_positions: int = option("longest accepted source, in symbols and features, plus 1 (EOS)", 1024)
    max_target_positions: int = option("longest accepted or generated target, in symbols, plus 1 (EOS)", 1024)
    train_subset: str = II("dataset.train_subset")
    required_seq_len_multiple: int = II("dataset.required_seq_len_multiple")


@register_task("string_transduction", dataclass=StringTransductionConfig)
class StringTransductionTask(TranslationTask):
    """Transduction of strings from tables; validation decodes greedily, and counts exactly right strings.

    The data folder has ``train.tsv``, ``valid.tsv`` or ``dev.tsv``, and any ``NAME.tsv`` for ``--gen-subset NAME``.
    The task makes missing dictionaries from ``train.tsv``: ``dict.source.txt``, ``dict.target.txt`` and, with features,
    ``dict.features.txt``; the first two record the separators.  The checkpoint records the columns, so that
    fairseq-generate needs no options.  In fairseq-interactive a line is a source, and with features a tab and the
    features.

    Raises:
        ConfigurationError: a table cannot be read, or options do not fit the folder's dictionaries.
    """

    def __init__(self, cfg: StringTransductionConfig, src_dict: StringDictionary, tgt_dict: StringDictionary):
        super().__init__(cfg, src_dict, tgt_dict)
        self.state.merge_state_dict(Columns(**self._given_columns(cfg))._asdict())
        self.generator: Any = None

    @staticmethod
    def _given_columns(cfg: StringTransductionConfig) -> dict[str, int]:
        given = Columns.given(cfg)
        for name, column in given.items():
            if column < 1:
                raise ConfigurationError(f"--{name}-column {column}: columns are counted from 1")
        return given

    @property
    def columns(self) -> Columns:
        """The columns to read: from the options, or else from the loaded checkpoint or the defaults."""
        return Columns(**{name: getattr(self.state, name) for name in Columns._fields})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the columns of a checkpoint that no option gives."""
        known = {name: column for name, column in state_dict.items() if name in Columns._fields}
        super().load_state_dict({**known, **self._given_columns(self.cfg)})

    @classmethod
    def setup_task(cls, cfg: StringTransductionConfig, **kwargs: Any) -> "StringTransductionTask":
        """Read the dictionaries of the data folder, or make them from its training table."""
        folder = _folder(cfg)
        if not os.path.isdir(folder):
            raise ConfigurationError(
                f"there is no data folder {folder}{in_folder(folder)}: give the one with train.tsv"
            )
        columns = Columns(**cls._given_columns(cfg))

        @cache  # read once, and only if a dictionary is missing
        def train() -> Table:
            columns.check()
            path = tsv.find_split(folder, cfg.train_subset)
            cells = tsv.read_cells(path)
            if len(cells[0]) > 2 and not cls._given_columns(cfg):
                raise ConfigurationError(
                    f"{path} has {len(cells[0])} columns: give --source-column, --target-column and, if there are "
                    "features, --features-column"
                )
            return tsv.read_table(path, columns, cells=cells)

        found: dict[str, Any] = {side: cls._dictionary(cfg, folder, side, train) for side in ("source", "target")}
        if columns.features or os.path.isfile(_path(folder, "features")):
            found["features"] = cls._features(folder, train, found["source"])
        if not os.path.isfile(_path(folder, "source")):
            separators = [found[side].separator for side in ("source", "target")]
            logger.info(tsv.described(columns, separators))
            for told in tsv.never_separated(train(), separators):
                logger.warning(told)
        for name, dictionary in found.items():
            if not os.path.isfile(_path(folder, name)):
                write(dictionary, _path(folder, name))
        if "features" in found:
            found["source"].add_features(found["features"])
        return cls(cfg, found["source"], found["target"])

    @classmethod
    def _dictionary(
        cls, cfg: StringTransductionConfig, folder: str, side: str, train: Callable[[], Table]
    ) -> StringDictionary:
        path, flag = _path(folder, side), f"--{side}-separator"
        given = getattr(cfg, f"{side}_separator")
        separator = tsv.read_separator(given or "", flag)
        if os.path.isfile(path):
            dictionary = cls.load_dictionary(path)
            if given is not None and separator != dictionary.separator:
                raise ConfigurationError(
                    f"{flag} {given!r}: the symbols of {path} are {tsv.described_symbols(dictionary.separator)}: "
                    "leave the option out, or remove dict.*.txt there to make them again"
                )
            return dictionary
        texts = [tsv.symbols(getattr(row, side), separator) for row in train().rows]
        tsv.check_symbols(train(), side, texts)
        return StringDictionary.of(texts, separator)

    @classmethod
    def _features(cls, folder: str, train: Callable[[], Table], source: StringDictionary) -> Dictionary:
        path = _path(folder, "features")
        if os.path.isfile(path):
            return cls._loaded(Dictionary, path)
        tsv.check_features(train(), source.indices)
        features = Dictionary()
        for row in train().rows:
            for tag in row.features:
                features.add_symbol(tag)
        features.finalize(padding_factor=1)
        return features

    @classmethod
    def load_dictionary(cls, filename: str) -> StringDictionary:
        """Read ``dict.source.txt`` or ``dict.target.txt``.

        Raises:
            ConfigurationError: it was not written by this task, or is damaged.
        """
        return cls._loaded(StringDictionary, filename)

    @staticmethod
    def _loaded(kind: Any, filename: str) -> Any:
        try:
            return kind.load(filename)
        except (ValueError, RuntimeError) as error:
            why = str(error).replace("\n", "")
            raise ConfigurationError(why if why.startswith(filename) else f"{filename}: {why}") from None

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Read the table of a split.

        Raises:
            ConfigurationError: the table cannot be read or does not fit the dictionaries, or tables are to be combined.
        """
        folder, training = _folder(self.cfg), split == self.cfg.train_subset
        if combine and not training:  # fairseq combines those of training by default
            raise ConfigurationError(
                "--combine-valid-subsets: tables are not combined: leave it out, and join the files, or name them in "
                f"--valid-subset, such as {split},{split}1"
            )
        needed = training or split == "valid"
        table = tsv.read_table(tsv.find_split(folder, split), self._read_columns(), with_targets=needed)
        sources = [self.src_dict.encode(self.src_dict.split(row.source), row.features) for row in table.rows]
        targets = None
        if table.rows[0].target is not None:
            targets = [self.tgt_dict.encode(self.tgt_dict.split(row.target)) for row in table.rows]
        features = [[*map(self.src_dict.feature, row.features)] for row in table.rows]
        for name, side, kind, encoded in (
            ("source", "source", "symbol", sources),
            ("target", "target", "symbol", targets),
            ("features", "source", "feature", features),
        ):
            unknown = [number for number, ids in enumerate(encoded or []) if self.src_dict.unk() in ids]
            if training and unknown:
                raise ConfigurationError(
                    f"{table.place(unknown[0])}: the {side} has a {kind} that {_path(folder, name)} lacks, which was "
                    "made of another table: remove the folder's dict.*.txt to make them again, or use another folder"
                )
            if unknown:
                logger.info(f"{table.path}: {len(unknown)} of {len(sources)} {side}s have {kind}s unseen in training")
        logger.info(f"{table.path}: {len(sources)} strings")
        source, target = self._tensors(sources), None if targets is None else self._tensors(targets)
        pairs = LanguagePairDataset(
            source,
            [*map(len, source)],
            self.src_dict,
            target,
            None if target is None else [*map(len, target)],
            self.tgt_dict,
            shuffle=training,
            pad_to_multiple=self.cfg.required_seq_len_multiple,
        )
        pairs.name = table.path
        self.datasets[split] = pairs

    def _read_columns(self) -> Columns:
        has, columns = self.src_dict.first_feature is not None, self.columns
        columns.check()
        if has and not columns.features:
            raise ConfigurationError(
                f"{_folder(self.cfg)} has dict.features.txt, so its sources have features: give --features-column, or "
                "use another folder"
            )
        return columns if has else columns._replace(features=0)

    def _tensors(self, encoded: list[list[int]]) -> list[torch.Tensor]:
        return [torch.tensor([*ids, self.src_dict.eos()]) for ids in encoded]

    def build_generator(self, models: Any, args: Any, *more: Any, **named: Any) -> Any:
        """Build a generator; 3 and 30 replace fairseq's defaults of ``--max-len-a`` and ``--max-len-b``."""
        return super().build_generator(models, with_limits(args, MAX_LEN_A, MAX_LEN_B), *more, **named)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build a model as other tasks do, without the stock translation task's options of BLEU."""
        return FairseqTask.build_model(self, cfg, from_checkpoint)

    def build_criterion(self, cfg: Any) -> Any:
        """Build a criterion, and refuse one that logs another accuracy."""
        if getattr(cfg, "report_accuracy", False):
            raise ConfigurationError(
                "--report-accuracy logs the accuracy of single symbols under the name that --task string_transduction "
                "gives that of whole strings: leave it out"
            )
        return super().build_criterion(cfg)

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> Any:
        """Validate a batch; the logged numbers include the counts of :mod:`.exact_match` for greedy search."""
        loss, sample_size, logging_output = FairseqTask.valid_step(self, sample, model, criterion)
        if self.generator is None:
            self.generator = self.build_generator([model], Namespace(beam=1))
        scorer = exact_match.ExactMatchScorer(None)
        found = self.inference_step(self.generator, [model], sample)
        for target, (best, *_) in zip(sample["target"], found):
            scorer.add(utils.strip_pad(target, self.tgt_dict.pad()), best["tokens"])
        return loss, sample_size, {**logging_output, **scorer.total}

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Log the criterion's metrics, and in validation ``accuracy``, ``wer`` and ``ser``."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        log_scores(logging_outputs, exact_match.COUNTS, exact_match.SCORES)


def _folder(cfg: StringTransductionConfig) -> str:
    folder, *others = utils.split_paths(cfg.data or "")
    if others:
        raise ConfigurationError(f"{cfg.data}: strings are read from one folder: give one, with joined tables")
    return folder


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, f"dict.{name}.txt")

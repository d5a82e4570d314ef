"""Checks before training that a data folder has what the options need, and that its files are complete.

Stock fairseq takes the languages from the name of the first file that it finds, and checks no index.  It fails at a
line that is too long only when it validates, after an epoch.
"""

import logging
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils, indexed_dataset
from fairseq.data.huffman import HuffmanMMapIndex
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

from fairseq_attnvariants_stock import refuse_misread

from ...registry import ConfigurationError, in_folder
from ..replaced import replaces

logger = logging.getLogger(__name__)

MMAP = indexed_dataset.MMapIndexedDataset.Index._HDR_MAGIC
INDEXES = (MMAP, indexed_dataset.IndexedDataset._HDR_MAGIC, HuffmanMMapIndex._HDR_MAGIC)
HEADER = struct.Struct("<QBQ")  # after the first bytes of an index: version, dtype code, number of sentences
OVERWRITE = " #fairseq:overwrite"
AGAIN = "run fairseq-preprocess again"
NO_TARGET = "has no target, which training and validation need: name another split, or add its targets"
CHUNK = 1 << 24  # tokens that are checked at once
SHOWN = 5  # words that a message shows of a line without a number


@replaces(TranslationTask, "setup_task")
def setup_task(setup, cls, cfg, **more) -> TranslationTask:
    """Find the languages in the names of all files; after a failure, check the dictionaries."""
    folder = utils.split_paths(cfg.data or "")[0]
    cfg.source_lang, cfg.target_lang = find_languages(folder, cfg.source_lang, cfg.target_lang)
    try:
        return setup(cls, cfg, **more)
    except Exception:
        for language in (cfg.source_lang, cfg.target_lang):
            check_dictionary(os.path.join(folder, f"dict.{language}.txt"))
        raise


@replaces(data_utils, "load_indexed_dataset")
def load_indexed_dataset(load, path, dictionary=None, *more, **named):
    """Check a text when it is loaded."""
    check_binarised(path, dictionary)
    try:
        return load(path, dictionary, *more, **named)
    except ValueError:
        check_text(path)  # if it is raw
        raise


@replaces(data_utils, "_find_extra_valid_paths")
def find_extra_valid_paths(find, dataset_path) -> set[str]:
    """Find the names of further validation splits, in the form of ``--valid-subset``."""
    return {name.partition(".")[0] for name in find(dataset_path)}


@replaces(FairseqTask, "get_batch_iterator")
def get_batch_iterator(
    cut,
    self,
    dataset,
    max_tokens=None,
    max_sentences=None,
    max_positions=None,
    ignore_invalid_inputs=False,
    *more,
    **named,
):
    """Check the lengths of a text's lines when it is divided into batches."""
    if isinstance(dataset, LanguagePairDataset):
        longest = utils.resolve_max_positions((None, None), max_positions, max_tokens)
        if ignore_invalid_inputs and None not in longest:
            max_positions = longest
        check_lengths(dataset, longest, ignore_invalid_inputs, max_tokens)
    return cut(self, dataset, max_tokens, max_sentences, max_positions, ignore_invalid_inputs, *more, **named)


@replaces(FairseqTask, "valid_step")
def valid_step(step, self, sample, *more, **named):
    """Refuse a text without targets, which a user may give to fairseq-validate."""
    if isinstance(self, TranslationTask) and sample.get("target", ...) is None:
        raise ConfigurationError(f"a split of --valid-subset {NO_TARGET}")
    return step(self, sample, *more, **named)


def find_languages(folder: str, source: str | None, target: str | None) -> tuple[str, str]:
    """The source and target language of a data folder; one or both may be given.

    Raises:
        ConfigurationError: there is no such folder or pair, or several pairs fit.
    """
    if not os.path.isdir(folder):
        raise ConfigurationError(
            f"there is no data folder {folder}{in_folder(folder)}: give the one that fairseq-preprocess wrote"
        )
    pairs = language_pairs(folder)
    there = f"it has {', '.join(f'{one}-{other}' for one, other in sorted(pairs)) or 'no binarised text'}"
    for option, language in (("-s", source), ("-t", target)):
        if language is not None and not os.path.isfile(os.path.join(folder, f"dict.{language}.txt")):
            raise ConfigurationError(f"{option} {language}: {folder} has no dict.{language}.txt, {there}")
    if source is not None and target is not None:
        return source, target
    if source is not None or target is not None:  # fairseq reads a pair in either direction
        pairs |= {(other, one) for one, other in pairs}
    found = [pair for pair in pairs if source in (None, pair[0]) and target in (None, pair[1])]
    if len(found) != 1:
        raise ConfigurationError(f"which languages of {folder} are meant is unclear, {there}: give both, as -s and -t")
    return found[0]


def language_pairs(folder: str) -> set[tuple[str, str]]:
    """The pairs in names of a folder's files (``train.zh-Hans-en.en.idx``) whose two languages have dictionaries."""
    names = os.listdir(folder)
    languages = {name[5:-4] for name in names if name.startswith("dict.") and name.endswith(".txt")}
    parts = {part for name in names for part in name.split(".")[1:]}
    cuts = ((part[:i], part[i + 1 :]) for part in parts for i, letter in enumerate(part) if letter == "-")
    return {(one, other) for one, other in cuts if {one, other} <= languages}


def check_split(folder: str, split: str, source: str, target: str, kind: str | None) -> None:
    """Refuse a split without a source in the format of ``--dataset-impl``, or a text with only one of its two files.

    Raises:
        ConfigurationError: with the files or splits that exist.
    """
    pairs = [f"{source}-{target}", f"{target}-{source}"]
    paths = [os.path.join(folder, f"{split}.{pair}.") for pair in pairs]
    for path in (path + language for path in paths for language in (source, target)):
        for half, other in (("idx", "bin"), ("bin", "idx")):
            if kind != "raw" and os.path.isfile(f"{path}.{half}") and not os.path.isfile(f"{path}.{other}"):
                raise ConfigurationError(f"{path}.{half} is there, and {path}.{other} is not: {AGAIN}")
    if any(indexed_dataset.dataset_exists(path + source, kind) for path in paths):
        return
    for path in (path + source for path in paths):
        if kind != "raw" and os.path.isfile(path):
            raise ConfigurationError(f"{path} is raw text: give --dataset-impl raw")
        if kind == "raw" and os.path.isfile(f"{path}.idx"):
            raise ConfigurationError(f"{path}.idx is no raw text: leave --dataset-impl raw out")
    names = (name.partition(".") for name in os.listdir(folder))
    sources = {f"{pair}.{source}{end}" for pair in pairs for end in ("", ".idx")}
    splits = sorted({split for split, _, rest in names if rest in sources})
    raise ConfigurationError(
        f"{folder} has no split {split!r} of {pairs[0]}, but {', '.join(splits) or 'none at all'}: correct "
        "--train-subset, --valid-subset or --gen-subset, whose names have commas and no spaces between"
    )


def check_texts(trainer) -> None:
    """Refuse to train if a text for training or validation has no target.

    Raises:
        ConfigurationError: naming the split.
    """
    options = trainer.cfg.dataset
    validation = [] if options.disable_validation else options.valid_subset.split(",")
    for split in (options.train_subset, *validation):
        pairs = trainer.task.datasets.get(split)
        if isinstance(pairs, LanguagePairDataset) and pairs.tgt is None:
            raise ConfigurationError(f"the split {split!r} {NO_TARGET}")


def check_binarised(path: str, dictionary: Dictionary | None) -> None:
    """Refuse a damaged binarised text or alignment, and a text that does not fit its dictionary.

    Raises:
        ConfigurationError: naming the file and, if known, the line.
    """
    index, data = f"{path}.idx", f"{path}.bin"
    if not (os.path.isfile(index) and os.path.isfile(data)):
        return
    with open(index, "rb") as stream:
        head = stream.read(len(MMAP))
        if not head.startswith(INDEXES):
            raise ConfigurationError(f"{index} is no index that fairseq-preprocess writes, or it is damaged: {AGAIN}")
        if head != MMAP:
            return
        rest = stream.read(HEADER.size)
        version, code, count = HEADER.unpack(rest) if len(rest) == HEADER.size else (0, 0, 0)
        kind = indexed_dataset._code_to_dtype.get(code)
        if version != 1 or kind is None or os.path.getsize(index) != stream.tell() + 12 * count:
            raise ConfigurationError(f"{index} is damaged or cut off: {AGAIN}")
        sizes, starts = np.fromfile(stream, np.int32, count), np.fromfile(stream, np.int64, count)
    width = np.dtype(kind).itemsize
    ends = np.cumsum(sizes, dtype=np.int64)
    if (sizes < 0).any() or (starts != width * (ends - sizes)).any():
        raise ConfigurationError(f"{index} is damaged: {AGAIN}")
    if os.path.getsize(data) != width * sizes.sum(dtype=np.int64):
        raise ConfigurationError(f"{data} is cut off, or {os.path.basename(index)} is that of another text: {AGAIN}")
    if dictionary is not None and not count:  # fairseq cannot open its file, which has no bytes
        raise ConfigurationError(f"{path} has no lines: {AGAIN}")
    if dictionary is not None:
        check_tokens(path, dictionary, ends, np.memmap(data, kind, "r") if ends[-1:].any() else np.zeros(0, kind))


def check_tokens(path: str, dictionary: Dictionary, ends: np.ndarray, tokens: np.ndarray) -> None:
    """Refuse lines without a symbol, with symbols that a dictionary does not have, or with padding among their words.

    Args:
        path: the path of the text.
        dictionary: the dictionary of the text.
        ends: the end of each line in ``tokens``, the symbols of all lines.

    Raises:
        ConfigurationError: naming the line.
    """
    empty = np.flatnonzero(np.diff(ends, prepend=0) == 0)
    if empty.size:
        raise ConfigurationError(f"{path}, line {empty[0] + 1}: no symbol, not even that of a sentence's end: {AGAIN}")
    warned = False
    for start in range(0, len(tokens), CHUNK):
        part = np.asarray(tokens[start : start + CHUNK])
        unknown = (part < 0) | (part >= len(dictionary))
        for found, why in (
            (unknown, f"a symbol that its dictionary does not have, which was changed: {AGAIN}"),
            (part == dictionary.pad(), f"{dictionary.pad_word}, with which fairseq pads: take it out and {AGAIN}"),
        ):
            if found.any():
                raise ConfigurationError(f"{path}, line {_line(ends, start + found.argmax())}: {why}")
        begins = part == dictionary.bos()
        if begins.any() and not warned:
            warned = True
            logger.warning(
                f"{path}, line {_line(ends, start + begins.argmax())}: {dictionary.bos_word} is one of fairseq's "
                "symbols, which are read and not printed: alignments count more words than the printed text has"
            )


def _line(ends: np.ndarray, position: Any) -> int:
    return int(np.searchsorted(ends, position, side="right")) + 1


def check_text(path: str) -> None:
    """Refuse text that fairseq would misread.

    Raises:
        ConfigurationError: naming the line.
    """
    try:
        refuse_misread(path)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def check_dictionary(path: str) -> None:
    """Refuse a dictionary that fairseq cannot read.

    Raises:
        ConfigurationError: naming the line.
    """
    check_text(path)
    words = set(Dictionary().symbols)
    with open(path, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            overwrites = line.rstrip().endswith(OVERWRITE)
            word, _, count = line.rstrip().removesuffix(OVERWRITE).rpartition(" ")
            place = f"{path}, line {number}"
            if not word or not count.lstrip("-").isdecimal():
                raise ConfigurationError(f"{place}: not a word and its count with a space between")
            if word in words and not overwrites:
                raise ConfigurationError(
                    f"{place}: the word {word} is there already, or a symbol of fairseq's: take the line out before "
                    f"fairseq-preprocess; if --srcdict had '{OVERWRITE[1:]}', write that behind this line's count"
                )
            words.add(word)


def check_lengths(
    pairs: LanguagePairDataset, longest: Sequence[int | None], left_out: bool, max_tokens: int | None
) -> None:
    """Refuse lines that are too long or, if such lines are left out, a text that has no others.

    Args:
        pairs: source and target.
        longest: the longest line that is accepted, of source and target.
        left_out: whether longer lines are left out.
        max_tokens: the most tokens of a batch.

    Raises:
        ConfigurationError: naming the line and the option.
    """
    name = getattr(pairs, "name", None)
    long = np.zeros(len(pairs), bool)
    options: list[str] = []
    for side, sizes, limit in zip(("source", "target"), (pairs.src_sizes, pairs.tgt_sizes), longest):
        if sizes is None or limit is None:
            continue
        above = np.asarray(sizes) > limit
        if not above.any():
            continue
        if limit == max_tokens:
            option = "--max-tokens (in validation --max-tokens-valid)"
        else:
            option = f"--max-{side}-positions (of a trained model also by --model-overrides)"
        if not left_out:
            number = int(above.argmax())
            words = pairs.src_dict.string(pairs.src[number][:SHOWN])
            line = f"line {number + 1} of {name}" if name else f"the line that begins with '{words}'"
            raise ConfigurationError(
                f"{line} has {sizes[number]} symbols in its {side}, with the end of the sentence, and {option} is "
                f"{limit}: make it larger, or leave such lines out by --skip-invalid-size-inputs-valid-test (in Python "
                "skip_invalid_size_inputs=True)"
            )
        options.append(option)
        long |= above
    if name and not len(pairs):
        raise ConfigurationError(f"{name} has no lines: {AGAIN}")
    if name and long.all():
        raise ConfigurationError(f"no line of {name} is short enough for {' and '.join(options)}")

"""The output of ``fairseq-generate`` and ``fairseq-interactive``: S-, T-, H-, P- and A- lines of numbered sentences."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .alignments import parse_links, parse_soft
from .files import UserError
from .subwords import join_attention, join_tokens, word_numbers

LINE = re.compile(r"([STHPA])-([0-9]{1,12})(?:\t(.*))?", flags=re.DOTALL)
LONGEST = 10_000  # most tokens in a line whose alignment is read
LAST = 10_000_000  # highest sentence number


class Outside(ValueError):
    """The error of an alignment that does not fit the printed tokens."""


class Line(NamedTuple):
    """A line of the file."""

    place: str  # file and number, for messages
    text: str  # what follows the label and the first tab


class Hypothesis(NamedTuple):
    """One translation."""

    place: str  # of its H- line
    score: str
    text: str
    attention: np.ndarray | None  # T x S without EOS, if there is an A- line that fits the words of the text


class Sentence(NamedTuple):
    """A source sentence with its translations."""

    place: str  # of its S- line
    source: str
    reference: str | None
    hypotheses: list[Hypothesis]  # the best first


def is_generated(lines: Iterable[str]) -> bool:
    """Return whether there are H- lines."""
    return any(match and match[1] == "H" for match in map(LINE.fullmatch, lines))


def read_generated(lines: Iterable[str], path: str, aligned: bool = False) -> dict[int, Sentence]:
    """Read the sentences by number. The numbers, from 0, are those of the lines of the source text.

    Other lines are skipped. The lines of a sentence may be anywhere, but its hypotheses, scores and alignments are in
    the same order. A hypothesis with more scores than words and EOS has no attention: ``--remove-bpe`` has joined its
    subwords, or it contains a ``<s>``, which fairseq does not print. If an alignment also points outside its sentence,
    the reason is ``--remove-bpe``, which joins the subwords of sources as well. Then no hypothesis has attention.

    Args:
        lines: the lines of the file.
        path: the name of the file, for messages.
        aligned: whether every hypothesis must have an A- line.

    Raises:
        UserError: there are no sentences, a sentence lacks a line or has it twice, an alignment is malformed, or
            alignments are needed but are of characters.
    """
    found: dict[int, dict[str, list[Line]]] = {}
    for number, line in enumerate(lines, start=1):
        if match := LINE.fullmatch(line):
            if int(match[2]) > LAST:
                raise UserError(f"{path}, line {number}: sentence {match[2]}, where {LAST} is the last that is read")
            labels = found.setdefault(int(match[2]), {label: [] for label in "STHPA"})
            labels[match[1]].append(Line(f"{path}, line {number}", match[3] or ""))
    if not found:
        raise UserError(f"{path} has no H- lines: it is not what fairseq-generate prints")
    if aligned and _of_characters(found.values()):
        raise UserError(
            f"{path} is of a model on characters, whose A- lines count characters, and words are needed here: align "
            "writes links between characters, and translate(..., replace_unk=True) in Python replaces UNKs"
        )
    try:
        return {number: _sentence(number, labels, aligned) for number, labels in found.items()}
    except Outside as error:
        joined = {number: _sentence(number, labels, aligned, joined=True) for number, labels in found.items()}
        if all(_fits(labels, k) for labels in found.values() for k in range(len(labels["H"]))):
            raise UserError(
                f"{error}; did fairseq-generate --remove-bpe join them, or has the source text a <s>, </s> or <pad>, "
                "which fairseq does not print?"
            ) from error
        return joined


def _fits(labels: dict[str, list[Line]], k: int) -> bool:
    """Return whether hypothesis ``k`` has one score per word and one for EOS, or no scores."""
    scores, words = labels["P"], labels["H"][k].text.partition("\t")[2].split()
    return not scores or len(scores[k].text.split()) == len(words) + 1


def _of_characters(sentences: Iterable[dict[str, list[Line]]]) -> bool:
    """Return whether most hypotheses have one score per character, and one for EOS, instead of one per word."""
    spelt = 0
    for labels in sentences:
        for k, (scores, line) in enumerate(zip(labels["P"], labels["H"])):
            characters = line.text.partition("\t")[2].replace("<unk>", "?")
            whole = len(scores.text.split()) == len(characters) + 1
            spelt += 1 if whole and not _fits(labels, k) else -1
    return spelt > 0


def _sentence(number: int, labels: dict[str, list[Line]], aligned: bool, joined: bool = False) -> Sentence:
    """Return a sentence from its lines, without attention if subwords are ``joined``."""
    sources, references, hypotheses, scores, alignments = labels.values()
    count = len(hypotheses)
    if aligned and len(alignments) < count:
        raise UserError(
            f"{hypotheses[len(alignments)].place}: H-{number} has no A- line: run fairseq-generate with "
            "--print-alignment; or was its output cut off?"
        )
    if not count or len(sources) != 1 or {len(scores), len(alignments)} - {0, count} or len(references) > 1:
        last = next(lines[-1] for lines in labels.values() if lines)
        counts = ", ".join(f"{len(lines)} {label}-" for label, lines in labels.items())
        raise UserError(f"{last.place}: sentence {number} has {counts} lines: output cut off, or given twice?")
    source, found = sources[0].text, []
    for k, (place, text) in enumerate(hypotheses):
        score, tab, translation = text.partition("\t")
        if not tab:
            raise UserError(f"{place}: no tab between score and text: output cut off?")
        attention = None
        if alignments and not joined and _fits(labels, k):
            where = f"{alignments[k].place}: A-{number}"
            try:
                attention = parse_attention(alignments[k].text, len(source.split()), len(translation.split()))
            except Outside as error:
                raise Outside(f"{where}: {error}") from error
            except ValueError as error:
                raise UserError(f"{where}: {error}") from error
        found.append(Hypothesis(place, score, translation, attention))
    return Sentence(sources[0].place, source, references[0].text if references else None, found)


def best_in_words(sentence: Sentence, style: str | None) -> tuple[list[str], list[str], np.ndarray | None]:
    """Return the words of a sentence and of its best hypothesis, and the attention between them.

    ``style`` joins subwords.
    """
    best = sentence.hypotheses[0]
    source, target, attention = sentence.source.split(), best.text.split(), best.attention
    if attention is not None:
        attention = join_attention(attention, word_numbers(source, style), word_numbers(target, style))
    return join_tokens(source, style), join_tokens(target, style), attention


def parse_attention(text: str, source: int, target: int) -> np.ndarray:
    """Parse an A- line into weights ``target x source``: ``i-j`` pairs, or rows of weights with EOS on both sides.

    Raises:
        Outside: the line does not fit the two lengths.
        ValueError: the line is malformed, or a length is above :data:`LONGEST`.
    """
    if max(source, target) > LONGEST:
        raise ValueError(f"{source} and {target} tokens, where alignments of at most {LONGEST} are read")
    if text.strip() and "-" not in text:
        soft = parse_soft(text)
        if soft.shape != (target + 1, source + 1):
            raise Outside(f"{len(soft)} rows of {soft.shape[1]} weights for {target} and {source} tokens, and EOS")
        return soft[:target, :source]
    weights = np.zeros((target, source))
    for i, j in parse_links(text):
        if i >= source or j >= target:
            raise Outside(f"{i}-{j} is outside the sentences, which have {source} and {target} tokens")
        weights[j, i] = 1
    return weights

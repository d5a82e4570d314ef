"""``fairseq-attnvariants compare``: translations of several systems side by side, as a page for a browser."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric

from ..options import NameOptions, SubwordOptions, numeric, option
from ..scores.contrasts import contrasts
from ..scores.groups import GroupOptions, check_group_options, find_groups, resamples
from ..scores.measures import check_tokenised, metrics, scores, warn_of_tokenised
from ..shown.groups import draw_groups
from ..shown.pages import template
from ..shown.pictures import check_drawn, picture
from ..text.files import UserError, optional, read_lines, write_whole
from ..text.generated import best_in_words, is_generated, read_generated
from ..text.subwords import join_tokens

FAINT = 0.05  # lower attention weights are not shown
BOOTSTRAP = 1000  # resamples
NGRAMS = 20  # n-grams of each kind, if there are several systems
LONGEST = 2000  # most words of a sentence that is marked; the time grows with their square


@dataclass
class Options(GroupOptions, NameOptions, SubwordOptions):
    """Write one HTML page with the translations of several systems side by side. It needs no network. The page marks
    words that the reference lacks, and reference words that the translation lacks. You can sort it by line, length or
    chrF. Above the sentences it shows groups: BLEU by length, sentences by difference in length and by BLEU, and
    n-grams that one system has and another lacks; --train-target, tags and --alignments add more. SYSTEM is the output
    of fairseq-generate, or plain text with --source and --reference. After fairseq-generate --print-alignment (hard or
    soft), point at a word to see the attended source words.

    example: fairseq-attnvariants compare base.txt ours.txt --name base --name ours --remove-bpe --train-target train.de
    --output compare.html

    Args:
        systems: output of fairseq-generate, or plain text
        source: the source text (default: that of the output of fairseq-generate)
        reference: the reference (default: that of the output of fairseq-generate)
        tokenize: sacrebleu's tokeniser for BLEU (default: 13a)
        ngrams: list N n-grams that one system has and another lacks (default: 20)
        output: file for the page (-: standard output)
    """

    source: str | None = option()
    reference: str | None = option()
    bootstrap: int = numeric(BOOTSTRAP, type=resamples)
    output: str = option(required=True)


class Translation(NamedTuple):
    """One system's translation of a sentence, in words."""

    words: list[str]
    attention: np.ndarray | None  # T x S without EOS


class Output(NamedTuple):
    """A file's content for a sentence; plain text has only a translation."""

    source: list[str] | None
    reference: list[str] | None
    translation: Translation


def read_system(path: str, style: str | None = None) -> dict[int, Output]:
    """Read the sentences of a file, by their numbers from 0, and join subwords by ``style``.

    Raises:
        UserError: the file cannot be read, is empty, or is cut off.
    """
    lines = list(read_lines(path))
    if not lines:
        raise UserError(f"{path} is empty")
    if not is_generated(lines):
        return {
            k: Output(None, None, Translation(join_tokens(line.split(), style), None)) for k, line in enumerate(lines)
        }
    outputs = {}
    for number, sentence in read_generated(lines, path).items():
        source, target, attention = best_in_words(sentence, style)
        reference = None if sentence.reference is None else join_tokens(sentence.reference.split(), style)
        outputs[number] = Output(source, reference, Translation(target, attention))
    return outputs


def matching(words: Sequence[str], reference: Sequence[str]) -> tuple[list[bool], list[bool]]:
    """Return which words match the reference, in the same order, and which reference words match.

    Matches are difflib's longest matching blocks. In sentences above :data:`LONGEST` all words count as matches.
    """
    if max(len(words), len(reference)) > LONGEST:
        return [True] * len(words), [True] * len(reference)
    ours, theirs = [False] * len(words), [False] * len(reference)
    for i, j, size in difflib.SequenceMatcher(None, words, reference, autojunk=False).get_matching_blocks():
        ours[i : i + size] = theirs[j : j + size] = [True] * size
    return ours, theirs


def marked(translation: Translation, right: Sequence[bool]) -> list[tuple[bool, str, str]]:
    """Return for each word whether it is right, the source words it attends to with their weights, and the word."""
    looked = [""] * len(translation.words)
    if translation.attention is not None:
        rows = map(enumerate, translation.attention.tolist())
        looked = [" ".join(f"{i}:{weight:.2f}" for i, weight in row if weight >= FAINT) for row in rows]
    return list(zip(right, looked, translation.words, strict=True))


def omissions(
    words: Sequence[str], found: Sequence[Sequence[bool]], shown: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Return each reference word with the systems that lack it; ``found`` has, per system, which words it contains."""
    return [(word, [name for name, has in zip(shown, there) if not has]) for word, *there in zip(words, *found)]


def compared(
    number: int, source: Sequence[str], reference: Sequence[str], systems: Mapping[str, Translation], chrf: Metric
) -> dict[str, Any]:
    """Return the page's data of a sentence; ``systems`` are the translations by the names of the systems."""
    gold, lines = " ".join(reference), [" ".join(one.words) for one in systems.values()]
    chrfs = [chrf.sentence_score(line, [gold]).score for line in lines]
    matches = [matching(one.words, reference) for one in systems.values()]
    translations = [marked(one, right) for one, (right, _) in zip(systems.values(), matches)]
    return dict(
        number=number + 1,
        key=" ".join(map(str, [number, len(source), *(f"{score:.4f}" for score in chrfs)])),
        same=len({*lines} if len(lines) > 1 else {*lines, gold}) == 1,
        source=source,
        reference=omissions(reference, [found for _, found in matches], [*systems]),
        translations=list(zip(chrfs, translations)),
    )


def run(options: Options) -> None:
    """Read the systems, compare their translations, and write the page."""
    shown = options.names(options.systems)
    check_group_options(options, source=True)
    if options.ngrams is None and len(shown) > 1:
        options.ngrams = NGRAMS
    check_drawn(options)
    systems = [(path, read_system(path, options.remove_bpe)) for path in options.systems]
    source, reference = (read_side(side, systems, options) for side in ("source", "reference"))
    for path, found in [("the source", source.keys()), *((path, outputs.keys()) for path, outputs in systems)]:
        if missing := sorted(reference.keys() ^ found):
            raise UserError(
                f"{path} and the reference do not have the same sentences: line {missing[0] + 1} is in only one"
            )
    numbers = sorted(reference)
    translations = [[_fitting(outputs[k].translation, source[k]) for k in numbers] for _, outputs in systems]
    with write_whole(options.output) as stream, optional(picture, options.plot, options.dark) as save:
        named = [(name, [" ".join(one.words) for one in several]) for name, several in zip(shown, translations)]
        gold = [" ".join(reference[k]) for k in numbers]
        check_tokenised(options.tokenize, gold)
        groups = find_groups(options, named, [gold], [" ".join(source[k]) for k in numbers])
        warn_of_tokenised(named, options.tokenize)
        measures = dict(metrics(options.tokenize))
        bleu, chrf = measures["BLEU"], measures["chrF2"]
        bleus = scores(named, [gold], [("BLEU", bleu)], options.bootstrap if len(shown) > 1 else 0)
        content = template("compare.html").render(
            names=shown,
            scores=list(zip(bleus, scores(named, [gold], [("chrF", chrf)]), strict=True)),
            groups=groups,
            ngrams=contrasts(named, gold, options.ngrams) if options.ngrams else None,
            sentences=[
                compared(k, source[k], reference[k], dict(zip(shown, several)), chrf)
                for k, *several in zip(numbers, *translations, strict=True)
            ],
            longest=LONGEST,
            signatures=f"BLEU {bleus[0].signature}, chrF {chrf.get_signature()}",
        )
        stream.write(content)
        if save:
            save(draw_groups(groups, shown))


def read_side(side: str, systems: Sequence[tuple[str, dict[int, Output]]], options: Options) -> dict[int, list[str]]:
    """Return the words of the ``source`` or ``reference``, from its file or from the output of fairseq-generate.

    Raises:
        UserError: the file cannot be read; or, without a file, no system has this side, or two have different ones.
    """
    if path := getattr(options, side):
        return {k: join_tokens(line.split(), options.remove_bpe) for k, line in enumerate(read_lines(path))}
    result: dict[int, list[str]] = {}
    for path, outputs in systems:
        for number, output in outputs.items():
            words = getattr(output, side)
            if words is not None and result.setdefault(number, words) != words:
                raise UserError(f"{path} and the systems before it have different {side}s in line {number + 1}")
    if not result:
        raise UserError(f"no system has the {side}: give --{side}")
    return result


def _fitting(translation: Translation, source: Sequence[str]) -> Translation:
    attention = translation.attention
    fits = attention is not None and attention.shape[1] == len(source)
    return translation if fits else translation._replace(attention=None)

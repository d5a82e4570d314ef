"""``fairseq-attnvariants replace-unk``: words for UNKs in the output of ``fairseq-generate --print-alignment``.

Each UNK is replaced by the translation of the source word with the highest attention weight (Feng et al. 2016, section
7). The paper says no more. Here, if the word table lacks the source word, the UNK becomes a copy of it, and the source
EOS cannot be chosen.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..options import filled, option, switch
from ..text.alignments import hard_links
from ..text.files import UserError, read_lines, say, visible, write_whole
from ..text.generated import Hypothesis, Sentence, read_generated
from ..text.lexicon import read_lexicon

Alignment = dict[int, int]  # position of the target word -> position of the source word

TABLE, COPY, LEFT = "table", "copy", "left"


def word(text: str) -> str:
    """An option's type: a word, as it is between spaces."""
    if filled(text).split() != [text]:
        raise argparse.ArgumentTypeError(f"{text!r} has a space, and no word has one: give one word")
    return text


@dataclass
class Options:
    """Replace each UNK by the translation of the source word with the highest attention weight. The table has the
    translation; a source word that it lacks is copied. GENERATED is the output of fairseq-generate --print-alignment
    (hard or soft) on word-level data. The command writes the best hypothesis of each source line, in the order of the
    source text; a skipped sentence gives an empty line. It reports the replacements on standard error.

    example: fairseq-generate data-bin --user-dir "$(fairseq-attnvariants user-dir)" --path checkpoint_best.pt
    --print-alignment > generated.txt && fairseq-attnvariants replace-unk generated.txt --source test.en --lexicon
    lexicon.en-de.tsv --output test.out.de

    Args:
        generated: output of fairseq-generate (-: standard input)
        source: the source text as given to fairseq-preprocess, without UNKs
        lexicon: table made by lexicon; without it every UNK is a copy
        copied: target dictionary (dict.TARGET.txt in the data folder) of a model with --copying: each UNK becomes the
            copied word, the one with the highest weight among the words that this dictionary lacks; needs
            --print-alignment soft
        output: file for the text (default: standard output)
        unk: how UNK is printed
        nbest: write all hypotheses, as lines of id, score and text with tabs between
        detailed: list every UNK on standard error: id, rank, position, source position, source word, word, rule
    """

    generated: str = option("GENERATED", positional=True)
    source: str = option("RAW", required=True)
    lexicon: str | None = option("TABLE")
    copied: str | None = option("DICT")
    output: str | None = option()
    unk: str = option("WORD", default="<unk>", type=word)
    nbest: bool = switch()
    detailed: bool = switch()


class Replacement(NamedTuple):
    """The replacement of one UNK."""

    position: int  # in the hypothesis
    source: int | None  # position of the source word
    word: str
    rule: str  # TABLE, COPY or LEFT
    neighbour: bool  # the UNK had no alignment, and uses that of the nearest word


class Replaced(NamedTuple):
    """A hypothesis after the replacement."""

    score: str
    words: list[str]
    replacements: list[Replacement]
    aligned: bool  # whether its words are the tokens that were generated


def check_source(sample_id: int, sentence: Sentence, source: Sequence[str], path: str, unk: str) -> None:
    """Refuse a raw sentence that differs from the S- line in more than UNKs; messages name ``path``."""
    words = sentence.source.split()
    unequal = [(ours, theirs) for ours, theirs in zip(source, words) if theirs not in (ours, unk)]
    if len(source) != len(words):
        difference = f"{len(source)} words, but S-{sample_id} has {len(words)}"
    elif unequal:
        ours, theirs = unequal[0]
        difference = f"{ours!r}, but S-{sample_id} has {theirs!r}"
    else:
        return
    raise UserError(
        f"{path}, line {sample_id + 1}: {difference} ({sentence.place}): not the words that were translated"
    )


def replace_unks(
    words: Sequence[str], source: Sequence[str], alignment: Alignment, lexicon: Mapping[str, str], unk: str
) -> list[Replacement]:
    """Return the replacement of each UNK among ``words``.

    An UNK without an alignment takes the source word of the nearest aligned word, the left one in a tie. If no word is
    aligned, the UNK is not replaced.
    """
    replacements = []
    for position, word in enumerate(words):
        if word != unk:
            continue
        nearest = min(alignment, key=lambda j: (abs(j - position), j), default=None)
        if nearest is None:
            replacements.append(Replacement(position, None, unk, LEFT, False))
            continue
        place = alignment[nearest]
        chosen = source[place]
        rule = TABLE if chosen in lexicon else COPY
        replacements.append(Replacement(position, place, lexicon.get(chosen, chosen), rule, nearest != position))
    return replacements


def copied_words(
    attention: np.ndarray, words: Sequence[str], source: Sequence[str], known: Container[str], unk: str
) -> np.ndarray:
    """Return the attention ``T x S`` with that of UNKs only on words that the dictionary lacks, if they have weight.

    Args:
        attention: attention of a model that copies.
        words: words of the hypothesis.
        source: source words as the model read them, UNKs among them.
        known: the target dictionary.
        unk: how UNK is printed.
    """
    lacking = np.array([word == unk or word not in known for word in source], dtype=bool)
    chosen = attention * lacking
    unks = np.array([word == unk for word in words], dtype=bool) & chosen.any(axis=1)
    return np.where(unks[:, None], chosen, attention)


def post_process(
    hypothesis: Hypothesis,
    sentence: Sentence,
    source: Sequence[str],
    lexicon: Mapping[str, str],
    unk: str,
    known: Container[str] | None = None,
) -> Replaced:
    """Replace the UNKs of a hypothesis; the raw ``source`` has words where the S- line may have UNKs.

    ``known`` is the target dictionary of a model that copies. With it, an UNK takes a word that the dictionary lacks.
    """
    words, attention = hypothesis.text.split(), hypothesis.attention
    if attention is not None and known is not None:
        attention = copied_words(attention, words, sentence.source.split(), known, unk)
    alignment = {} if attention is None else {j: i for i, j in hard_links(attention)}
    replacements = replace_unks(words, source, alignment, lexicon, unk)
    for replacement in replacements:
        words[replacement.position] = replacement.word
    return Replaced(hypothesis.score, words, replacements, aligned=attention is not None)


def read_dictionary(path: str) -> Container[str]:
    """Read the words of a dictionary of ``fairseq-preprocess``.

    Raises:
        UserError: the file cannot be read, or is not a dictionary.
    """
    lines = [line.replace(" #fairseq:overwrite", "").rstrip().rsplit(" ", 1) for line in read_lines(path)]
    for number, line in enumerate(lines, start=1):
        if len(line) != 2 or not line[1].isdecimal():
            raise UserError(f"{path}, line {number}: no word and count: give dict.TARGET.txt of fairseq-preprocess")
    return {word for word, _ in lines}


def check_soft(sentences: Mapping[int, Sentence], generated: str) -> None:
    """Refuse output that does not show which words were copied.

    Raises:
        UserError: no hypothesis has attention, or alignments are hard.
    """
    found = [hypothesis.attention for sentence in sentences.values() for hypothesis in sentence.hypotheses]
    there = [weights for weights in found if weights is not None]
    if not there:
        raise UserError(
            f"{generated}: no hypothesis has an attention that fits its words, which --copied reads: run "
            "fairseq-generate without --remove-bpe, or leave --copied out"
        )
    if not any(((weights > 0) & (weights < 1)).any() for weights in there):
        raise UserError(
            f"{generated}: hard alignments, which do not say what was copied: run fairseq-generate with "
            "--print-alignment soft, or leave --copied out"
        )


def run(options: Options) -> None:
    """Replace UNKs, write the hypotheses in the order of the source text, and report on standard error."""
    lexicon = read_lexicon(options.lexicon) if options.lexicon else {}
    sentences = read_generated(read_lines(options.generated), options.generated, aligned=True)
    known = read_dictionary(options.copied) if options.copied else None
    if options.copied:
        check_soft(sentences, options.generated)
    source = [line.split() for line in read_lines(options.source)]
    last = max(sentences)
    if last >= len(source):
        raise UserError(
            f"{options.source} ends after line {len(source)}, but {options.generated} has sentence {last}, "
            f"which is line {last + 1}"
        )

    results: dict[int, list[Replaced]] = {}
    with write_whole(options.output) as output:
        for sample_id, words in enumerate(source):
            if sentence := sentences.get(sample_id):
                check_source(sample_id, sentence, words, options.source, options.unk)
                wanted = sentence.hypotheses[: None if options.nbest else 1]
                hypotheses = [post_process(one, sentence, words, lexicon, options.unk, known) for one in wanted]
                results[sample_id] = hypotheses
                if options.nbest:
                    output.writelines(f"{sample_id}\t{h.score}\t{' '.join(h.words)}\n" for h in hypotheses)
                else:
                    output.write(" ".join(hypotheses[0].words) + "\n")
            elif not options.nbest:
                output.write("\n")
    if options.detailed:
        sys.stderr.writelines(details(results, source))
    say(report(results, len(source)))


def details(results: Mapping[int, Sequence[Replaced]], source: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each UNK: id, rank, position, source position, source word, word, rule."""
    for sample_id, hypotheses in results.items():
        for rank, hypothesis in enumerate(hypotheses):
            for position, chosen, word, rule, neighbour in hypothesis.replacements:
                place = ("", "") if chosen is None else (chosen, source[sample_id][chosen])
                fields = (sample_id, rank, position, *place, word, f"{rule}-neighbour" if neighbour else rule)
                yield "\t".join(visible(str(field)) for field in fields) + "\n"


def report(results: Mapping[int, Sequence[Replaced]], sentences: int) -> str:
    """Return one sentence on how many UNKs were replaced, and how."""
    hypotheses = [hypothesis for several in results.values() for hypothesis in several]
    replacements = [replacement for hypothesis in hypotheses for replacement in hypothesis.replacements]
    rules = Counter(replacement.rule for replacement in replacements)
    text = (
        f"{sentences} sentences, {sentences - len(results)} of them without a hypothesis; {len(hypotheses)} hypotheses "
        f"with {len(replacements)} UNKs: {rules[TABLE]} replaced from the table, {rules[COPY]} by the source word, "
        f"{rules[LEFT]} not replaced"
    )
    if neighbours := sum(replacement.neighbour for replacement in replacements):
        text += f"; {neighbours} of these by the alignment of the nearest word"
    if unaligned := sum(not h.aligned and bool(h.replacements) for h in hypotheses):
        text += f"; {unaligned} hypotheses not touched, since their words are not their tokens (--remove-bpe?)"
    return text

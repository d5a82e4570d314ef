"""``fairseq-attnvariants replace-unk``: words for the UNKs in what ``fairseq-generate --print-alignment`` printed.

Each UNK takes the translation of the source word with the highest attention weight from the word table, else that
source word itself (Feng et al., section 5.1). The source EOS cannot be chosen.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from .files import UserError, read_lines, write_whole
from .lexicon import parse_link, read_lexicon

Alignment = Dict[int, int]  # position of the target word -> position of the source word

TABLE, COPY, LEFT = "table", "copy", "left"


class Line(NamedTuple):
    """A line of the generated output."""

    place: str  # file and line number, for messages
    text: str  # what follows the label and the first tab


Sentence = Dict[str, List[Line]]  # by label: S once; H, P and A for each hypothesis, the best first


class Replacement(NamedTuple):
    """What became of one UNK."""

    position: int  # in the hypothesis
    source: Optional[int]  # position of the source word
    word: str
    rule: str  # TABLE, COPY or LEFT
    neighbour: bool  # the UNK had no alignment of its own


class Hypothesis(NamedTuple):
    """A hypothesis after the replacement."""

    score: str
    words: List[str]
    replacements: List[Replacement]
    aligned: bool  # whether its words are the tokens that were generated


def group_lines(lines: Iterable[str], path: str) -> Dict[int, Sentence]:
    """The S-, H-, P- and A- lines of generated output by sentence id; all other lines are passed over.

    ``path`` is for messages.

    Raises:
        UserError: a sentence has not one S- line, no H- line, or not one A- line for each H- line.
    """
    sentences: Dict[int, Sentence] = defaultdict(lambda: {label: [] for label in "SHPA"})
    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"([SHPA])-([0-9]{1,12})(?:\t(.*))?", line, flags=re.DOTALL)
        if match:
            sentences[int(match[2])][match[1]].append(Line(f"{path}, line {number}", match[3] or ""))
    if not sentences:
        raise UserError(f"{path} has no H- lines: it is not what fairseq-generate prints")
    for sample_id, sentence in sentences.items():
        check_labels(sample_id, sentence)
    return dict(sentences)


def check_labels(sample_id: int, sentence: Sentence) -> None:
    """Refuse a sentence whose lines are not as :func:`group_lines` says."""
    hypotheses, scores, alignments = (sentence[label] for label in "HPA")
    for line in hypotheses[len(alignments) :]:
        raise UserError(f"{line.place}: H-{sample_id} has no A- line: run fairseq-generate with --print-alignment")
    if len(sentence["S"]) != 1 or len(alignments) != len(hypotheses) or len(scores) not in (0, len(hypotheses)):
        last = next(lines[-1] for lines in sentence.values() if lines)
        counts = ", ".join(f"{len(lines)} {label}-" for label, lines in sentence.items())
        raise UserError(f"{last.place}: sentence {sample_id} has {counts} lines: output cut off, or given twice?")
    if not hypotheses:
        raise UserError(f"{sentence['S'][0].place}: S-{sample_id} has no H- line: output cut off?")


def check_source(sample_id: int, translated: Line, source: Sequence[str], path: str, unk: str) -> None:
    """Refuse a raw sentence whose words are not those of the S- line, apart from UNKs; ``path`` is for messages."""
    words = translated.text.split()
    if len(source) != len(words):
        difference = f"{len(source)} words, but S-{sample_id} has {len(words)}"
    else:
        unequal = (pair for pair in zip(source, words, strict=True) if pair[1] not in (pair[0], unk))
        ours, theirs = next(unequal, (None, None))
        if ours is None:
            return
        difference = f"{ours!r}, but S-{sample_id} has {theirs!r}"
    raise UserError(
        f"{path}, line {sample_id + 1}: {difference} ({translated.place}): not the words that were translated"
    )


def parse_alignment(text: str, source_length: int) -> Alignment:
    """What an A- line says: the source word with the highest weight for each target word.

    Both forms of ``--print-alignment`` are read. ``hard`` prints ``source-target`` pairs without EOS. ``soft`` prints
    for each target token, EOS last, the weights of all source tokens, EOS last, with commas between: of the source
    words (the first, where several have the highest weight) EOS is none.

    Raises:
        ValueError: malformed, or about more or fewer source words than ``source_length``.
    """
    fields = text.split()
    if not fields:
        return {}
    alignment: Alignment = {}
    if "-" in fields[0]:
        for i, j in map(parse_link, fields):
            if i >= source_length:
                raise ValueError(f"{i}-{j} is outside the source sentence, which has {source_length} words")
            alignment.setdefault(j, i)
        return alignment
    for j, field in enumerate(fields):
        weights = [parse_weight(weight) for weight in field.split(",")]
        if len(weights) != source_length + 1:
            raise ValueError(f"{len(weights)} weights for a source sentence of {source_length} words and EOS")
        if source_length:
            alignment[j] = max(range(source_length), key=lambda i: weights[i])
    alignment.pop(len(fields) - 1, None)  # EOS
    return alignment


def parse_weight(text: str) -> float:
    """One attention weight as fairseq prints it."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError(f"{text!r} is neither an attention weight nor an alignment pair")
    return float(text)


def replace_unks(
    words: Sequence[str], source: Sequence[str], alignment: Alignment, lexicon: Mapping[str, str], unk: str
) -> List[Replacement]:
    """What each UNK among ``words`` becomes.

    An UNK without an alignment takes the source word of the nearest word that has one, of two the left; if there is
    none, the UNK is left.
    """
    replacements = []
    for position, word in enumerate(words):
        if word != unk:
            continue
        nearest = min(alignment, key=lambda j: (abs(j - position), j), default=None)
        if nearest is None:
            replacements.append(Replacement(position, None, unk, LEFT, False))
            continue
        chosen = source[alignment[nearest]]
        rule = TABLE if chosen in lexicon else COPY
        replacements.append(
            Replacement(position, alignment[nearest], lexicon.get(chosen, chosen), rule, nearest != position)
        )
    return replacements


def post_process(
    sentence: Sentence, source: Sequence[str], lexicon: Mapping[str, str], unk: str, nbest: bool = False
) -> List[Hypothesis]:
    """The best hypothesis of a sentence, or all of them, after the replacement.

    Raises:
        UserError: a line is malformed, or an alignment outside the sentences.
    """
    hypotheses, scores, alignments = (sentence[label] for label in "HPA")
    results = []
    for k in range(len(hypotheses) if nbest else 1):
        score, tab, text = hypotheses[k].text.partition("\t")
        if not tab:
            raise UserError(f"{hypotheses[k].place}: no tab between score and text: output cut off?")
        words = text.split()
        # EOS has a score too; a mismatch comes from --remove-bpe, or from a generated <s>, which is not printed
        aligned = not scores or len(scores[k].text.split()) == len(words) + 1
        alignment = {}
        if aligned:
            try:
                alignment = parse_alignment(alignments[k].text, len(source))
            except ValueError as error:
                raise UserError(f"{alignments[k].place}: {error}") from error
            if max(alignment, default=-1) >= len(words):
                raise UserError(
                    f"{alignments[k].place}: target word {max(alignment)} (from 0) is outside the hypothesis, "
                    f"which has {len(words)} words"
                )
        replacements = replace_unks(words, source, alignment, lexicon, unk)
        for replacement in replacements:
            words[replacement.position] = replacement.word
        results.append(Hypothesis(score, words, replacements, aligned))
    return results


def run(options: argparse.Namespace) -> None:
    """Read, replace, write the hypotheses in the order of the source text, report on standard error."""
    if options.generated == options.source == "-":
        raise UserError("only one of GENERATED and --source can be standard input")
    lexicon = read_lexicon(options.lexicon) if options.lexicon else {}
    sentences = group_lines(read_lines(options.generated), options.generated)
    source = [line.split() for line in read_lines(options.source)]
    last = max(sentences)
    if last >= len(source):
        raise UserError(
            f"{options.source} ends after line {len(source)}, but {options.generated} has sentence {last}, "
            f"which is line {last + 1}"
        )

    results: Dict[int, List[Hypothesis]] = {}
    with write_whole(options.output) as output:
        for sample_id, words in enumerate(source):
            if sample_id in sentences:
                check_source(sample_id, sentences[sample_id]["S"][0], words, options.source, options.unk)
                hypotheses = post_process(sentences[sample_id], words, lexicon, options.unk, options.nbest)
                results[sample_id] = hypotheses
                if options.nbest:
                    output.writelines(f"{sample_id}\t{h.score}\t{' '.join(h.words)}\n" for h in hypotheses)
                else:
                    output.write(" ".join(hypotheses[0].words) + "\n")
            elif not options.nbest:
                output.write("\n")
    if options.detailed:
        sys.stderr.writelines(details(results, source))
    print(report(results, len(source)), file=sys.stderr)


def details(results: Mapping[int, Sequence[Hypothesis]], source: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each UNK: id, rank, position, source position, source word, word, rule."""
    for sample_id, hypotheses in results.items():
        for rank, hypothesis in enumerate(hypotheses):
            for position, chosen, word, rule, neighbour in hypothesis.replacements:
                place = ("", "") if chosen is None else (chosen, source[sample_id][chosen])
                fields = (sample_id, rank, position, *place, word, f"{rule}-neighbour" if neighbour else rule)
                yield "\t".join(map(str, fields)) + "\n"


def report(results: Mapping[int, Sequence[Hypothesis]], sentences: int) -> str:
    """One sentence: how many UNKs were replaced, and how."""
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


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "replace-unk",
        help="replace the UNKs in what fairseq-generate printed",
        description="Replace each UNK by the table's translation of the source word with the highest attention weight, "
        "or by that source word where the table has none. GENERATED is the output of fairseq-generate "
        "--print-alignment (hard or soft) on word-level data. Writes the best hypothesis of each source line, in the "
        "order of the source text; a sentence that fairseq skipped gives an empty line. What was replaced is "
        "reported on standard error.",
        epilog="example: fairseq-generate data-bin --path checkpoint_best.pt --print-alignment > generated.txt && "
        "fairseq-attnvariants replace-unk generated.txt --source test.en --lexicon lexicon.en-de.tsv "
        "--output test.out.de",
    )
    parser.add_argument("generated", metavar="GENERATED", help="output of fairseq-generate (-: standard input)")
    parser.add_argument(
        "--source", metavar="RAW", required=True, help="the source text as given to fairseq-preprocess, not UNK-ised"
    )
    parser.add_argument("--lexicon", metavar="TABLE", help="table of the verb lexicon; without it all UNKs are copies")
    parser.add_argument("--output", metavar="FILE", help="where the text goes (default: standard output)")
    parser.add_argument("--unk", metavar="WORD", default="<unk>", help="how UNK is printed (default: %(default)s)")
    parser.add_argument(
        "--nbest", action="store_true", help="write all hypotheses, as lines of id, score and text with tabs between"
    )
    parser.add_argument(
        "--detailed",
        action="store_true",
        help="list every UNK on standard error: id, rank, position, source position, source word, word, rule",
    )
    parser.set_defaults(run=run)

"""``fairseq-attnvariants compare``: translations of several systems side by side, as a page for a browser."""

import argparse
import difflib
import html
import re
from importlib.resources import files
from string import Template
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from sacrebleu.metrics import BLEU
from torch import Tensor

from .align import parse_soft
from .files import UserError, read_lines, write_whole
from .lexicon import parse_links
from .pieces import add_pieces_option, join_attention, join_tokens, word_numbers
from .score import metrics

FAINT = 0.05  # attention weights below are not shown


class Translation(NamedTuple):
    """What one system made of a sentence, in words."""

    words: List[str]
    attention: Optional[Tensor]  # T x S without EOS


class Output(NamedTuple):
    """What a file says about a sentence; bare text is but a translation."""

    source: Optional[List[str]]
    reference: Optional[List[str]]
    translation: Translation


def read_system(path: str, style: Optional[str] = None) -> Dict[int, Output]:
    """The sentences of a file, by their numbers from 0, with pieces joined as ``style`` says.

    Raises:
        UserError: the file cannot be read, or is cut off.
    """
    lines = list(read_lines(path))
    if any(re.match(r"H-[0-9]+\t", line) for line in lines):
        return read_generated(lines, path, style)
    return {k: Output(None, None, Translation(join_tokens(line.split(), style), None)) for k, line in enumerate(lines)}


def read_generated(lines: Iterable[str], path: str, style: Optional[str] = None) -> Dict[int, Output]:
    """The best hypothesis of each sentence, with its A- line if there is one; ``style`` joins pieces.

    Raises:
        UserError: a sentence lacks its S- or H- line, or its A- line does not go with them.
    """
    found: Dict[int, Dict[str, str]] = {}
    for line in lines:
        match = re.fullmatch(r"([STHPA])-([0-9]{1,12})(?:\t(.*))?", line, flags=re.DOTALL)
        if match:
            found.setdefault(int(match[2]), {}).setdefault(match[1], match[3] or "")  # the first is the best
    outputs = {}
    for number, labels in found.items():
        if not {"S", "H"} <= labels.keys():
            raise UserError(f"{path}: sentence {number} has no S- or no H- line: output cut off?")
        source, target = labels["S"].split(), labels["H"].partition("\t")[2].split()
        # a score for each token and EOS, unless fairseq itself has joined the pieces
        aligned = "A" in labels and len(labels.get("P", "").split()) == len(target) + 1
        try:
            attention = parse_attention(labels["A"], len(source), len(target)) if aligned else None
        except ValueError as error:
            raise UserError(f"{path}: A-{number}: {error}") from error
        if attention is not None:
            attention = join_attention(attention, word_numbers(source, style), word_numbers(target, style))
        outputs[number] = Output(
            join_tokens(source, style),
            join_tokens(labels["T"].split(), style) if "T" in labels else None,
            Translation(join_tokens(target, style), attention),
        )
    return outputs


def parse_attention(text: str, source: int, target: int) -> Tensor:
    """An A- line, hard (``i-j`` pairs) or soft (rows with EOS), as ``target x source`` weights.

    Raises:
        ValueError: malformed, or about other lengths.
    """
    weights = torch.zeros(target, source, dtype=torch.float64)
    if "," in text:
        soft = parse_soft(text)
        if soft.shape != (target + 1, source + 1):
            raise ValueError(f"{len(soft)} rows of {soft.size(1)} weights for {target} and {source} tokens, and EOS")
        return soft[:target, :source]
    for i, j in parse_links(text) if "-" in text else ():
        if i >= source or j >= target:
            raise ValueError(f"{i}-{j} is outside the sentences, which have {source} and {target} tokens")
        weights[j, i] = 1
    return weights


def matching(words: Sequence[str], reference: Sequence[str]) -> List[bool]:
    """Which words stand in the reference too, in the same order (difflib's longest matching blocks)."""
    marks = [False] * len(words)
    for block in difflib.SequenceMatcher(None, words, reference, autojunk=False).get_matching_blocks():
        marks[block.a : block.a + block.size] = [True] * block.size
    return marks


def words_html(translation: Translation, reference: Sequence[str]) -> str:
    """The words, those that are not the reference's as ``mark``, each with the source words it looked at."""
    spans = []
    for k, (word, right) in enumerate(zip(translation.words, matching(translation.words, reference), strict=True)):
        looked = ""
        if translation.attention is not None:
            row = enumerate(translation.attention[k].tolist())
            looked = " ".join(f"{i}:{weight:.2f}" for i, weight in row if weight >= FAINT)
        tag = "span" if right else "mark"
        attribute = f' data-a="{looked}"' if looked else ""
        spans.append(f"<{tag}{attribute}>{html.escape(word)}</{tag}>")
    return " ".join(spans)


def page(
    names: Sequence[str],
    numbers: Sequence[int],
    sources: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    systems: Sequence[Sequence[Translation]],
    tokenize: Optional[str] = None,
) -> str:
    """The page; ``systems`` are one list of translations for each name, in the order of the sentences."""
    measures = dict(metrics(tokenize, lowercase=False, beta=2))
    bleu, chrf = measures["BLEU"], measures["chrF2"]
    gold = [" ".join(words) for words in references]
    texts = [[" ".join(translation.words) for translation in system] for system in systems]
    rows = "".join(
        f"<tr><th>{html.escape(name)}<td>{bleu.corpus_score(text, [gold]).score:.2f}"
        f"<td>{chrf.corpus_score(text, [gold]).score:.2f}"
        for name, text in zip(names, texts, strict=True)
    )
    articles = []
    for k, number in enumerate(numbers):
        scores = [chrf.sentence_score(text[k], [gold[k]]).score for text in texts]
        source = " ".join(f"<span>{html.escape(word)}</span>" for word in sources[k])
        cells = "".join(
            f'<div><h3>{html.escape(name)} <small>{score:.1f}</small></h3><p dir="auto">'
            f"{words_html(system[k], references[k])}</p></div>"
            for name, score, system in zip(names, scores, systems, strict=True)
        )
        articles.append(
            f'<article data-key="{number} {len(sources[k])} {" ".join(f"{score:.4f}" for score in scores)}">'
            f'<h2>{number + 1}</h2><p class="source" dir="auto">{source}</p>'
            f'<p class="reference" dir="auto">{html.escape(gold[k])}</p><div class="systems">{cells}</div></article>\n'
        )
    keys = ["line", "words in the source", *(f"chrF of {name}" for name in names)]
    if len(names) > 1:
        keys += [f"chrF of {name} over {names[0]}" for name in names[1:]]
    options = "".join(f'<option value="{k}">{html.escape(key)}' for k, key in enumerate(keys))
    signatures = f"BLEU {bleu.get_signature()}, chrF {chrf.get_signature()}"
    template = Template(files(__package__).joinpath("compare.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(" · ".join(names)),
        rows=rows,
        options=options,
        signatures=html.escape(signatures),
        articles="".join(articles),
    )


def run(options: argparse.Namespace) -> None:
    """Read, put side by side, write the page."""
    names = options.name or options.systems
    if len(names) != len(options.systems):
        raise UserError(f"{len(names)} --name for {len(options.systems)} systems")
    systems = [(path, read_system(path, options.remove_bpe)) for path in options.systems]
    source, reference = (
        {k: join_tokens(line.split(), options.remove_bpe) for k, line in enumerate(read_lines(path))}
        if path
        else printed(side, systems)
        for side, path in (("source", options.source), ("reference", options.reference))
    )
    for path, found in [("the source", source.keys()), *((path, outputs.keys()) for path, outputs in systems)]:
        if missing := sorted(reference.keys() ^ found):
            raise UserError(
                f"{path} and the reference do not have the same sentences: line {missing[0] + 1} is in only one"
            )
    if not reference:
        raise UserError(f"{options.systems[0]} is empty")
    numbers = sorted(reference)
    with write_whole(options.output) as stream:
        content = page(
            names,
            numbers,
            [source[k] for k in numbers],
            [reference[k] for k in numbers],
            [[_fitting(outputs[k].translation, source[k]) for k in numbers] for _, outputs in systems],
            options.tokenize,
        )
        stream.write(content)


def printed(side: str, systems: Sequence[Tuple[str, Dict[int, Output]]]) -> Dict[int, List[str]]:
    """The ``source`` or ``reference`` as fairseq-generate printed it, the same for every system.

    Raises:
        UserError: no system has it, or two have different ones.
    """
    result: Dict[int, List[str]] = {}
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
    fits = attention is not None and attention.size(1) == len(source)
    return translation if fits else translation._replace(attention=None)


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "compare",
        help="a page with the translations of several systems side by side",
        description="Write one HTML page, which needs no network: source, reference and each system's translation, "
        "with the words that are not the reference's marked, sorted by sentence chrF. SYSTEM is what fairseq-generate "
        "printed, or bare text with --source and --reference. Where fairseq-generate ran with --print-alignment (hard "
        "or soft), pointing at a word shows the source words it looked at.",
        epilog="example: fairseq-attnvariants compare base.txt ours.txt --name base --name ours --remove-bpe "
        "--output compare.html",
    )
    parser.add_argument("systems", metavar="SYSTEM", nargs="+", help="output of fairseq-generate, or bare text")
    parser.add_argument("--source", metavar="FILE", help="the source text (default: what fairseq-generate printed)")
    parser.add_argument("--reference", metavar="FILE", help="the reference (default: what fairseq-generate printed)")
    add_pieces_option(parser)
    parser.add_argument("--name", metavar="TEXT", action="append", help="of each system (default: its file)")
    parser.add_argument("--tokenize", metavar="NAME", choices=sorted(BLEU.TOKENIZERS), help="sacrebleu's, for BLEU")
    parser.add_argument("--output", metavar="FILE", required=True, help="where the page goes (-: standard output)")
    parser.set_defaults(run=run)

"""``fairseq-attnvariants attribute``: what each source word adds to each target word, and whether attention agrees."""

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..options import (
    DarkOption,
    SeveralModels,
    SubwordOptions,
    TargetOptions,
    at_least,
    length,
    numeric,
    option,
    positive,
    switch,
)
from ..scores.seeds import estimate
from ..shown.heatmaps import WIDTH, Panel, draw, spaces_shown
from ..shown.pages import template
from ..shown.pictures import check_drawn, picture
from ..shown.tables import Row, TableOptions, tables
from ..text.files import UserError, optional, write_whole
from ..text.subwords import join_attention, join_sentence, summed

if TYPE_CHECKING:
    from ..systems.attribution import Attribution

METHODS = {"integrated-gradients": "Integrated gradients", "input-x-gradient": "Input times gradient"}


@dataclass
class Options(TableOptions, DarkOption, SubwordOptions, TargetOptions, SeveralModels):
    """Attribute the log-probability of each target word to the source words, and compare with attention. The
    attributions are integrated gradients or input times gradient. Kendall's tau compares their sizes with the attention
    weights: for each target word without EOS, as a mean over the sentence, and over sentences with its 95% interval.
    The target is the reference, if you give one, or each model's own translation. Every autoregressive model of fairseq
    with source embeddings works; one without attention has no tau. The gap is what the integrated gradients lack of the
    whole, as a mean over target tokens, and then over sentences; more --steps reduce it.

    example: fairseq-attnvariants attribute data-bin --path base.pt --path ours.pt --name base --name ours --source
    bpe.test.en --reference bpe.test.de --remove-bpe --line 17 --plot attributions.pdf --html attributions.html

    Args:
        path: the model; give it several times for several models
        line: line of the text, from 1 (default: all)
        method: attribution method
        steps: gradients between 0 and the embeddings (default: 32)
        values: write attributions and attention, one JSON object per sentence
        html: write a page with the source words shaded
        plot: draw the sentence of --line: .png, .svg or .pdf
        width: start a new row of heat maps beyond this width (default: 10)
        scale_rows: scale each target word's row to the largest
    """

    line: int | None = numeric(type=positive)
    method: str = option(None, choices=METHODS, default="integrated-gradients")
    steps: int | None = numeric(type=at_least(1, most=1000))  # their places are computed from an N x N matrix
    values: str | None = option()
    html: str | None = option()
    plot: str | None = option()
    width: float | None = numeric(metavar="INCHES", type=length)
    scale_rows: bool = switch()


class InWords(NamedTuple):
    """The attributions of one sentence, with EOS."""

    line: int  # from 1
    source: list[str]
    target: list[str]
    values: np.ndarray  # T x S
    attention: np.ndarray | None  # T x S
    gap: float  # how far the attributions of a target token are from complete, as a mean over the tokens
    tau: float | None

    def rows(self) -> Iterator[tuple[str, list[tuple[str, float, float]]]]:
        """Yield each target word with the source words, their attributions, and their sizes relative to the largest."""
        for word, values in zip(spaces_shown(self.target), self.values.tolist(), strict=True):
            largest = max(map(abs, values)) or 1
            yield word, [(one, value, abs(value) / largest) for one, value in zip(spaces_shown(self.source), values)]


def in_words(found: "Attribution", style: str | None) -> InWords:
    """Join attributions of subwords to words by sums on both sides, since log-probabilities add up."""
    source, columns = join_sentence(found.source, style)
    target, rows = join_sentence(found.target, style)
    values = summed(summed(found.values, columns).T, rows).T
    attention = None if found.attention is None else join_attention(found.attention, columns, rows)
    gap = float(np.abs(found.values.sum(1) - found.difference).mean())
    tau = None if attention is None else agreement(values[:-1, :-1], attention[:-1, :-1])
    return InWords(found.number + 1, source, target, values, attention, gap, tau)


def agreement(values: np.ndarray, attention: np.ndarray) -> float | None:
    """Return Kendall's τ between sizes of attributions and attention weights, both ``T x S``, as a mean over targets.

    A target word does not count if its sizes or its weights are all equal. The result is None if no word counts.
    """
    from scipy.stats import kendalltau

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant rows
        taus = [float(kendalltau(*rows)[0]) for rows in zip(np.abs(values), attention, strict=True)]
    counted = [tau for tau in taus if not np.isnan(tau)]
    return mean(counted) if counted else None


def summary(name: str, sentences: Sequence[InWords], complete: bool) -> Row:
    """Return a row: system, sentences, the mean of τ over sentences, half of its 95% interval, and the mean gap."""
    taus = [sentence.tau for sentence in sentences if sentence.tau is not None]
    found = estimate(taus) if taus else None
    gap = mean(sentence.gap for sentence in sentences) if complete else None
    return name, len(sentences), found and found.mean, found and found.margin, gap


def shares(values: np.ndarray) -> np.ndarray:
    """Return the sizes of each row divided by their sum, like attention weights, or 0 if the sum is 0."""
    sizes = np.abs(values)
    total = sizes.sum(1, keepdims=True)
    return np.divide(sizes, total, out=np.zeros_like(sizes), where=total > 0)


def panels(name: str, sentence: InWords, method: str) -> list[Panel]:
    """Return heat maps of the sentence: attention, if there is any, and the shares of the attributions."""
    source, target = spaces_shown(sentence.source), spaces_shown(sentence.target)
    found = [Panel(f"{name}, {METHODS[method].lower()}", source, target, shares(sentence.values))]
    if sentence.attention is not None:
        found.insert(0, Panel(f"{name}, attention", source, target, sentence.attention))
    return found


def record(name: str, sentence: InWords) -> dict[str, Any]:
    """Return the object that ``--values`` writes for a sentence."""
    numbers = dict(attribution=sentence.values, attention=sentence.attention)
    matrices = {key: None if value is None else np.round(value, 6).tolist() for key, value in numbers.items()}
    words = dict(system=name, line=sentence.line, source=sentence.source, target=sentence.target)
    return {**words, **matrices, "tau": sentence.tau}


def run(options: Options) -> None:
    """Decode the text, compute attributions, print the table, and write the other files."""
    if options.plot and options.line is None:
        raise UserError("--plot draws one sentence: give its --line")
    complete = options.method == "integrated-gradients"
    if options.steps is not None and not complete:
        raise UserError("--steps needs --method integrated-gradients")
    check_drawn(options, "scale_rows", "width")
    given, shown = options.given(), options.names(options.path)
    with (
        tables(options.json, agreement=options.table) as write,
        optional(write_whole, options.values) as values,
        optional(write_whole, options.html) as browser,
        optional(picture, options.plot, options.dark) as save,
    ):
        from ..systems.attribution import INPUT_X_GRADIENT, attributions, integrated
        from ..systems.model import decoded

        nodes = integrated(options.steps or 32) if complete else INPUT_X_GRADIENT
        systems: list[list[InWords]] = []
        for system, text in decoded(options, given, options.line):
            found = [in_words(one, options.remove_bpe) for one in attributions(system, text, nodes, options)]
            systems.append(sorted(found, key=lambda sentence: sentence.line))
        if values:
            for name, sentences in zip(shown, systems, strict=True):
                values.writelines(json.dumps(record(name, one), ensure_ascii=False) + "\n" for one in sentences)
        if browser:
            articles = list(zip(*systems, strict=True))  # every system has the same sentences
            browser.write(
                template("attribute.html").render(names=shown, method=METHODS[options.method], articles=articles)
            )
        if save:
            pairs = zip(shown, systems, strict=True)
            heat_maps = [panel for name, [one] in pairs for panel in panels(name, one, options.method)]
            save(draw(heat_maps, options.width or WIDTH, options.scale_rows, "attention weight, share of attributions"))
        rows = [summary(name, sentences, complete) for name, sentences in zip(shown, systems, strict=True)]
        headers = ("system", "sentences", "Kendall's tau", "95% ±", "gap")
        write("agreement", headers, rows, {"Kendall's tau": 3, "95% ±": 3, "gap": 4})

"""``fairseq-attnvariants gates``: the values of the papers' gates, by word or by tag.

Adaptive weighting (Li et al.): an adaptive GRU has ``g_t`` (eq. 13), the weight of the history against the input. The
input is the source word in the encoder, in each direction; in the decoder it is the previous word before attention and
the context after it. The adaptive output has ``α_s``, ``α_y`` and ``α_c`` (eq. 18-21) for each target word: the
weights of the state, the previous word and the context. A context gate (Tu et al. 2017) has ``z``: the weight of the
context, or, with ``--context-gate target``, the weight of the rest. All are averaged over dimensions.

CondDec (Feng et al. §5): the share of the condition that remains after each target word, ``||sd_i|| / ||sd_0||``.

All are averaged over the subwords of a word.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..options import DarkOption, OneModel, SubwordOptions, TargetOptions, numeric, option, positive
from ..shown.pictures import check_drawn, finish, picture, plain, short
from ..shown.tables import JsonOption, Row, tables
from ..text.alignments import by_frequency
from ..text.files import UserError, optional, write_whole
from ..text.subwords import join_sentence, join_values
from ..text.tagged import read_tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..systems.gated import Gated

SIDES = ("source", "target")
SYMBOLS = {
    "alpha_s": "α$_s$ state",
    "alpha_y": "α$_y$ previous word",
    "alpha_c": "α$_c$ context",
    "condition left": "|sd$_i$| / |sd$_0$|",
}
ALL, EOS = "all words", "end of sentence"  # no word or tag has spaces


@dataclass
class Options(JsonOption, DarkOption, SubwordOptions, TargetOptions, OneModel):
    """Print how a model's gates weigh their inputs, in percent. Adaptive GRU (g): the weight of the history against the
    input; the encoder reads source words, forward and backward, and the decoder the previous word before attention and
    the context after it. Adaptive readout: the weights of state, previous word and context (alpha_s, alpha_y, alpha_c).
    Context gate (z): the weight of the context, or, with --context-gate target, the weight of the rest. CondDec: the
    share of the condition, by norm, that remains after each target word. All are means over dimensions: over all words,
    over all ends of sentences, and by word or tag, the most frequent first. The target is the reference, if you give
    one, or the model's own translation.

    example: fairseq-attnvariants gates data-bin --path checkpoint_best.pt --source bpe.test.en --reference bpe.test.de
    --remove-bpe --source-tags test.pos.en --source-table table4.csv --plot 17.pdf --line 17

    Args:
        path: the model
        source_tags: a tag for each source word, without EOS
        target_tags: a tag for each target word, without EOS
        limit: words or tags in a table; 0 for all
        source_table: also write the source table, as .csv, .json, .tex or .md; in .csv a ' precedes text that a
            spreadsheet would take for a formula, such as -LRB-
        target_table: also write the target table, likewise
        values: write each word's gates, one JSON object per sentence
        plot: draw the gates of one sentence as .png, .svg or .pdf
        line: line to draw, from 1 (default: 1)
    """

    source_tags: str | None = option()
    target_tags: str | None = option()
    limit: int = numeric(20)
    source_table: str | None = option()
    target_table: str | None = option()
    values: str | None = option()
    plot: str | None = option()
    line: int | None = numeric(type=positive)


def in_words(pair: "Gated", style: str | None) -> "Gated":
    """Join gates of subwords to words by the means over the subwords of a word."""
    joined = {side: join_sentence(getattr(pair, side), style) for side in SIDES}
    values = {side: join_values(gates, joined[side][1]) for side, gates in pair.values.items()}
    return pair._replace(source=joined["source"][0], target=joined["target"][0], values=values)


def averages(labels: Sequence[Sequence[str]], gates: Sequence[np.ndarray], most: int = 0) -> list[Row]:
    """Return rows of label, frequency and means: over all words, over every EOS, and over the words of each label.

    Args:
        labels: labels of each sentence's words, without EOS: the words themselves, or tags.
        gates: gates of each sentence's words, EOS last, ``gates x words``.
        most: the number of labels, :func:`by_frequency`; 0 for all.
    """
    values = np.concatenate(gates, axis=1)
    places: dict[str, list[int]] = defaultdict(list)
    for place, label in enumerate(label for sentence in labels for label in (*sentence, EOS)):
        places[label].append(place)
    ends = places.pop(EOS)
    everywhere = sorted(set(range(values.shape[1])) - set(ends))
    ordered = by_frequency({label: len(group) for label, group in places.items()}, most)
    groups = [(ALL, everywhere), (EOS, ends), *((label, places[label]) for label in ordered)]
    return [(label, len(group), *values[:, group].mean(axis=1).tolist()) for label, group in groups if group]


def draw(panels: Sequence[tuple[Sequence[str], Sequence[str], np.ndarray]]) -> "Figure":
    """Draw gates over words, in panels below each other. A panel has words, names of gates, and ``gates x words``."""
    from matplotlib.figure import Figure

    panels = [(short(words), names, gates) for words, names, gates in panels]
    style = plain(*(word for words, _, _ in panels for word in words), rotation=90, fontsize=9)
    longest = max(len(words) for words, _, _ in panels)
    height = sum(2.2 + 0.08 * max(map(len, words)) for words, _, _ in panels)
    figure = Figure(figsize=(2.5 + 0.3 * longest, height), layout="constrained")
    for axes, (words, names, gates) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for name, values in zip(names, gates.tolist(), strict=True):
            axes.plot(values, "o-", markersize=4, label=SYMBOLS.get(name, name))
        axes.set_xticks(range(len(words)), words, **style)
        axes.set_xlim(-0.5, longest - 0.5)
        axes.set_ylabel("%")
        axes.set_ylim(0, 100)
        finish(axes, grid="y")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def record(sentence: "Gated", names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the object that ``--values`` writes for a sentence; ``names`` are the names of the gates of each side."""
    written: dict[str, Any] = {"line": sentence.number + 1}
    for side, own in names.items():
        written[side] = getattr(sentence, side)
        for name, values in zip(own, sentence.values[side].tolist(), strict=True):
            written[name] = [round(value, 4) for value in values]
    return written


def check_sides(options: Options, sides: Collection[str]) -> None:
    """Refuse options for the source or the target if the model has no gates there."""
    from ..systems.gated import GIVEN_BY

    for side in set(SIDES) - set(sides):
        for what in ("table", "tags"):
            if getattr(options, f"{side}_{what}"):
                raise UserError(f"--{side}-{what}: the model of {options.path} has no {GIVEN_BY[side]}")


def run(options: Options) -> None:
    """Decode the text, average the gates, print the tables, and draw."""
    check_drawn(options, "line")
    given = options.given()
    with (
        tables(options.json, source=options.source_table, target=options.target_table) as write,
        optional(write_whole, options.values) as values,
        optional(picture, options.plot, options.dark) as save,
    ):
        from ..systems.gated import gate_names, gates_of, read_gates
        from ..systems.model import generate, load, read_text

        system = load(options.path, options.data, options.cpu)
        found = gates_of(system)
        names = gate_names(found)
        check_sides(options, names)
        text = read_text(options, system, reference=given)
        chosen = 0 if options.line is None else options.line - 1
        text.select(chosen)  # refuses a line that does not exist
        if not given:
            text = generate(system, text, options)

        pairs = sorted(read_gates(system, found, text, options), key=lambda pair: pair.number)
        sentences = [in_words(pair, options.remove_bpe) for pair in pairs]
        for side in names:
            kind, labels = "word", [getattr(sentence, side)[:-1] for sentence in sentences]
            if path := getattr(options, f"{side}_tags"):
                kind, labels = "tag", read_tags(path, labels, f"the {side} of {text.name}")
            headers = (f"{side} {kind}", "frequency", *(f"{name} %" for name in names[side]))
            write(side, headers, averages(labels, [sentence.values[side] for sentence in sentences], options.limit))
        if values:
            values.writelines(json.dumps(record(one, names), ensure_ascii=False) + "\n" for one in sentences)
        if save:
            drawn = sentences[chosen]
            save(draw([(getattr(drawn, side), names[side], drawn.values[side]) for side in names]))

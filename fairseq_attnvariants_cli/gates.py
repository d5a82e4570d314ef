"""``fairseq-attnvariants gates``: what adaptive weighting (Li et al.) weighs, by word or by tag.

The encoder's adaptive GRU has ``g_t`` (eq. 13) for each source word and direction: how much the history counts beside
the word. The adaptive output has ``α_s``, ``α_y`` and ``α_c`` (eq. 18-21) for each target word: how much the state, the
previous word and the context count. All are averaged over dimensions, and over the pieces of a word.
"""

import argparse
import contextlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, TextIO, Tuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from fairseq_attnvariants.nn.layers import AdaptiveGRU
from fairseq_attnvariants.nn.readout import AdaptiveWeighting

from .files import UserError, write_whole
from .model import (
    Limits,
    System,
    Text,
    add_generation_options,
    add_model_options,
    generate,
    limits,
    load,
    read_text,
    run_batches,
    symbols,
)
from .pictures import font_families, picture
from .pieces import add_pieces_option, join_sentence, join_values
from .tables import Row, table
from .tagged import read_tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = {"source": "adaptive GRU in the encoder", "target": "adaptive output"}
WEIGHTS = ("alpha_s", "alpha_y", "alpha_c")
SYMBOLS = {"alpha_s": "α$_s$ state", "alpha_y": "α$_y$ previous word", "alpha_c": "α$_c$ context"}
ALL, EOS = "all words", "end of sentence"  # no word or tag has spaces


def adaptive_parts(system: System) -> Dict[str, Any]:
    """The modules of the model that have gates, by the side of the sentence whose words have them.

    Raises:
        UserError: there are none, or the system is an ensemble.
    """
    kinds = {"source": (system.model.encoder, AdaptiveGRU), "target": (system.model.decoder, AdaptiveWeighting)}
    found = {
        side: module for side, (half, kind) in kinds.items() for module in half.modules() if isinstance(module, kind)
    }
    if not found:
        raise UserError(f"{system.path}: the model has neither an {' nor an '.join(SIDES.values())}")
    return found


def gate_names(parts: Dict[str, Any]) -> Dict[str, Sequence[str]]:
    """What :func:`read_gates` gives for each side; a stacked encoder's layers are counted from the lowest."""
    names: Dict[str, Sequence[str]] = {"source": ("g forward", "g backward"), "target": WEIGHTS}
    if "source" in parts and (layers := len(parts["source"].cells)) > 1:
        names["source"] = [f"{name}, layer {layer}" for layer in range(1, layers + 1) for name in names["source"]]
    return {side: names[side] for side in parts}


def tokens_of(system: System, text: Text, side: str) -> List[List[str]]:
    """One side of each sentence, EOS last."""
    dictionary = getattr(system.task, f"{side}_dictionary")
    return [symbols(dictionary, sentence.item[side], getattr(sentence, f"{side}_line")) for sentence in text.sentences]


def read_gates(
    system: System, parts: Dict[str, Any], text: Text, limit: Limits
) -> Iterator[Tuple[int, Dict[str, Tensor]]]:
    """Forced decoding of the targets, in the order of :func:`~.model.run_batches`.

    Yields:
        the number of a sentence, from 0, and for each side the gates of its tokens, ``gates x tokens``, in percent.
    """
    caught: Dict[str, List[Tensor]] = defaultdict(list)  # gates x B x tokens x width, of a batch piece by piece

    def catch_shares(layers: AdaptiveGRU, arguments: Tuple[PackedSequence], _: Any) -> None:
        inputs, _ = pad_packed_sequence(arguments[0], batch_first=True)  # sources of one length: none is padded
        caught["source"].append(layers.shares(inputs))

    def catch_weights(_: AdaptiveWeighting, arguments: Any, output: Tensor) -> None:
        caught["target"].append(output)

    hooks = {"source": catch_shares, "target": catch_weights}
    items = {sentence.item["id"]: sentence.item for sentence in text.sentences}
    with contextlib.ExitStack() as hooked:
        for side, module in parts.items():
            hooked.enter_context(module.register_forward_hook(hooks[side]))
        for sample, _ in run_batches(system, text, limit):
            means = {side: 100 * torch.cat(gates, dim=2).mean(-1).cpu() for side, gates in caught.items()}
            caught.clear()
            for row, number in enumerate(sample["id"].tolist()):
                yield number, {side: mean[:, row, : len(items[number][side])] for side, mean in means.items()}


def averages(labels: Sequence[Sequence[str]], gates: Sequence[Tensor], most: int = 0) -> List[Row]:
    """Means over all words, over every EOS, and over the words of each label: label, frequency, means.

    Args:
        labels: of each sentence's words, without EOS: the words themselves, or tags.
        gates: of each sentence's words, EOS last, ``gates x words``.
        most: how many labels, the most frequent first, of equally frequent ones in alphabetical order; 0 for all.
    """
    columns = [column for sentence in gates for column in sentence.double().t()]
    places: Dict[str, List[int]] = defaultdict(list)
    for place, label in enumerate(label for sentence in labels for label in (*sentence, EOS)):
        places[label].append(place)
    ends = places.pop(EOS)
    everywhere = sorted(set(range(len(columns))) - set(ends))
    ordered = sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
    groups = [(ALL, everywhere), (EOS, ends), *ordered[: most or None]]
    values = torch.stack(columns)
    return [(label, len(group), *values[group].mean(0).tolist()) for label, group in groups if group]


def draw(panels: Sequence[Tuple[Sequence[str], Sequence[str], Tensor]]) -> "Figure":
    """Gates over a sentence's words, one panel above the other: words, names of the gates, ``gates x words``."""
    from matplotlib.figure import Figure

    families = font_families("".join("".join(words) for words, _, _ in panels))
    longest = max(len(words) for words, _, _ in panels)
    height = sum(2.2 + 0.08 * max(map(len, words)) for words, _, _ in panels)
    figure = Figure(figsize=(2.5 + 0.3 * longest, height), layout="constrained")
    for axes, (words, names, gates) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for name, values in zip(names, gates.tolist(), strict=True):
            axes.plot(values, "o-", markersize=4, label=SYMBOLS.get(name, name))
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=9, fontfamily=families, parse_math=False)
        axes.set_xlim(-0.5, longest - 0.5)
        axes.set_ylabel("%")
        axes.set_ylim(0, 100)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def write_values(
    stream: TextIO,
    names: Dict[str, Sequence[str]],
    words: Dict[str, List[List[str]]],
    gates: Dict[str, List[Tensor]],
) -> None:
    """A JSON object for each sentence: the number of its line, its words, EOS last, and their gates."""
    for n in range(len(next(iter(words.values())))):
        record: Dict[str, Any] = {"line": n + 1}
        for side in names:
            record[side] = words[side][n]
            for name, row in zip(names[side], gates[side][n].tolist(), strict=True):
                record[name] = [round(value, 4) for value in row]
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def check_sides(options: argparse.Namespace, parts: Dict[str, Any]) -> None:
    """Refuse options for a side that the model has no gates on."""
    for side in SIDES.keys() - parts.keys():
        for option in ("table", "tags"):
            if getattr(options, f"{side}_{option}"):
                raise UserError(f"--{side}-{option}: the model of {options.path} has no {SIDES[side]}")


def run(options: argparse.Namespace) -> None:
    """Decode, average, print the tables, draw."""
    if options.limit < 0:
        raise UserError("--limit must not be negative")
    if options.reference and options.generate:
        raise UserError("give --reference or --generate, not both")
    with contextlib.ExitStack() as outputs:
        tables = {side: outputs.enter_context(table(getattr(options, f"{side}_table"))) for side in SIDES}
        values = outputs.enter_context(write_whole(options.values)) if options.values else None
        save = outputs.enter_context(picture(options.picture)) if options.picture else None
        system = load(options.path, options.data, options.cpu)
        parts = adaptive_parts(system)
        check_sides(options, parts)
        forced = not options.generate and (options.source is None or options.reference is not None)
        text = read_text(options, system, reference=forced)
        chosen = options.line - 1
        text.select(chosen)  # refuses what is not there
        if not forced:
            text = generate(system, text, options)

        joined = {
            side: [join_sentence(tokens, options.remove_bpe) for tokens in tokens_of(system, text, side)]
            for side in parts
        }
        words = {side: [sentence for sentence, _ in several] for side, several in joined.items()}
        labels = {}
        for side in parts:
            labels[side] = "word", [sentence[:-1] for sentence in words[side]]
            if path := getattr(options, f"{side}_tags"):
                labels[side] = "tag", read_tags(path, labels[side][1], f"the {side} of {text.name}")
        pieces = dict(read_gates(system, parts, text, limits(options)))
        gates = {
            side: [join_values(pieces[n][side], columns) for n, (_, columns) in enumerate(several)]
            for side, several in joined.items()
        }
        names = gate_names(parts)
        for k, (side, (kind, several)) in enumerate(labels.items()):
            if k:
                print()
            headers = (f"{side} {kind}", "frequency", *(f"{name} %" for name in names[side]))
            tables[side](headers, averages(several, gates[side], options.limit))
        if values:
            write_values(values, names, words, gates)
        if save:
            save(draw([(words[side][chosen], names[side], gates[side][chosen]) for side in parts]))


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "gates",
        help="what adaptive weighting weighs, by word or by tag",
        description="Print how much, in percent, a model with adaptive weighting lets the history count beside each "
        "source word (g_t of the encoder, forward and backward), and the state, the previous word and the context for "
        "each target word (alpha_s, alpha_y and alpha_c of the readout): means over dimensions, over all words, over "
        "every end of a sentence, and by word or by tag, the most frequent first. The target is the reference, if "
        "there is one, or the model's own translation.",
        epilog="example: fairseq-attnvariants gates data-bin --path checkpoint_best.pt --source bpe.test.en "
        "--reference bpe.test.de --remove-bpe --source-tags test.pos.en --source-table table4.csv --picture 17.pdf "
        "--line 17",
    )
    add_model_options(parser, ensemble=False)
    parser.add_argument("--generate", action="store_true", help="let the model translate, even from --gen-subset")
    add_generation_options(parser)
    add_pieces_option(parser)
    for side in SIDES:
        parser.add_argument(f"--{side}-tags", metavar="FILE", help=f"a tag for each {side} word, EOS left out")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=20, help="words or tags in a table, 0 for all (default: %(default)s)"
    )
    for side in SIDES:
        parser.add_argument(f"--{side}-table", metavar="FILE", help=f"write the {side} side's as .csv or .json")
    parser.add_argument("--values", metavar="FILE", help="write each word's gates, a JSON object for each sentence")
    parser.add_argument("--picture", metavar="FILE", help="draw the gates of one sentence as .png, .svg or .pdf")
    parser.add_argument(
        "--line", metavar="N", type=int, default=1, help="of the picture, from 1 (default: %(default)s)"
    )
    parser.set_defaults(run=run)

"""Print the tables of RESULTS.md from seeds.csv, words.csv, gates.csv and ../findings.csv: ``compare.py``.

``comparisons.csv`` has the comparisons of PLAN.md: groups A1 to A6, and words. If there are several systems, with
semicolons between them, their mean counts. If a baseline has several columns, the largest figure of each seed counts.
A row of the findings counts once each of its comparisons has three seeds.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from fairseq_attnvariants_cli.scores.seeds import FEWEST, verdicts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from findings import comparison, comparisons_of, ends, read, significant  # noqa: E402

SCORES = "BLEU", "chrF2", "TER", "AER", "words translated twice, %", "ends on the source's end, %"
FURTHER = "BLEU, test_2017_flickr", "BLEU, test_2017_mscoco"
ENCODER = [f"source, {tag}, g {way}" for way in ("forward", "backward") for tag in ("content", "function", "all words")]
READOUT = [f"target, all words, alpha_{kind}" for kind in "syc"]
READOUT += [f"target, {tag}, alpha_c" for tag in ("content", "function", "end of sentence")]
WORDS = [f"words, {score}{end}" for score in ("BLEU", "TER", "1-gram precision") for end in ("", ", UNKs replaced")]


def measured():
    """Return the figures, as text, by system and column, then by seed.

    A column of gates is ``side, tag, gate``, one of words.csv ``words, column``.
    """
    figures = defaultdict(dict)
    for file, kind in (("seeds.csv", ""), ("words.csv", "words, ")):
        for line in read(HERE / file):
            for column, figure in line.items():
                if figure:  # collect.py leaves a figure empty if there is no such test set
                    figures[line["system"], kind + column][int(line["seed"])] = figure
    for line in read(HERE / "gates.csv"):
        column = f"{line['side']}, {line['tag']}, {line['gate']}"
        figures[line["system"], column][int(line["seed"])] = line["%"]
    return figures


def by_seed(figures, systems, column):
    """Return the figures of a column by seed: the means of all systems, which have semicolons between them."""
    found = [figures.get((system, column), {}) for system in systems.split("; ")]
    if len(found) == 1:
        return found[0]
    seeds = sorted(set(found[0]).intersection(*found))
    return {seed: f"{statistics.mean(float(each[seed]) for each in found):.2f}" for seed in seeds}


def compared():
    """Return the lines of comparisons.csv whose row counts, each with the figures of system and baseline by seed."""
    figures, waiting = measured(), set()
    found = []
    for line in read(HERE / "comparisons.csv"):
        own = by_seed(figures, line["system"], line["column"])
        columns = line["baseline_column"].split("; ")
        others = [by_seed(figures, line["baseline"], column) for column in columns]
        if not line["baseline"]:
            others = [dict.fromkeys(own, line["baseline_column"])]
        seeds = sorted(set(own).intersection(*others))
        if len(seeds) < FEWEST:
            waiting.add(line["row"])
        largest = [max((other[seed] for other in others), key=float) for seed in seeds]
        found.append((line, [own[seed] for seed in seeds], largest))
    return [each for each in found if each[0]["row"] not in waiting]


def judged():
    """Return each line of ``compared`` with comparison and verdict; Holm's p is over all findings' comparisons."""
    found = compared()
    rows = {line["row"] for line, *_ in found}
    family = [comparison(own, others, line["better"], line["margin"]) for line, own, others in found]
    for row in read(HERE.parent / "findings.csv"):
        family += [] if row["id"] in rows else comparisons_of(row)
    return [*zip(found, family, verdicts(family))]  # zip drops the comparisons of other rows, which come last


def mean_and_deviation(figures):
    """Format the mean and the standard deviation with as many decimals as the figures have."""
    values = [*map(float, figures)]
    decimals = len(figures[0].partition(".")[2])
    deviation = f" ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{decimals}f}{deviation}"


def systems(columns, heads=None):
    """Yield the table's rows: means and standard deviations of the systems that have figures in all columns."""
    figures = measured()
    yield ["system", "seeds", *(heads or columns)]
    for system in dict.fromkeys(system for system, _ in figures):
        cells = [[*figures.get((system, column), {}).values()] for column in columns]
        if all(cells):
            yield [f"`{system}`", str(len(cells[0])), *map(mean_and_deviation, cells)]


def comparisons():
    """Yield the rows of the table of comparisons."""
    yield ["row", "comparison", "measure", "margin", "seeds", "difference", "Holm's p", "verdict"]
    for (line, own, _), (gain, *_), (word, p) in judged():
        decimals = len(own[0].partition(".")[2])
        difference = "{} ({} to {})".format(*ends(gain, line["better"], decimals))
        named = line["row"], line["name"], line["measure"], line["margin"], str(gain.n)
        yield [*named, difference, significant(p), word]


def main():
    """Print the tables."""
    gates = [column.partition(", ")[2] for column in ENCODER]
    weights = [column.partition(", ")[2].replace("alpha", "α") for column in READOUT]
    tables = [systems(SCORES), systems(FURTHER), systems(ENCODER, gates), systems(READOUT, weights)]
    words = [column.removeprefix("words, ") for column in WORDS]
    for table in (*tables, systems(WORDS, words), comparisons()):
        head, *rows = table
        print(*(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)), "", sep="\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()

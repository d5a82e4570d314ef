"""Collect the figures of measured runs in CSV files: ``collect.py OUT [FOLDER]``.

The script reads ``OUT/SYSTEM/SEED/measured/``, which measure.sh or words.sh wrote. It writes ``FOLDER/seeds.csv`` with
one line per run, and ``FOLDER/gates.csv`` with the means of the gates by tag. Runs of words.sh are in
``FOLDER/words.csv``. FOLDER is the script's folder by default. Lines of other runs stay in the files.
"""

import argparse
import csv
import json
import re
import statistics
import sys
from pathlib import Path

SCORES = "BLEU", "chrF2", "TER", "1-gram precision"
LENGTHS = "0 to 8", "9 to 12", "13 to 15", "16 to 18", "over 18"  # number of source words
FURTHER = "test_2017_flickr", "test_2017_mscoco"
# patterns in train.log
LOSS = re.compile(r"valid on .* nll_loss ([\d.]+)")
SPEED = re.compile(r"train_inner .* wps=([\d.]+)")


def read(path):
    """Return the content of a JSON file."""
    return json.loads(path.read_text())


def scores(scored):
    """Return the scores of a test set by name, from the output of ``score --json``."""
    return {row["measure"]: row["score"] for row in scored["scores"]}


def figures(run, scored):
    """Return the figures of a run by column of ``seeds.csv``; ``scored`` is its ``score.json``."""
    measured = run / "measured"
    found = scores(scored)
    row = {name: f"{found[name]:.2f}" for name in SCORES}
    aer, saer = (f"{each['error rate']:.4f}" for each in read(measured / "aer.json"))
    row |= {"AER": aer, "SAER": saer}
    row["words translated twice, %"] = f"{read(measured / 'overtranslation.json')[0]['%']:.2f}"
    row["ends on the source's end, %"] = f"{read(measured / 'eos.json')[0]['%']:.2f}"
    translation = run / "test.txt"  # which may be left on another machine
    words = translation.read_text().split() if translation.exists() else []
    row["UNKs, %"] = f"{100 * words.count('<unk>') / len(words):.2f}" if words else ""
    groups = {group["group"]: [*group.values()][-1] for group in scored["groups"]}
    row |= {f"BLEU, {name} words": "" if groups.get(name) is None else f"{groups[name]:.2f}" for name in LENGTHS}
    for name in FURTHER:
        path = measured / f"{name}.json"
        further = scores(read(path)) if path.exists() else {}
        row |= {f"{each}, {name}": f"{further[each]:.2f}" if further else "" for each in ("BLEU", "TER")}
    log = (run / "train.log").read_text()
    row["validation perplexity"] = f"{2 ** float(LOSS.findall(log)[-1]):.2f}"
    speeds = [float(each) for each in SPEED.findall(log)]
    row["subwords a second"] = f"{statistics.median(speeds):.0f}" if speeds else ""
    return row


def figures_of_words(scored):
    """Return the figures of a run of words.sh by column of ``words.csv``, from its ``score.json``."""
    row = {}
    for each in scored["scores"]:
        replaced = ", UNKs replaced" if each["system"].endswith(".replaced.txt") else ""
        if each["measure"] in SCORES:
            row[each["measure"] + replaced] = f"{each['score']:.2f}"
    return row


def gates(run):
    """Yield the lines of ``gates.csv`` for a run."""
    path = run / "measured" / "gates.json"
    for side, rows in (read(path) if path.exists() else {}).items():
        for row in rows:
            label = next(iter(row.values()))
            for name, value in row.items():
                if name.endswith(" %"):
                    yield {"side": side, "tag": label, "gate": name[:-2], "%": f"{value:.2f}"}


def merge(path, rows):
    """Write the lines to the file, sorted by system and seed. Its lines of other runs stay."""
    new = {(row["system"], row["seed"]) for row in rows}
    if path.exists():
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if (row["system"], row["seed"]) not in new] + rows
    if rows:
        with path.with_suffix(".part").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[-1]), restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(rows, key=lambda row: (row["system"], int(row["seed"]))))
        path.with_suffix(".part").replace(path)


def main():
    """Read the command line and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent, metavar="FOLDER")
    options = parser.parse_args()
    seeds, weights, words = [], [], []
    for measured in sorted(options.out.glob("*/*/measured")):
        run = measured.parent
        key = {"system": run.parent.name, "seed": run.name}
        scored = read(measured / "score.json")
        if any(row["system"].endswith(".replaced.txt") for row in scored["scores"]):
            words.append({**key, **figures_of_words(scored)})
            continue
        seeds.append({**key, **figures(run, scored)})
        weights += [{**key, **line} for line in gates(run)]
    if not seeds + words:
        sys.exit(f"collect.py: {options.out} has no run that measure.sh has measured")
    merge(options.folder / "seeds.csv", seeds)
    merge(options.folder / "gates.csv", weights)
    merge(options.folder / "words.csv", words)
    print(f"{len(seeds + words)} runs")


if __name__ == "__main__":
    main()

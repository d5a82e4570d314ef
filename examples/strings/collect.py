"""Print the tables of the runs in Markdown: ``collect.py runs.csv``.

Each group of languages has a table with the WER on the test sets: the mean and the standard deviation over seeds for
single models, and one WER for each ensemble. The macro average is the mean over the group's languages. It leaves out
seeds and ensembles that lack one of them.
"""

import argparse
import csv
import statistics

from systems import ENSEMBLES, LANGUAGES, SYSTEMS, YOYODYNE


def mean_and_deviation(values):
    """Format a mean and a standard deviation, such as ``21.3 ± 1.2``, or one value."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def rows(runs, languages):
    """Yield the lines of a group's table."""
    for system in [*SYSTEMS, *YOYODYNE]:
        single = [run for run in runs if run["system"] == system and " " not in run["seeds"]]
        cells = [[float(run["WER"]) for run in single if run["language"] == language] for language in languages]
        if any(cells):
            # the mean over languages for each seed
            seeds = sorted({run["seeds"] for run in single})
            found = [[float(run["WER"]) for run in single if run["seeds"] == seed] for seed in seeds]
            macro = [statistics.mean(values) for values in found if len(values) == len(languages)]
            minutes = [float(run["minutes"]) for run in single if run["minutes"]]
            average = f"{statistics.mean(minutes):.1f}" if minutes else ""
            counts = {len(cell) for cell in cells}
            number = str(max(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
            yield [f"`{system}`", number, *map(mean_and_deviation, [*cells, macro]), average]
    for name, parts in ENSEMBLES.items():
        several = [run for run in runs if run["system"] == name and " " in run["seeds"]]
        for seeds in dict.fromkeys(run["seeds"] for run in several):
            together = {run["language"]: run for run in several if run["seeds"] == seeds}
            cells = [[float(together[one]["WER"])] if one in together else [] for one in languages]
            members = len(seeds.split()) * len(parts)
            macro = [statistics.mean(cell[0] for cell in cells)] if all(cells) else []
            shown = " + ".join(f"`{part}`" for part in parts)
            yield [f"ensemble of {members}: {shown}", "", *map(mean_and_deviation, [*cells, macro]), ""]


def main():
    """Read the runs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="runs.csv", help="what run.py has written")
    with open(parser.parse_args().runs, newline="") as file:
        runs = [*csv.DictReader(file)]
    for group, languages in LANGUAGES.items():
        own = [run for run in runs if run["language"] in languages]
        lines = [*rows(own, languages)]
        if lines:
            head = [f"{group}: WER", "seeds", *languages, "macro average", "minutes a run"]
            print(*(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)), sep="\n", end="\n\n")


if __name__ == "__main__":
    main()

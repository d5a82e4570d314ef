"""Compute findings.csv again from its single seeds, and rewrite the tables of FINDINGS.md: ``findings.py``.

In ``findings.csv`` a person writes the claim, the single seeds, ``here`` and ``remark``. The script writes the columns
that follow from the seeds: ``seeds`` to ``holm_p``, ``verdict``, ``seeds_to_decide`` and the numbers in ``figures``. A
difference keeps its number of decimals. Several comparisons have semicolons between them.
"""

import argparse
import csv
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

from fairseq_attnvariants_cli.scores.seeds import Comparison, estimate, verdicts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "laboratory"))

from seeds_to_decide import seeds_to_decide  # noqa: E402

FIRST_OF_SEVERAL = "refuted", "open", "no relevant difference", "shown"  # a row has the first of these that occurs
INTERVAL = r"[+-][\d.]+ \([+-][\d.]+ to [+-][\d.]+\)"
HEAD = "row", "claim", "in the paper", "here", "figures, seeds", "verdict", "laboratory, ± half the 95 % interval"


def read(path):
    """Return the lines of a CSV file."""
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def comparison(own, others, better, margin):
    """Return the comparison of two lists of figures, which are text. A gain is positive if the first is better."""
    sign = -1 if better == "less" else 1
    gains = [sign * (float(one) - float(other)) for one, other in zip(own, others, strict=True)]
    return Comparison(estimate(gains), float(margin) if margin else None)


def significant(p):
    """Format p with two to four decimals, more for a small p or one close to 0.05, or with one digit below 0.0001."""
    if p < 1e-4:
        return f"{p:.0e}"
    return f"{p:.{4 if p < 0.01 or 0.0495 <= p < 0.0505 else 3 if p < 0.0995 else 2}f}"


def ends(gain, better, decimals):
    """Return system minus baseline, as text, and the ends of its interval, also if less is better."""
    values = (gain.mean, gain.low, gain.high) if better == "more" else (-gain.mean, -gain.high, -gain.low)
    return [f"{round(value, decimals) + 0:+.{decimals}f}" for value in values]  # no -0.00


def comparisons_of(row):
    """Yield the comparisons of a row. Without single seeds there are none."""
    for own, others in zip(row["system_seeds"].split("; "), row["baseline_seeds"].split("; "), strict=True):
        if own:
            yield comparison(own.split(), others.split(), row["better"], row["margin"])


def count(row, found):
    """Fill the columns of a row that follow from ``found``, its comparisons with their verdicts."""
    printed = row["difference"].split("; ")
    three = [
        ends(gain, row["better"], len(before.partition(".")[2]))
        for before, ((gain, *_), _) in zip(printed, found, strict=True)
    ]
    row["difference"], row["low"], row["high"] = map("; ".join, zip(*three))
    row["seeds"] = "; ".join(dict.fromkeys(str(gain.n) for (gain, *_), _ in found))
    row["holm_p"] = "; ".join("" if p is None else significant(p) for _, (_, p) in found)
    words = [word for _, (word, _) in found]
    row["verdict"] = next(word for word in FIRST_OF_SEVERAL if word in words)
    wide = [(gain, margin) for ((gain, margin, _), (word, _)) in found if word == "open"]
    more = [seeds for gain, margin in wide if (seeds := seeds_to_decide(gain, margin)) and seeds > gain.n]
    row["seeds_to_decide"] = str(max(more)) if more and row["verdict"] == "open" else ""
    intervals = iter(f"{mean} ({low} to {high})" for mean, low, high in three)
    figures = re.sub(INTERVAL, lambda _: next(intervals), row["figures"])
    row["figures"] = re.sub(r", \d+ seeds$", f", {row['seeds']} seeds", figures)


def table(rows):
    """Yield the lines of a paper's full table. Only the first row of a claim shows the claim."""
    yield f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|\n"
    before = None
    for row in rows:
        claim = row["claim"], row["paper_says"]
        verdict = row["verdict"] if row["verdict"] in ("open", "not tested") else f"**{row['verdict']}**"
        verdict += f" ({row['seeds_to_decide']} seeds)" if row["seeds_to_decide"] else ""
        said = ": ".join(filter(None, (verdict, row["remark"])))
        told = ("", "") if claim == before else claim
        yield f"| {' | '.join((row['id'], *told, row['here'], row['figures'], said, row['laboratory']))} |\n"
        before = claim


def page(text, rows, before):
    """Return FINDINGS.md with the full tables of these rows. In its answers, their figures replace ``before``."""
    for row, old in zip(rows, before, strict=True):
        answer = rf"^(\| {row['id']} \|[^|\n]*\|[^|\n]*\| ){re.escape(old)}(?=, )"
        text = re.sub(answer, rf"\g<1>{row['figures']}", text, flags=re.M) if old else text
    papers = iter([*group] for _, group in groupby(rows, key=lambda row: row["paper"]))
    head = re.escape(f"| {' | '.join(HEAD)} |\n")
    return re.sub(rf"^{head}(?:\|.*\n)+", lambda _: "".join(table(next(papers))), text, flags=re.M)


def main():
    """Write both files."""
    rows = read(HERE / "findings.csv")
    before = [row["figures"] for row in rows]
    compared = [[*comparisons_of(row)] for row in rows]
    judged = iter(verdicts([each for found in compared for each in found]))
    for row, found in zip(rows, compared):
        if found:
            count(row, [(each, next(judged)) for each in found])
    with (HERE / "findings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    path = HERE / "FINDINGS.md"
    path.write_text(page(path.read_text(), rows, before))
    told = Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} rows: {', '.join(f'{n} {word}' for word, n in told.items())}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()

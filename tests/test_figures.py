"""The figures of the pages: counted again where single seeds are recorded, and the same wherever they stand.

A figure that stands on several pages is marked as ``39.7<!--=name-->`` on each.
"""

import csv
import re
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml
from scipy import stats

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
RECIPES = sorted((ROOT / "examples").glob("*/README.md"))
MARGINS = {"BLEU": 0.5, "TER": 0.5, "1-gram precision": 0.5, "AER": 0.02, "SAER": 0.02, "accuracy": 5}
LESS_IS_BETTER = {"TER", "AER", "SAER", "words translated twice, %", "%", "g forward, %", "g backward, %"}
MARK = re.compile(r"([\d.,]+(?: ± [\d.,]+)?(?: %)?)\**<!--=([a-z0-9-]+)-->")


def tables(text):
    """The tables of a page, as lists of rows of cells."""
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.M):
        head, _, *rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines.splitlines()]
        yield [head, *rows]


def number(cell):
    """The number that a cell begins with, and its last decimal place; None of another cell."""
    match = re.match(r"[+-]?\d+(?:\.(\d+))?", cell)
    return match and (float(match[0]), 10.0 ** -len(match[1] or ""))


def holm(ps):
    """Each p adjusted for there being so many (Holm 1979)."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, k in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        adjusted[k] = largest = max(largest, min(1.0, (len(ps) - rank) * ps[k]))
    return adjusted


def test_marked_figures_agree():
    places = defaultdict(dict)
    for page in PAGES:
        text = page.read_text()
        marks = MARK.findall(text)
        assert len(marks) == text.count("<!--="), f"{page}: a mark that follows no figure"
        for figure, name in marks:
            places[name].setdefault(figure, []).append(str(page.relative_to(ROOT)))
    assert places
    for name, figures in places.items():
        assert len(figures) == 1, f"{name}: {figures}"
        assert sum(map(len, figures.values())) > 1, f"{name} stands in one place only"


def test_findings_of_three_seeds():
    page = ROOT / "examples" / "FINDINGS.md"
    (table,) = [rows for rows in tables(page.read_text()) if rows[0][-2:] == ["Holm's p", "from"]]
    claims = [row for rows in tables(page.read_text()) if "verdict" in rows[0][4:] for row in rows[1:]]
    tested = []
    for _, measure, system, baseline, difference, interval, p, adjusted, source in table[1:]:
        pairs = [[float(seed) for seed in cell.split(", ")] for cell in (system, baseline)]
        test = stats.ttest_rel(*pairs)
        low, high = test.confidence_interval()
        mean = statistics.mean(one - other for one, other in zip(*pairs))
        decimals = len(difference.split(".")[1])
        assert difference == f"{mean:+.{decimals}f}", measure
        assert interval == f"{low:+.{decimals}f} to {high:+.{decimals}f}", measure
        tested.append((test.pvalue, p, adjusted))
        significant = low * high > 0 and float(adjusted) < 0.05
        level = max(-low, high) <= MARGINS.get(measure, 0)
        gains = (mean < 0) == (measure in LESS_IS_BETTER)
        rule = ("shown" if gains else "refuted") if significant else "level" if level else "open"
        verdicts = [row[4].strip("*") for row in claims if f"{difference} ({interval})" in row[3]]
        assert verdicts and all(verdict.startswith(rule) for verdict in verdicts), (
            f"{difference}: {verdicts}, not {rule}"
        )
        recipe = (page.parent / re.search(r"\((.*?)#", source)[1]).read_text()
        figures = [figure for figure in f"{system}, {baseline}".split(", ") if figure != "0"]
        missing = [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", recipe)]
        assert not missing, f"{measure}: {missing} are not in {source}"
    told = Counter(re.match(r"\**(shown|refuted|level|open|not tested)", row[4])[1] for row in claims)
    counted = (
        r"(\d+) rows (\d+) are shown, (\d+) level and (\d+) refuted; (\d+) are open, (\d+) of them for want of three "
        r"seeds and (\d+) by what three or more say, and (\d+) were not tested"
    )
    printed = [int(figure) for figure in re.search(counted, " ".join(page.read_text().split())).groups()]
    several = sum(bool(re.search(r", [3-9]\b[^,]*$", row[3])) for row in claims if row[4].startswith("open"))
    seeds = told["open"] - several, several
    assert printed == [
        len(claims),
        told["shown"],
        told["level"],
        told["refuted"],
        told["open"],
        *seeds,
        told["not tested"],
    ]
    for row in claims:  # a verdict needs an interval over three seeds
        if row[4].strip("*").startswith(("shown", "refuted", "level")):
            assert re.search(r"\(\S+ to \S+\), [3-9]$", row[3]), row
    for (value, p, printed), adjusted in zip(tested, holm([value for value, *_ in tested])):
        assert float(p) == pytest.approx(value, rel=0.06, abs=0.006)
        assert float(printed) == pytest.approx(adjusted, rel=0.06, abs=0.006)


SEEDED = [path for path in RECIPES if re.search(r"\| mean \|.* ± ", path.read_text())]


@pytest.mark.parametrize("recipe", SEEDED, ids=lambda path: path.parent.name)
def test_means_over_seeds(recipe):
    counted = 0
    for head, *rows in tables(recipe.read_text()):
        if "seed" not in head:
            continue
        of_seed, group = head.index("seed"), []
        for row in rows:
            if row[of_seed] != "mean":
                group = [row] if row[0] else [*group, row]
                continue
            for name, cell, column in zip(head, row, zip(*group)):
                seeds = [number(seed) for seed in column]
                if "±" not in cell or None in seeds:
                    continue
                values, step = [seed[0] for seed in seeds], seeds[0][1]
                for text, expected in zip(cell.split(" ± "), (statistics.mean(values), statistics.stdev(values))):
                    found, place = number(text)
                    assert abs(found - expected) <= (place + step) / 2 + 1e-9, f"{name}: {cell} of {values}"
                    counted += 1
    assert counted


def test_attribution():
    """Means over seeds, and differences from the first system with interval, p and verdict."""
    page = (ROOT / "examples" / "attribution" / "README.md").read_text()
    measured = [rows for rows in tables(page) if rows[0][-1] == "verdict"]
    assert len(measured) == 2
    for head, *rows in measured:
        of_seeds = head.index("τ, seeds 1, 2, 3")
        scores = [[float(seed) for seed in row[of_seeds].split(", ")] for row in rows]
        for row, own in zip(rows, scores):
            assert float(row[-4]) == pytest.approx(statistics.mean(own), abs=0.00101), row[0]
            if own is scores[0]:
                continue
            test = stats.ttest_rel(own, scores[0])
            low, high = test.confidence_interval()
            printed = [float(figure) for figure in re.findall(r"[-+]\d\.\d+", row[-3])]
            assert printed == pytest.approx([(low + high) / 2, low, high], abs=0.0021), row[0]
            assert float(row[-2]) == pytest.approx(test.pvalue, rel=0.2, abs=0.0051), row[0]
            assert row[-1] == ("level" if max(-low, high) <= 0.05 else "open")


def laboratory():
    """Of each measured task, by system: means over the dial, difference, half its interval, Holm's p, verdict."""
    measured = {}
    page = (ROOT / "examples" / "laboratory" / "README.md").read_text()
    for task, section in re.findall(r"^### (\w+)\n(.*?)(?=^##)", page, re.M | re.S):
        (table,) = [rows for rows in tables(section) if rows[0][-1] == "verdict"]
        first = 3 if "seeds" in table[0] else 2
        measured[task] = {
            row[0].split("`")[1]: (
                [float(mean) if mean else None for mean in row[first:-3]],  # None where nothing is measured
                *(map(float, row[-3].split(" ± ")) if row[-3] else (None, None)),
                float(row[-2]) if row[-2] else None,
                row[-1],
            )
            for row in table[1:]
        }
    return measured


SEEDS = sorted((ROOT / "examples" / "laboratory" / "seeds").glob("*.csv"))


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_laboratory_seeds(path):
    """What the recorded seeds of a task make is what its table says."""
    (_, dial, _, measure), *rows = [row[:4] for row in csv.reader(path.read_text().splitlines())]
    scores = defaultdict(lambda: defaultdict(dict))
    for system, value, seed, score in rows:
        if score:
            scores[system][value][seed] = float(score)
    described = yaml.safe_load((ROOT / "examples" / "laboratory" / "tasks" / f"{path.stem}.yaml").read_text())
    base, values = scores[described["baseline"]], described["dial"].split("=")[1].split(",")
    assert (dial, measure) == (described["dial"].split("=")[0], described["measure"])
    tested = {}
    for system, own in scores.items():
        for value in own if own is not base else ():
            gains = [score - base[value][seed] for seed, score in own[value].items()]
            mean, half, p = statistics.mean(gains), 0.0, float(not any(gains))  # where all are equal
            if statistics.stdev(gains):
                test = stats.ttest_1samp(gains, 0)
                low, high = test.confidence_interval()
                half, p = (high - low) / 2, test.pvalue
            tested[system, value] = mean, half, p
    adjusted = dict(zip(tested, holm([p for *_, p in tested.values()])))
    recorded = laboratory()[path.stem]
    assert [*recorded] == [*scores]
    for system, (means, difference, half, p, _) in recorded.items():
        own = scores[system]
        expected = [statistics.mean(own[value].values()) if value in own else None for value in values]
        assert means == pytest.approx(expected, abs=0.051)
        if difference is not None:
            hardest = system, values[-1]
            assert (difference, half) == pytest.approx(tested[hardest][:2], abs=0.051), system
            assert p == pytest.approx(adjusted[hardest], abs=0.00051), system


def test_laboratory_directions():
    """The table of words that are said sooner or later is what the recorded seeds make."""
    scores = defaultdict(lambda: defaultdict(dict))
    for row in csv.DictReader((ROOT / "examples" / "laboratory" / "seeds" / "order.csv").read_text().splitlines()):
        for side in ("sooner", "later") if row["distance"] == "8" else ():
            scores[side][row["system"]][row["seed"]] = float(row[side])
    page = (ROOT / "examples" / "laboratory" / "README.md").read_text()
    [(_, *rows)] = [rows for rows in tables(page) if rows[0][1] == "sooner"]
    assert [row[0].split("`")[1] for row in rows] == [*scores["later"]]
    for name, *cells, seeds in rows:
        system = name.split("`")[1]
        for side, mean, difference in zip(("sooner", "later"), cells[::2], cells[1::2]):
            own, base = scores[side][system], scores[side]["rnnsearch"]
            assert float(mean) == pytest.approx(statistics.mean(own.values()), abs=0.051)
            if difference:
                gains = [score - base[seed] for seed, score in own.items()]
                interval = stats.ttest_1samp(gains, 0).confidence_interval()
                printed = [float(figure) for figure in difference.split(" ± ")]
                half = (interval.high - interval.low) / 2
                assert printed == pytest.approx([statistics.mean(gains), half], abs=0.051), (system, side)
        assert [*map(int, seeds.split(", "))] == [round(score) for score in scores["later"][system].values()]


def test_laboratory_gates():
    """The differences of what the gates weigh at particles and at other words."""
    page = (ROOT / "examples" / "laboratory" / "README.md").read_text()
    [(_, *rows)] = [rows for rows in tables(page) if rows[0][-2:] == ["at particles", "difference"]]
    for name, _, words, particles, difference in rows:
        here, there = ([float(value) for value in cell.split(",")] for cell in (particles, words))
        interval = stats.ttest_rel(here, there).confidence_interval()
        mean, half = map(float, difference.split(" ± "))
        assert mean == pytest.approx((interval.high + interval.low) / 2, abs=0.06), name
        assert half == pytest.approx((interval.high - interval.low) / 2, abs=0.06), name


def test_laboratory_verdicts():
    measured = laboratory()
    recorded_tasks = {path.stem for path in SEEDS}
    for task, systems in measured.items():
        described = yaml.safe_load((ROOT / "examples" / "laboratory" / "tasks" / f"{task}.yaml").read_text())
        assert [*systems] == [described["baseline"], *(name for name in described["systems"] if name in [*systems][1:])]
        base, *_ = systems[described["baseline"]]
        for name, (means, difference, half, _, verdict) in systems.items():
            if difference is None:
                continue
            if task not in recorded_tasks:  # there some systems may have more seeds than others
                assert difference == pytest.approx(means[-1] - base[-1], abs=0.11), (task, name)
            first = next(k for k, mean in enumerate(base) if mean is not None)
            grows = difference > means[first] - base[first]
            level = abs(difference) + half <= described["margin"]
            shown, refuted = difference - half > 0 and grows, difference + half < 0
            rule = "shown" if shown else "refuted" if refuted else "level" if level else "open"
            assert verdict == rule, (task, name)
    findings = (ROOT / "examples" / "FINDINGS.md").read_text()
    recorded = re.findall(r"\[(\w+)\]\(laboratory/README\.md#\1\): (\w+), ([+-][\d.]+ ± [\d.]+)", findings)
    assert {task for task, *_ in recorded} <= {*measured}
    said = {"behind": "refuted", "ahead": "shown"}  # where what is claimed is no gain
    for task, word, difference in recorded:
        verdict = said.get(word, word)
        known = {(f"{row[1]:+} ± {row[2]}", row[4]) for row in measured[task].values() if row[1] is not None}
        assert (difference, verdict) in known, (task, difference, verdict)

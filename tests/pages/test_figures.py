"""The figures of the pages follow from recorded single seeds, and are the same on all pages.

A figure that is on several pages is marked as ``39.7<!--=name-->`` on each.
"""

import csv
import re
import shutil
import statistics
import sys
from collections import Counter, defaultdict

import pytest
import yaml
from corpus import ROOT
from scipy import stats

from fairseq_attnvariants_cli.scores.seeds import Comparison, Estimate, estimate, larger, verdicts

sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "examples" / "laboratory")]

import findings as findings_py  # noqa: E402
from seeds_to_decide import seeds_to_decide  # noqa: E402

pytestmark = pytest.mark.docs

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
RECIPES = sorted((ROOT / "examples").glob("*/RE*.md"))
MARGINS = {
    "BLEU": 0.5,
    "TER": 0.5,
    "1-gram precision": 0.5,
    "1-gram BLEU": 0.5,
    "AER": 0.02,
    "SAER": 0.02,
    "accuracy": 5,
}
MARK = re.compile(r"([\d.,]+(?: ± [\d.,]+)?(?: %)?)\**<!--=([a-z0-9-]+)-->")


def tables(text):
    """Yield the tables of a page, as lists of rows of cells."""
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.M):
        head, _, *rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines.splitlines()]
        yield [head, *rows]


def number(cell):
    """Return the number at the beginning of a cell and its last decimal place, or None if there is no number."""
    match = re.match(r"[+-]?\d+(?:\.(\d+))?", cell)
    return match and (float(match[0]), 10.0 ** -len(match[1] or ""))


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


EXPLAINED = re.compile(r"±\W* (?:is |\| ?)?(?:half the 95 % interval|the standard deviation) over seeds")


def test_every_plus_minus_is_explained():
    """± means a standard deviation or half an interval: each page says which, in the same words."""
    texts = {page: " ".join(page.read_text().split()) for page in PAGES}
    printed = [page for page, text in texts.items() if re.search(r"\d ± \d", text)]
    assert printed and not [str(page) for page in printed if not EXPLAINED.search(texts[page])]
    heads = [rows[0] for rows in tables(FINDINGS.read_text()) if rows[0][-1].startswith("laboratory")]
    assert {head[-1] for head in heads} == {"laboratory, ± half the 95 % interval"}
    for _, *cells, _task, _ in claims():  # all other ± of the page
        assert all("standard deviation" in cell for cell in cells if "±" in cell), cells


VERDICT = re.compile(r"\**(shown|refuted|no relevant difference|open|not tested)\b\**(?: \((\d+) seeds\))?")
FINDINGS = ROOT / "examples" / "FINDINGS.md"


def findings(columns):
    """Yield rows of the findings' tables with ``columns`` columns; the heading comes first, the row's number last."""
    for paper, section in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## )", FINDINGS.read_text(), re.M | re.S):
        for head, *rows in tables(section):
            if head[0] == "row" and len(head) == columns:
                yield from ([paper, *row, number] for number, *row in rows)


def claims():
    """Return the rows of the full tables."""
    return findings(7)


def compared():
    """Yield, per comparison in findings.csv, its row, its pair of lists of seeds, and its figures."""
    for row in csv.DictReader((FINDINGS.parent / "findings.csv").read_text().splitlines()):
        columns = ("system_seeds", "baseline_seeds", "difference", "low", "high", "holm_p")
        for seeds, others, *figures in zip(*(row[name].split("; ") for name in columns)) if row["seeds"] else ():
            if seeds:
                yield row, (seeds.split(), others.split()), figures


def test_findings_of_three_seeds():
    """Differences, intervals and Holm's p follow from the single seeds, and the recipes have these seeds."""
    found = [*compared()]
    pairs = [[[float(seed) for seed in seeds] for seeds in pair] for _, pair, _ in found]
    gains = [estimate([one - other for one, other in zip(*pair, strict=True)]) for pair in pairs]
    adjusted = [p for _, p in verdicts([*map(Comparison, gains)])]
    for (row, printed, figures), pair, p in zip(found, pairs, adjusted, strict=True):
        assert row["measure"] not in MARGINS or float(row["margin"]) == MARGINS[row["measure"]], row["id"]
        expected = statistics.mean(pair[0]) - statistics.mean(pair[1]), *stats.ttest_rel(*pair).confidence_interval()
        place = number(figures[0])[1]
        assert [*map(float, figures[:3])] == pytest.approx(expected, abs=0.51 * place), row["id"]
        assert float(figures[3]) == pytest.approx(p, rel=0.06, abs=5.1e-5), row["id"]
        assert "{} ({} to {})".format(*figures[:3]) in row["figures"], row["id"]
        page = FINDINGS.parent / re.search(r"\]\((.*?)[#)]", row["here"])[1]
        recipe = "".join(path.read_text() for path in (page, *page.parent.glob("*.csv")))
        seeds = [seed for seeds in printed for seed in seeds if seed != "0"]
        missing = [seed for seed in seeds if not re.search(rf"(?<![\d.]){re.escape(seed)}(?!\d)", recipe)]
        assert not missing, f"{row['id']}: {missing} are not in {page}"


def test_findings_have_the_verdict_of_their_comparisons():
    """A row with several verdicts has the first one in ``order``; its seeds to decide are enough for all open ones."""
    found, of_row = [*compared()], defaultdict(list)
    for row, pair, _ in found:
        gains = [
            float(base) - float(score) if row["better"] == "less" else float(score) - float(base)
            for score, base in zip(*pair, strict=True)
        ]
        of_row[row["id"]].append((row, Comparison(estimate(gains), float(row["margin"]) if row["margin"] else None)))
    words = iter(verdicts([each for group in of_row.values() for _, each in group]))
    for name, group in of_row.items():
        own, row = [(next(words).word, each.gain, each.margin) for _, each in group], group[0][0]
        order = "refuted", "open", "no relevant difference", "shown"
        assert row["verdict"] == next(word for word in order if word in [word for word, *_ in own]), name
        assert row["seeds"].split("; ") == [*dict.fromkeys(str(gain.n) for _, gain, _ in own)], name
        wide = [(gain, margin) for word, gain, margin in own if word == "open" and margin]
        more = [seeds for gain, margin in wide if (seeds := seeds_to_decide(gain, margin)) and seeds > gain.n]
        assert row["seeds_to_decide"] == (str(max(more)) if more and row["verdict"] == "open" else ""), name


def test_findings_are_counted_again(tmp_path, monkeypatch):
    """``findings.py`` changes neither the file nor the page."""
    for name in ("findings.csv", "FINDINGS.md"):
        shutil.copy(FINDINGS.parent / name, tmp_path)
    monkeypatch.setattr(findings_py, "HERE", tmp_path)
    findings_py.main()
    for name in ("findings.csv", "FINDINGS.md"):
        changed = f"run python examples/findings.py: {name} is another then"
        assert (tmp_path / name).read_text() == (FINDINGS.parent / name).read_text(), changed
    rows = findings_py.read(tmp_path / "findings.csv")
    assert len({row["id"] for row in rows}) == len(rows)
    for row, (paper, *_, known) in zip(rows, claims(), strict=True):
        assert paper.startswith(row["paper"]) and row["id"] == known


def test_findings_follow_their_seeds(tmp_path, monkeypatch):
    """Other seeds change the row, its verdict, the full table, and the figures of the answer."""
    for name in ("findings.csv", "FINDINGS.md"):
        shutil.copy(FINDINGS.parent / name, tmp_path)
    monkeypatch.setattr(findings_py, "HERE", tmp_path)
    path = tmp_path / "findings.csv"
    rows = findings_py.read(path)
    (row,) = [row for row in rows if row["id"] == "feng-02"]
    assert row["verdict"] == "open"
    row["system_seeds"] = " ".join(
        f"{float(seed) + 3 + k / 10:.2f}" for k, seed in enumerate(row["baseline_seeds"].split())
    )
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerows(rows)
    findings_py.main()
    (row,) = [row for row in findings_py.read(path) if row["id"] == "feng-02"]
    figures = "+3.30 (+3.10 to +3.50), 7 seeds"
    assert (row["verdict"], row["figures"], row["seeds_to_decide"]) == ("shown", figures, "")
    text = (tmp_path / "FINDINGS.md").read_text()
    assert re.search(rf"^\| feng-02 \|.*\| {re.escape(figures)}, German", text, re.M)
    assert re.search(rf"^\| feng-02 \|.*\| {re.escape(figures)} \| \*\*shown\*\*: ", text, re.M)


@pytest.mark.parametrize("p, printed", [
    (0.00003, "3e-05"), (0.00012, "0.0001"), (0.0012, "0.0012"), (0.0123, "0.012"), (0.123, "0.12"), (0.0996, "0.10"),
    (0.0494, "0.049"), (0.04996, "0.0500"), (0.0496, "0.0496"), (0.0504, "0.0504"), (0.0506, "0.051"),
])  # fmt: skip
def test_a_p_has_the_digits_that_tell_it_from_the_level_of_the_tests(p, printed):
    assert findings_py.significant(p) == printed


def test_a_difference_and_its_ends_have_no_minus_before_zero():
    """If lower values of a measure are better, the row has the measured signs, and the lower end comes first."""
    gain = Estimate(3, 0.004, 0.5, 0.9)
    assert findings_py.ends(gain, "more", 2) == ["+0.00", "-0.50", "+0.50"]
    assert findings_py.ends(gain, "less", 2) == ["+0.00", "-0.50", "+0.50"]
    assert findings_py.ends(Estimate(3, 1, 0.25, 0.01), "less", 2) == ["-1.00", "-1.25", "-0.75"]


def test_a_row_with_several_comparisons_is_open_as_long_as_one_is():
    """The number of seeds to decide is above the number that it has; a lower one would already have decided it."""
    shown, wide, close = ([3.0, 3.1, 3.2], [-1.0, 0.2, 1.1], [-1.2, 2.2] * 20)
    compared = [Comparison(estimate(gains), 1) for gains in (shown, close)]
    row = {"difference": "0.0; 0.0", "better": "more", "figures": "+9.0 (+9.0 to +9.0), -9.0 (-9.0 to -9.0), 2 seeds"}
    findings_py.count(row, [*zip(compared, verdicts(compared))])
    assert (row["verdict"], row["seeds"], row["seeds_to_decide"]) == ("open", "3; 40", "")
    assert row["figures"].startswith("+3.1 (+2.9 to +3.3), +0.5 (-0.1 to +1.1), ")
    compared.append(Comparison(estimate(wide), 1))
    row["difference"] += "; 0.0"
    findings_py.count(row, [*zip(compared, verdicts(compared))])
    assert int(row["seeds_to_decide"]) == seeds_to_decide(estimate(wide), 1) > 3


def test_findings_are_counted():
    told = Counter(VERDICT.match(row[5])[1] for row in claims())
    counted = (
        r"(\d+) rows\. (\d+) are shown, (\d+) show no relevant difference, (\d+) (?:is|are) refuted, (\d+) are open "
        r"and (\d+) are not tested\. (\d+) of the (\d+) open rows have fewer than three seeds, "
        r"and (\d+) have three .*? By the \S+, (\d+) of them need .*?, (\d+) have all planned seeds, and (\d+) wait"
    )
    printed = [int(figure) for figure in re.search(counted, " ".join(FINDINGS.read_text().split())).groups()]
    open_rows = [row for row in claims() if row[5].startswith("open")]
    several = sum(bool(re.search(r", ([3-9]\b|\d\d seeds)[^,]*$", row[4])) for row in open_rows)
    words = [told[word] for word in ("shown", "no relevant difference", "refuted", "open", "not tested")]
    plan = (FINDINGS.parent / "captions" / "PLAN.md").read_text()
    fits = dict(re.findall(r"^\| (\w+-\d+) \|.*\| (yes|later|no) \|$", plan, re.M))
    done = sum("all planned seeds are there" in row[5] for row in open_rows)
    undecidable = sum(fits.get(row[-1]) == "no" for row in open_rows)
    unplanned = sum(row[-1] not in fits for row in open_rows)  # shown when the plan was written
    waiting = told["open"] - undecidable - done - unplanned
    assert printed == [told.total(), *words, told["open"] - several, told["open"], several, undecidable, done, waiting]
    for row in claims():  # a verdict needs an interval over three seeds
        if VERDICT.match(row[5])[1] in ("shown", "refuted", "no relevant difference"):
            assert re.search(r"\(\S+ to \S+\), ([3-9]|\d\d) seeds$", row[4]), row


def test_findings_answers():
    """Each paper's answer has at most seven rows, with all shown claims, and agrees with the file and the plan."""
    known = {row["id"]: row for row in csv.DictReader((FINDINGS.parent / "findings.csv").read_text().splitlines())}
    plan = (FINDINGS.parent / "captions" / "PLAN.md").read_text()
    planned = dict(re.findall(r"^\| (\w+-\d+) \|.*\| [^|\d]*(\d+)[^|]* \| (?:yes|later|no) \|$", plan, re.M))
    answers = [*findings(5)]
    assert max(Counter(paper for paper, *_ in answers).values()) <= 7
    shown = {row["claim"] for row in known.values() if row["verdict"] == "shown"}
    assert shown <= {known[answer[-1]]["claim"] for answer in answers if known[answer[-1]]["verdict"] == "shown"}
    for paper, claim, said, here, verdict, name in answers:
        row = known[name]
        assert paper.startswith(row["paper"]) and (claim, said) == (row["claim"], row["paper_says"]), name
        figures, _, told = here.partition(row["figures"])
        assert not figures and {*re.findall(r"\w+", row["text"] + " " + row["schedule"])} <= {*re.findall(r"\w+", told)}
        assert VERDICT.match(verdict)[1] == row["verdict"], name
        assert re.findall(r"\d+", verdict) in ([], [row["seeds_to_decide"]], [planned.get(name)]), name
        assert ("seeds" in verdict) == (row["verdict"] == "open"), name


def test_findings_can_be_repeated():
    """Under each table of answers, each row has a link to a section with commands."""
    sections = re.findall(r"^## [^\n]*\n(.*?)(?=^## )", FINDINGS.read_text(), re.M | re.S)
    repeated = [
        known for section in sections for known in re.findall(r"^Commands of .*?(?=\n\n)", section, re.M | re.S)
    ]
    assert sorted(answer[-1] for answer in findings(5)) == sorted(re.findall(r"\b\w+-\d\d\b", " ".join(repeated)))
    for path, anchor in re.findall(r"\]\(([^)#]*)#([^)]*)\)", " ".join(repeated)):
        parts = re.split(r"^(#+ .*)$", (FINDINGS.parent / path).read_text(), flags=re.M)
        text = {
            re.sub(r"[^\w -]", "", head.lstrip("# ")).lower().replace(" ", "-"): body
            for head, body in zip(parts[1::2], parts[2::2])
        }
        assert "```" in text[anchor], f"{path}#{anchor} has no commands"


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
    """Means over seeds, and differences from the first system with interval, p and verdict, follow from the seeds."""
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
        family = [Comparison(estimate([a - b for a, b in zip(own, scores[0])]), 0.05) for own in scores[1:]]
        assert [row[-1] for row in rows[1:]] == [word for word, _ in verdicts(family)]


def laboratory():
    """Return, per task and system, means over the dial, the difference, half its interval, Holm's p and the verdict."""
    measured = {}
    page = (ROOT / "examples" / "laboratory" / "RESULTS.md").read_text()
    for task, section in re.findall(r"^### (\w+)\n(.*?)(?=^##)", page, re.M | re.S):
        (table,) = [rows for rows in tables(section) if rows[0][-1] == "verdict"]
        first = 3 if "seeds" in table[0] else 2
        measured[task] = {
            row[0].split("`")[1]: (
                [float(mean) if mean else None for mean in row[first:-3]],  # None where nothing is measured
                *[*(float(figure) for figure in row[-3].split(" ± ") if figure), None, None][:2],  # or no interval
                float(row[-2]) if row[-2] else None,
                row[-1],
            )
            for row in table[1:]
        }
    return measured


SEEDS = sorted((ROOT / "examples" / "laboratory" / "seeds").glob("*.csv"))


def described(task):
    """Return the content of a task's file."""
    return yaml.safe_load((ROOT / "examples" / "laboratory" / "tasks" / f"{task}.yaml").read_text())


def recorded_comparisons(path):
    """Return a task's recorded scores, by system, value and seed, and the comparisons of the rule, by system."""
    _, *rows = [row[:4] for row in csv.reader(path.read_text().splitlines())]
    scores = defaultdict(lambda: defaultdict(dict))
    for system, value, seed, score in rows:
        if score:
            scores[system][value][int(seed)] = float(score)
    task = described(path.stem)
    base = scores[task["baseline"]]
    easiest, *_, hardest = [value for value in task["dial"].split("=")[1].split(",") if value in base]
    family = {}
    for system, own in scores.items():
        if own is not base:
            easy, hard = ({k: own[value][k] - base[value][k] for k in own[value]} for value in (easiest, hardest))
            family[system] = Comparison(estimate([*hard.values()]), task["margin"], larger(hard, easy))
    return scores, family


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_laboratory_seeds(path):
    """A task's table follows from its recorded seeds."""
    task, head = described(path.stem), path.read_text().splitlines()[0].split(",")
    dial, values = task["dial"].split("=")
    assert head[:4] == ["system", dial, "seed", task["measure"]]
    scores, family = recorded_comparisons(path)
    recorded = laboratory()[path.stem]
    assert [*recorded] == [*scores]
    for system, (means, *_) in recorded.items():
        own = scores[system]
        expected = [statistics.mean(own[value].values()) if value in own else None for value in values.split(",")]
        assert means == pytest.approx(expected, abs=0.051)
    for (system, (gain, *_)), (word, adjusted) in zip(family.items(), verdicts([*family.values()])):
        _, difference, half, p, verdict = recorded[system]
        assert (difference, half) == pytest.approx((gain.mean, gain.margin), abs=0.051), system
        assert (p, verdict) == (pytest.approx(adjusted, abs=0.00051), word), system


def test_laboratory_directions():
    """The table of words that come sooner or later follows from the recorded seeds."""
    scores = defaultdict(lambda: defaultdict(dict))
    for row in csv.DictReader((ROOT / "examples" / "laboratory" / "seeds" / "order.csv").read_text().splitlines()):
        for side in ("sooner", "later") if row["distance"] == "8" else ():
            scores[side][row["system"]][row["seed"]] = float(row[side])
    page = (ROOT / "examples" / "laboratory" / "RESULTS.md").read_text()
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


def test_laboratory_for_longer():
    """The table of longer trainings follows from the seeds in it."""
    page = (ROOT / "examples" / "laboratory" / "RESULTS.md").read_text()
    [(_, *rows)] = [rows for rows in tables(page) if rows[0][0] == "after 3,600 updates"]
    base, *others = [[float(seed) for seed in row[1].split(", ")] for row in rows]
    gains = [estimate([one - other for one, other in zip(own, base, strict=True)]) for own in others]
    assert [float(row[2]) for row in rows] == pytest.approx([statistics.mean(own) for own in (base, *others)], abs=0.11)
    decided = verdicts([Comparison(gain, described("sides")["margin"]) for gain in gains])
    for (*_, difference, verdict), gain, (word, adjusted) in zip(rows[1:], gains, decided, strict=True):
        assert [*map(float, difference.split(" ± "))] == pytest.approx([gain.mean, gain.margin], abs=0.06)
        assert verdict.startswith(word) and float(verdict.split()[-1]) == pytest.approx(adjusted, abs=0.0006)


def test_laboratory_gates():
    """Differences between gates at particles and at other words follow from their values."""
    page = (ROOT / "examples" / "laboratory" / "RESULTS.md").read_text()
    [(_, *rows)] = [rows for rows in tables(page) if rows[0][-2:] == ["at particles", "difference"]]
    for name, _, words, particles, difference in rows:
        here, there = ([float(value) for value in cell.split(",")] for cell in (particles, words))
        interval = stats.ttest_rel(here, there).confidence_interval()
        mean, half = map(float, difference.split(" ± "))
        assert mean == pytest.approx((interval.high + interval.low) / 2, abs=0.06), name
        assert half == pytest.approx((interval.high - interval.low) / 2, abs=0.06), name


def test_laboratory_verdicts():
    """For tasks without recorded seeds, p follows from the mean and the interval over five seeds."""
    measured = laboratory()
    recorded_tasks = {path.stem for path in SEEDS}
    for task, systems in measured.items():
        named = described(task)
        assert [*systems] == [named["baseline"], *(name for name in named["systems"] if name in [*systems][1:])]
        if task in recorded_tasks:
            continue
        (base, *_), *others = systems.values()
        family = []
        for means, difference, half, *_ in others:
            assert difference == pytest.approx(means[-1] - base[-1], abs=0.11), task
            p = 2 * stats.t.sf(abs(difference) / half * stats.t.ppf(0.975, 4), 4)
            grows = difference > means[0] - base[0]
            family.append(Comparison(Estimate(5, difference, half, float(p)), named["margin"], grows))
        for (word, adjusted), (*_, p, verdict) in zip(verdicts(family), others, strict=True):
            assert (p, verdict) == (pytest.approx(adjusted, abs=0.00051), word), task
    recorded = re.findall(
        r"\[(\w+)\]\(laboratory/RESULTS\.md#\1\): ([\w ]+), ([+-][\d.]+ ± [\d.]+)", FINDINGS.read_text()
    )
    assert recorded and {task for task, *_ in recorded} <= {*measured}
    said = {"behind": "refuted", "ahead": "shown"}  # for claims that are no gains
    for task, word, difference in recorded:
        verdict = said.get(word, word)
        known = {(f"{row[1]:+} ± {row[2]}", row[4]) for row in measured[task].values() if row[1] is not None}
        assert (difference, verdict) in known, (task, difference, verdict)

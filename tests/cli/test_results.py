"""One table of many runs."""

import argparse
import csv
import json
import os
import random
import re
import shutil
import statistics
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from corpus import SIZES, USER_DIR, preprocess, run, write_corpus
from sacrebleu import corpus_bleu

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.scores.evaluation import Place, mean_of_file, translate
from fairseq_attnvariants_cli.scores.runs import (
    IGNORED,
    Run,
    by_system,
    count_parameters,
    find_runs,
    read_run,
    warn_of_unfinished,
)
from fairseq_attnvariants_cli.scores.seeds import estimate, holm
from fairseq_attnvariants_cli.shown.charts import Dial, curve, draw_curves, draw_dial, draw_scores
from fairseq_attnvariants_cli.shown.pictures import picture
from fairseq_attnvariants_cli.shown.tables import Interval, aligned, expanded
from fairseq_attnvariants_cli.subcommands.results import summary, warn_of_differences
from fairseq_attnvariants_cli.systems import model as systems
from fairseq_attnvariants_cli.text.files import UserError

SEARCH = ["--cpu", "--beam", "2", "--max-len-b", "10"]


def searched(arguments):
    """Return the options of the search if something is translated, otherwise ``--cpu`` alone."""
    arguments = [*map(str, arguments), "--"]
    bare = "--gen-subset" in arguments and arguments[arguments.index("--gen-subset") + 1].startswith("--")
    files = [arguments[k + 1] for k, one in enumerate(arguments) if one == "--measure"]
    read = not files or any("=" not in path or "{translations}" in path for path in files)
    return SEARCH if read and not bare else SEARCH[:1]


@pytest.fixture(scope="module")
def sweep(warm, tmp_path_factory):
    """Two architectures with two seeds each, as a sweep trains them."""
    folder = tmp_path_factory.mktemp("sweep")
    write_corpus(folder)
    data = preprocess(folder)
    sizes = [f"model.{name[2:].replace('-', '_')}={size}" for name, size in zip(SIZES[::2], SIZES[1::2])]
    values = [*sizes, "model._name=rnnsearch,recatt", "common.seed=1,2", "optimization.max_epoch=3", "common.cpu=true"]
    values += ["optimization.lr=[0.01]", "model.init_std=0.1", f"common.user_dir={USER_DIR}", f"task.data={data}"]
    run(
        "fairseq-hydra-train", "-m", "--config-dir", f"{USER_DIR}/config", "--config-name", "sweep", *values, cwd=folder
    )
    return folder / "sweep"


def results(*arguments):
    assert main(["results", *map(str, arguments), *searched(arguments)]) == 0


def test_means_and_paired_differences(sweep, tmp_path, capfd):
    stats = pytest.importorskip("scipy.stats")
    results(sweep, "--baseline", "rnnsearch", "--table", tmp_path / "table.json")
    rows = {row["system"]: row for row in json.loads((tmp_path / "table.json").read_text())}
    assert list(rows) == ["rnnsearch", "recatt"]  # the baseline first
    scores = {}
    for name, row in rows.items():
        scores[name] = []
        for seed in (1, 2):
            [folder] = sweep.glob(f"{name}-{seed}-*/translations")
            [hypothesis], [reference] = ([*folder.glob(f"test-*.{side}.txt")] for side in ("hypothesis", "reference"))
            texts = [path.read_text().splitlines() for path in (hypothesis, reference)]
            assert len(texts[0]) == len(texts[1]) == 12 and "<<unk>>" in texts[1][3]
            scores[name].append(corpus_bleu(texts[0], [texts[1]], tokenize="none", force=True).score)
        assert row["BLEU"] == pytest.approx(statistics.mean(scores[name]))
        low, high = stats.t.interval(0.95, 1, row["BLEU"], stats.sem(scores[name]))
        assert 2 * row["BLEU ±"] == pytest.approx(high - low)
        assert row["seeds"] == 2 and row["parameters"] > 1000 and row["updates"] > 0
    row = rows["recatt"]
    assert row["BLEU difference"] == pytest.approx(rows["recatt"]["BLEU"] - rows["rnnsearch"]["BLEU"])
    assert (row["pairs"], row["BLEU p"], row["BLEU verdict"]) == (2, None, "open")  # too few seeds
    assert rows["rnnsearch"]["BLEU p"] is rows["rnnsearch"]["BLEU difference"] is None
    assert "rnnsearch" in capfd.readouterr().out


@pytest.fixture
def runs(sweep, tmp_path):
    """Copies of the first architecture's two runs, without translations."""
    for seed in (1, 2):
        [folder] = sweep.glob(f"rnnsearch-{seed}-*")
        shutil.copytree(folder, tmp_path / "runs" / folder.name, ignore=shutil.ignore_patterns("translations"))
    return tmp_path / "runs"


def test_scores_are_against_the_references_that_are_given(runs, tmp_path):
    [one, _] = sorted(runs.iterdir())
    subsets = ["--gen-subset", "test", "valid"]
    results(one, *subsets)
    hypotheses = [next(one.glob(f"translations/{name}-*.hypothesis.txt")) for name in ("test", "valid")]
    results(one, *subsets, "--reference", *hypotheses, "--table", tmp_path / "table.json")
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["BLEU"] for row in rows] == pytest.approx([100, 100]) and {row["TER"] for row in rows} == {0}


def test_runs_of_other_test_sets_are_not_compared(runs, capfd):
    results(runs)
    [reference] = sorted(runs.iterdir())[1].glob("translations/test-*.reference.txt")
    reference.write_text(reference.read_text().replace("ant", "bee"))
    assert main(["results", str(runs), *SEARCH]) == 2
    assert "'test' has another text than for other runs: give --reference" in capfd.readouterr().err


def test_translations_are_of_joined_words(sweep, runs):
    [one, _] = sorted(runs.iterdir())
    shutil.rmtree(one / "translations", ignore_errors=True)
    results(one, "--remove-bpe", "sentencepiece")
    [hypothesis], [reference] = (list(one.glob(f"translations/*.{side}.txt")) for side in ("hypothesis", "reference"))
    lines = (sweep.parent / "test.yy").read_text().splitlines()
    found = reference.read_text().splitlines()
    assert [line for k, line in enumerate(found) if k != 3] == [
        line.replace(" ", "") for k, line in enumerate(lines) if k != 3
    ]
    assert " " not in hypothesis.read_text()


def test_an_unknown_word_of_a_translation_is_none_of_the_reference(runs, monkeypatch):
    """Otherwise ``<unk>`` would be right where the reference has a word that the dictionary lacks."""
    monkeypatch.setattr("fairseq_attnvariants_cli.systems.model.generate", lambda system, text, options: text)
    [one, _] = sorted(runs.iterdir())
    results(one)
    paths = [next(one.glob(f"translations/*.{side}.txt")) for side in ("hypothesis", "reference")]
    lines = [path.read_text().splitlines() for path in paths]
    assert [pair for pair in zip(*lines) if pair[0] != pair[1]] == [("<unk> <unk>", "<<unk>> <<unk>>")]


def test_seeds_without_a_figure_are_named(runs, tmp_path, capfd):
    for seed, folder in enumerate(sorted(runs.iterdir()), start=1):
        (folder / "own").write_text("nan\n" if seed == 2 else "1\n")
    results(runs, "--measure", "own={folder}/own", "--table", tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text())[0]["own"] == 1
    assert "seed 2" in capfd.readouterr().err


@pytest.mark.parametrize("seeds", range(2, 11))
def test_intervals_and_p_are_those_of_scipy(seeds):
    stats = pytest.importorskip("scipy.stats")
    rng = random.Random(seeds)
    one, other = ([rng.gauss(mean, 2) for _ in range(seeds)] for mean in (31, 30))
    expected = stats.ttest_rel(one, other)
    found = estimate([a - b for a, b in zip(one, other)])
    interval = expected.confidence_interval(0.95)
    assert (found.n, found.p) == (seeds, pytest.approx(expected.pvalue))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    interval = stats.t.interval(0.95, seeds - 1, statistics.mean(one), stats.sem(one))
    assert (estimate(one).low, estimate(one).high) == pytest.approx(interval)


def test_holm():
    """Holm's definition: the smallest p is multiplied by the number of all, the next one by one fewer, and so on."""
    assert holm([0.03, None, 0.01, 0.04]) == pytest.approx([0.06, None, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1, 1] and holm([]) == []


def made(scores, **options):
    """Return the rows of a summary of synthetic scores, ``{system: {subset: values of seeds 1, 2, ...}}``."""
    some = dict(
        gen_subset=["easy", "hard"], dial=None, baseline="a", margin=None, less_is_better=[], measures={"X": "x"}
    )
    options = argparse.Namespace(**{**some, **options})
    seeds = {name: range(1, 1 + max(map(len, subsets.values()), default=2)) for name, subsets in scores.items()}
    runs = {name: [RUN._replace(seed=seed) for seed in several] for name, several in seeds.items()}
    [measure] = options.measures
    places = {
        Place(name, subset, measure): dict(enumerate(values, start=1))
        for name, subsets in scores.items()
        for subset, values in subsets.items()
    }
    columns, rows = expanded(*summary(runs, places, options))
    return [dict(zip(columns, row, strict=True)) for row in rows]


RUN = Run(None, None, "", 1, "a", {}, 7, 9, 0.5)
EASY, HARD = [50.0, 52.0, 54.0], [10.0, 20.0, 30.0]
SCORES = {"a": {"easy": EASY, "hard": HARD}, "b": {"easy": [50.0, 52.0, 55.0], "hard": [30.0, 41.0, 50.0]}}


DIAL = Dial("distance", ["0", "16"])


def test_the_verdict_over_a_dial_is_at_its_hardest_value():
    rows = made(SCORES, dial=DIAL)
    assert [row["distance"] for row in rows] == ["0", "16"] * 2
    assert [row["X verdict"] for row in rows] == [None, None, None, "shown"]
    assert rows[3]["X difference"] == pytest.approx(61 / 3) and rows[3]["pairs"] == 3
    swapped = {"a": SCORES["b"], "b": SCORES["a"]}
    assert made(swapped, dial=DIAL)[3]["X verdict"] == "refuted"
    for options in (dict(less_is_better=["X"]), dict(measures={"TER": None})):
        assert (
            made(swapped, dial=DIAL, **options)[3]["TER verdict" if "measures" in options else "X verdict"] == "shown"
        )
    assert [row["X verdict"] for row in made(SCORES, margin=2)] == [None, None, "no relevant difference", "shown"]


@pytest.mark.parametrize("easy", [{}, {"easy": [50.0]}, {"easy": [50.0, 52.0]}], ids=["no", "one", "two"])
def test_nothing_is_shown_to_grow_from_a_test_set_that_is_not_measured_with_every_seed(easy):
    """The easiest test set lacks some seeds of the system, of the baseline, or of both."""
    hard = {"hard": SCORES["b"]["hard"]}
    assert made({"a": SCORES["a"], "b": {**easy, **hard}}, dial=DIAL)[-1]["X verdict"] == "open"
    assert made({"a": {**easy, "hard": HARD}, "b": {**SCORES["b"], **hard}}, dial=DIAL)[-1]["X verdict"] == "open"
    assert made({"a": {"hard": HARD}, "b": hard}, dial=DIAL)[-1]["X verdict"] == "open"


def test_a_dial_begins_where_the_measure_does():
    """No system has a score if a text has nothing to measure, no cognates, say; then the next value is the easiest."""
    dial, subsets = Dial("distance", ["0", "8", "16"]), ["none", "easy", "hard"]
    assert made(SCORES, dial=dial, gen_subset=subsets)[-1]["X verdict"] == "shown"
    falls = {"a": SCORES["a"], "b": {"easy": [90.0, 92.0, 95.0], "hard": SCORES["b"]["hard"]}}
    assert made(falls, dial=dial, gen_subset=subsets)[-1]["X verdict"] == "open"


def test_five_equal_differences_show_nothing():
    for seeds, verdict in ((5, "open"), (6, "shown"), (3, "open"), (2, "open")):
        row = made({"a": {"hard": [1.0] * seeds}, "b": {"hard": [2.0] * seeds}}, gen_subset=["hard"])[1]
        assert row["X verdict"] == verdict and row["X p"] == (2 ** (1 - seeds) if seeds > 2 else None)
        row = made({"a": {"hard": [1.0] * seeds}, "b": {"hard": [1.0] * seeds}}, gen_subset=["hard"], margin=1)[1]
        assert row["X verdict"] == ("no relevant difference" if seeds > 5 else "open")


def test_p_is_adjusted_for_all_verdicts_of_the_table():
    stats = pytest.importorskip("scipy.stats")
    ps = [stats.ttest_rel(SCORES["b"][subset], SCORES["a"][subset]).pvalue for subset in ("easy", "hard")]
    assert ps[1] < ps[0]
    assert [row["X p"] for row in made(SCORES)] == [None, None, *map(pytest.approx, (max(ps[0], 2 * ps[1]), 2 * ps[1]))]
    assert [row["X p"] for row in made(SCORES, dial=DIAL)] == [None, None, None, pytest.approx(ps[1])]


def test_updates_and_hours_are_means_over_seeds():
    runs = {"a": [RUN._replace(seed=2, updates=13, hours=1.5), RUN]}
    headers, [row] = summary(runs, {}, argparse.Namespace(gen_subset=[], dial=None, baseline=None))
    found = dict(zip(headers, row, strict=True))
    assert found == {"system": "a", "seeds": 2, "parameters": 7, "updates": 11, "hours": 1}


def test_a_file_without_numbers_is_refused(tmp_path):
    """Otherwise it would look like a test set with nothing to measure."""
    (tmp_path / "numbers").touch()
    with pytest.raises(UserError, match="numbers has 0 lines, and not one for each of the sentences"):
        mean_of_file(str(tmp_path / "numbers"), None)


def test_a_row_for_every_seed(sweep, tmp_path):
    tables = ["--table", tmp_path / "means.json", "--seed-table", tmp_path / "a.csv"]
    results(sweep, "--gen-subset", "test", "valid", *tables)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert list(rows[0]) == ["system", "test set", "seed", "BLEU", "chrF2", "TER"]
    assert [tuple(row.values())[:3] for row in rows] == [
        (name, subset, seed) for name in ("recatt", "rnnsearch") for subset in ("test", "valid") for seed in "12"
    ]
    for row in json.loads((tmp_path / "means.json").read_text()):
        own = [float(one["TER"]) for one in rows if all(one[key] == row[key] for key in ("system", "test set"))]
        assert row["TER"] == pytest.approx(statistics.mean(own)) and len(own) == 2
    results(sweep, "--measure", "BLEU", "--seed-table", tmp_path / "one.json")
    assert [*json.loads((tmp_path / "one.json").read_text())[0]] == ["system", "seed", "BLEU"]


def test_pairs_are_of_seeds_that_both_have():
    scores = {"a": SCORES["a"], "b": {"easy": EASY[:1], "hard": [14.0, 25.0]}}
    rows = made(scores)
    assert [row["pairs"] for row in rows] == [None, None, 2, 2]
    assert (rows[2]["X ±"], rows[2]["X difference ±"], rows[2]["X p"]) == (None,) * 3
    assert [row["X verdict"] for row in rows] == [None, None, "open", "open"]
    del scores["b"]["easy"]
    assert [row["X verdict"] for row in made(scores)] == [None, None, "not tested", "open"]
    assert rows[3]["X difference"] == 4.5 and rows[3]["X difference ±"] == pytest.approx(0.5 * 12.7062, rel=1e-4)


def test_intervals_in_one_column_for_people_and_two_for_programs():
    headers, rows = ["system", "X"], [["a", Interval(1.25, 0.5, True)], ["b", Interval(-2.0, None, True)], ["c", None]]
    assert expanded(headers, rows) == (["system", "X", "X ±"], [["a", 1.25, 0.5], ["b", -2.0, None], ["c", None, None]])
    for form in ("simple", "github", "latex_booktabs"):
        lines = aligned(headers, rows, form=form)
        assert "+1.25 ± 0.50" in lines and "-2.00" in lines and "X ±" not in lines
    assert Interval(-0.004, 0.001, True).text(2) == "+0.00 ± 0.00"
    assert "a &#60;unk&#62; &#124; b" in aligned(["n-gram"], [["a <unk> | b"]], form="github")


def test_only_what_is_new_is_translated(runs, tmp_path):
    results(runs)
    made = {path: path.stat().st_mtime_ns for path in runs.glob("*/translations/test-*")}
    results(runs, "--table", tmp_path / "table.csv")
    assert {path: path.stat().st_mtime_ns for path in runs.glob("*/translations/test-*")} == made
    for times, more in ((2, ["--lenpen", "0.5"]), (3, ["--remove-bpe", "sentencepiece"])):
        results(runs, *more)
        assert len(list(runs.glob("*/translations/test-*"))) == times * len(made) > 0


def test_translations_replace_links_and_are_not_written_through_them(runs, tmp_path):
    """Links in a folder of runs from somebody else could point to files of the user."""
    [one, _] = sorted(runs.iterdir())
    results(one)
    paths = [next(one.glob(f"translations/test-*.{side}.txt")) for side in ("hypothesis", "reference")]
    texts = [path.read_text() for path in paths]
    (tmp_path / "mine").write_text("mine")
    for path, target in zip(paths, ("mine", "none")):
        path.unlink()
        path.symlink_to(tmp_path / target)
    results(one)
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "none").exists()
    assert [path.read_text() for path in paths] == texts and not any(path.is_symlink() for path in paths)


def untranslated(sweep, folder):
    """Copy a run without its translations, and return the copy."""
    run = shutil.copytree(next(sweep.glob("rnnsearch-1-*")), folder)
    shutil.rmtree(run / "translations", ignore_errors=True)
    return run


def test_other_data_in_the_same_folder_are_translated_again(sweep, tmp_path):
    run = untranslated(sweep, tmp_path / "run")
    data = shutil.copytree(find_runs([str(run)], "checkpoint_best.pt")[0].data, tmp_path / "data")
    (tmp_path / "shard").mkdir()  # of more training data: fairseq takes test sets from the first folder
    folders = f"{data}{os.pathsep}{tmp_path / 'shard'}"
    results(run, "--data", folders)
    for path in data.glob("valid.*"):
        shutil.copy(path, str(path).replace("valid.", "test."))
    (data / "test.old").mkdir()  # not a file of the test set
    results(run, "--data", folders)
    old, new = sorted(run.glob("translations/*.hypothesis.txt"), key=lambda path: path.stat().st_mtime_ns)
    assert old.read_text() != new.read_text()
    shutil.rmtree(data)  # which of both were its last is not known
    assert main(["results", str(run), "--data", folders, *SEARCH]) == 2


def test_strings_are_translated_again_if_their_development_set_changes(tmp_path, monkeypatch):
    """Strings may have their validation set as dev.tsv."""
    texts = systems.Text("", [], list)
    for name, made in (("load", SimpleNamespace(task=None)), ("read_subset", texts), ("generate", texts)):
        monkeypatch.setattr(systems, name, lambda *arguments, made=made: made)
    (tmp_path / "checkpoint").touch()
    run = Run(tmp_path, tmp_path / "checkpoint", str(tmp_path), 1, "dl4mt", {}, 1, 1, 1.0)
    options = argparse.Namespace(data=None, cpu=True, remove_bpe=None, **systems.SEARCH)
    paths = []
    for text in ("a\tb\n", "a\tb\n", "a\tc\n"):
        (tmp_path / "dev.tsv").write_text(text)
        paths.append(translate(run, "valid", options).path)
    assert paths[0] == paths[1] != paths[2]


def test_translations_go_with_what_the_data_folder_holds(sweep, tmp_path, capfd):
    """Translations stay valid if the data folder moves, if its files have new times, and if it is gone."""
    run = untranslated(sweep, tmp_path / "run")
    data = shutil.copytree(find_runs([str(run)], "checkpoint_best.pt")[0].data, tmp_path / "data")
    results(run, "--data", data)
    made = {path: path.stat().st_mtime_ns for path in run.glob("translations/*")}
    for path in data.glob("*"):
        path.touch()
    results(run, "--data", data.rename(tmp_path / "moved"))
    shutil.rmtree(tmp_path / "moved")
    assert "earlier translations" not in capfd.readouterr().err
    results(run, "--data", data)
    assert f"there are no data of 'test' in {data}: earlier translations in {run}" in capfd.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.glob("translations/*")} == made
    assert main(["results", str(run), "--data", str(data), *SEARCH, "--lenpen", "0.5"]) == 2


def test_a_run_in_a_folder_with_a_colon(sweep, tmp_path):
    run = untranslated(sweep, tmp_path / "10:30")
    results(run)
    assert len([*run.glob("translations/*.hypothesis.txt")]) == 1


@pytest.mark.parametrize("suffix,beginning", [("tex", "\\begin{tabular}"), ("md", "| system"), ("csv", "system,seeds")])
def test_formats(suffix, beginning, sweep, tmp_path):
    """Every format has the numbers of the JSON table."""
    baseline = ["--baseline", "rnnsearch"]
    results(sweep, *baseline, "--table", tmp_path / f"table.{suffix}")
    text = (tmp_path / f"table.{suffix}").read_text()
    assert text.startswith(beginning)
    results(sweep, *baseline, "--table", tmp_path / "table.json")
    rows = json.loads((tmp_path / "table.json").read_text())
    if suffix == "csv":
        found = list(csv.DictReader(text.splitlines()))
        assert found == [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
    else:
        for row in rows:
            assert f"{row['BLEU']:.2f} ± {row['BLEU ±']:.2f}" in text
        assert f"{rows[1]['BLEU difference']:+.2f} ± {rows[1]['BLEU difference ±']:.2f}" in text


def test_any_measure_from_files_of_one_number_a_sentence(sweep, tmp_path, capfd):
    sweep = shutil.copytree(sweep, tmp_path / "sweep", ignore=shutil.ignore_patterns("translations"))
    results(sweep)
    values = {}
    for path in sweep.glob("*/translations/test-*.hypothesis.txt"):
        numbers = [len(line.split()) for line in path.read_text().splitlines()]
        path.with_name(path.name.replace("hypothesis.txt", "words")).write_text("".join(f"{n}\n" for n in numbers))
        values.setdefault(path.parts[-3].partition("-")[0], []).append(statistics.mean(numbers))
    results(sweep, "--measure", "words={translations}.words", "--table", tmp_path / "table.json")
    rows = json.loads((tmp_path / "table.json").read_text())
    assert {row["system"]: row["words"] for row in rows} == pytest.approx(
        {name: statistics.mean(several) for name, several in values.items()}
    )
    assert "BLEU" not in rows[0]
    broken = tmp_path / "words"
    for text, message in (
        ("1\n2\n", "has 2 lines, and not one for each of 12"),
        ("1\nx\n", "line 2: 'x' is not a number"),
        ("1\n-inf\n", "line 2: '-inf' is not a number"),
        ("1\n1_5\n", "line 2: '1_5' is not a number"),
    ):
        broken.write_text(text)
        assert main(["results", str(sweep), "--measure", f"words={broken}", "--measure", "BLEU", *SEARCH]) == 2
        assert message in capfd.readouterr().err
    for text, mean in (("nan\n" * 11 + "3\n", "3.00"), ("nan\n" * 12, None)):  # a sentence, or all, without
        broken.write_text(text)
        results(sweep, "--measure", f"words={broken}", "--baseline", "recatt", "--table", tmp_path / "table.json")
        [row, *_] = json.loads((tmp_path / "table.json").read_text())
        assert row["words"] == (mean and float(mean))
    for folder in sweep.iterdir():  # nothing has to be translated
        if folder.is_dir() and not folder.name.startswith("."):
            (folder / "valid.length").write_text(f"{len(folder.name)}\n")
    results(sweep, "--gen-subset", "valid", "--measure", "length={folder}/{subset}.length", "--baseline", "recatt")
    assert "+3.00" in capfd.readouterr().out
    results(sweep, "--gen-subset", "valid", "--measure", "length={folder}/{subset}.length", "--digits", "1")
    assert "15.0" in (out := capfd.readouterr().out) and "15.00" not in out


def test_pictures(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    results(sweep, "--curves", tmp_path / "curves.png", "--plot", tmp_path / "scores.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("curves.png", "scores.png"))
    [first, *_] = find_runs([str(sweep)], "checkpoint_best.pt")
    results(sweep, "--gen-subset", "test", "valid", "--dial", "set=1,2", "--plot", tmp_path / "dial.png")
    assert (tmp_path / "dial.png").stat().st_size > 1000
    results(sweep, "--gen-subset", "--curves", tmp_path / "alone.png", "--table", tmp_path / "table.csv")
    assert (tmp_path / "alone.png").read_bytes() == (tmp_path / "curves.png").read_bytes()
    assert (tmp_path / "table.csv").read_text().startswith("system,seeds,parameters,updates,hours\n")
    points = curve(first, "loss")
    assert len(points) == 3 and points[0][1] > points[-1][1]


def test_a_folder_that_is_a_link_and_a_line_too_long_for_ter(sweep, tmp_path, capfd):
    pytest.importorskip("matplotlib")
    results(sweep)
    run = shutil.copytree(next(sweep.glob("rnnsearch-1-*")), tmp_path / "run")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(run)
    for path in run.glob("translations/*.hypothesis.txt"):
        path.write_text("ant " * 301 + "\n" + path.read_text().split("\n", 1)[1])
    capfd.readouterr()
    results(tmp_path / "runs", "--table", tmp_path / "table.json", "--plot", tmp_path / "scores.png")
    assert capfd.readouterr().err == "TER is left out: a line has 301 words, over the limit of 300\n"
    [row] = json.loads((tmp_path / "table.json").read_text())
    assert row["system"] == "rnnsearch" and row["BLEU"] > 0 and row["TER"] is None
    assert (tmp_path / "scores.png").stat().st_size > 1000


def test_names_of_systems(sweep):
    """Systems of one architecture are named after the options that differ, except seeds and folders."""
    runs = find_runs([str(sweep)], "checkpoint_best.pt")
    assert runs[0].options["common.fp16"] == "False" and runs[0].options["checkpoint.finetune_from_model"] == "None"
    for more, name in (
        ({"common.fp16": "True"}, "recatt fp16=True"),
        ({"checkpoint.finetune_from_model": "a.pt"}, "recatt finetune_from_model=a.pt"),
    ):
        other = runs[0]._replace(options={**runs[0].options, **more}, seed=9)
        assert name in by_system([*runs, other])
    faster = {f"{group}.lr": "[0.1]" for group in ("optimization", "optimizer", "lr_scheduler")}
    other = runs[0]._replace(options={**runs[0].options, **faster}, seed=9)
    assert set(by_system([*runs, other])) == {"recatt lr=[0.01]", "recatt lr=[0.1]", "rnnsearch"}
    changed = runs[0]._replace(options={**runs[0].options, "model.dropout": "0.3"}, seed=9)
    assert set(by_system([*runs, changed])) == {"recatt", "recatt dropout=0.3", "rnnsearch"}
    costs = {"criterion._name": "costs", "criterion.a": "0", "criterion.b": "1", "criterion.c": "None"}
    other = runs[0]._replace(options={**runs[0].options, **costs}, seed=8)
    heavier = other._replace(options={**other.options, "criterion.a": "2"}, seed=7)
    plain = f"recatt criterion={runs[0].options['criterion._name']}"
    assert set(by_system([*runs, other])) == {plain, "recatt criterion=costs", "rnnsearch"}
    names = {plain, "recatt criterion=costs a=0", "recatt criterion=costs a=2", "rnnsearch"}
    assert set(by_system([*runs, other, heavier])) == names


def test_where_a_run_is_trained_makes_no_system():
    """A sweep's folders are not named after these options, and a path of data may be relative or absolute."""
    sweep = Path(USER_DIR, "config", "sweep.yaml").read_text()
    [keys] = re.findall(r"exclude_keys: \[(.*)\]", sweep)
    assert all(IGNORED.fullmatch(key.partition(".")[2]) for key in keys.split(", ") if key != "model._name")
    state = {"cfg": {"task": {"data": "a:b"}, "common": {"seed": 1}, "model": {"_name": "rnnsearch"}}, "model": {}}
    state |= {"extra_state": {"previous_training_time": 1}, "optimizer_history": [{"num_updates": 1}]}
    runs = [read_run(Path("one/best.pt"), state)]
    data = f"{os.path.abspath('a')}:{os.path.abspath('b')}"
    state["cfg"] = {**state["cfg"], "task": {"data": data}, "common": {"seed": 2, "cpu": True}}
    state["cfg"] |= {"checkpoint": {"save_interval": 2}, "dataset": {"num_workers": 2}}
    together = ["no_progress_bar", "restore_file", "log_interval", "tensorboard_logdir", "save_dir", "arch"]
    state["cfg"]["model"] = {"_name": "rnnsearch", **dict.fromkeys(together, "x")}  # as stock models have them
    runs.append(read_run(Path("two/best.pt"), state))
    assert [*by_system(runs)] == ["rnnsearch"] and [run.data for run in runs] == ["a:b", data]
    assert [run.folder for run in runs] == [Path("one"), Path("two")]


@pytest.mark.parametrize("group, option", [
    ("common", "amp"),
    ("checkpoint", "best_checkpoint_metric"),
    ("distributed_training", "distributed_world_size"),
    ("dataset", "batch_size"),
    ("optimization", "update_freq"),
])  # fmt: skip
def test_what_changes_a_training_makes_a_system(group, option):
    state = {"cfg": {"task": {"data": "a"}, "common": {"seed": 1}, "model": {"_name": "rnnsearch"}}, "model": {}}
    state |= {"extra_state": {"previous_training_time": 1}, "optimizer_history": [{"num_updates": 1}]}
    runs = []
    for value in (1, 2):
        state["cfg"][group] = {**state["cfg"].get(group, {}), option: value}
        runs.append(read_run(Path("run/best.pt"), state))
    assert [*by_system(runs)] == [f"rnnsearch {option}=1", f"rnnsearch {option}=2"]


def test_what_a_table_cannot_show_is_said(sweep, tmp_path, capfd):
    """Messages name a run that is not finished, one without a checkpoint, and a baseline with another training."""
    names = sorted(path.name for path in sweep.iterdir() if path.is_dir())
    for name in names:
        shutil.copytree(sweep / name, tmp_path / name)
    (tmp_path / "begun" / ".hydra").mkdir(parents=True)
    (tmp_path / "begun" / ".hydra" / "overrides.yaml").write_text("[]")
    for path in (tmp_path / names[0]).glob("checkpoints/*.pt"):
        state = torch.load(path, weights_only=False)
        state["cfg"]["optimization"].update(max_epoch=9, max_update=5000)
        torch.save(state, path)
    [broken] = (tmp_path / names[-1]).glob("checkpoints/checkpoint_last.pt")
    broken.write_bytes(broken.read_bytes()[:99])
    results(tmp_path, "--measure", "BLEU", "--baseline", "recatt max_epoch=3 max_update=0")
    said = capfd.readouterr().err
    made = state["optimizer_history"][-1]["num_updates"]
    assert f"{tmp_path / 'begun'}: there is no checkpoint_best.pt yet, so this run is left out" in said
    assert f"{tmp_path / names[0]}: this training has made {made} of 5000 updates" in said
    assert re.search(f"{re.escape(str(broken))}: .*: whether this training has ended is not known", said)
    assert said.count("this training has made") == 1 and "differ in more" not in said
    longer = "recatt max_epoch=9 max_update=5000"
    results(tmp_path, "--measure", "BLEU", "--baseline", longer)
    said = capfd.readouterr().err
    assert f"rnnsearch and {longer} differ in more than the model: max_epoch, max_update\n" in said
    assert said.count("differ in more") == 1  # what a name says is not said again


@pytest.mark.parametrize(("limits", "said"), [
    ({"max_epoch": 3}, ""),
    ({"max_epoch": 4}, "3 of 4 epochs"),
    ({"max_update": 30}, ""),
    ({"max_update": 31}, "30 of 31 updates"),
    ({"max_epoch": 3, "max_update": 31}, ""),
    ({"max_epoch": 4, "max_update": 30}, ""),
    ({"max_epoch": 4, "patience": 2}, ""),
    ({"max_epoch": 4, "stop_time_hours": 2}, ""),
    ({"max_epoch": 4, "stop_min_lr": 1e-6}, ""),
    ({"max_epoch": 4, "stop_min_lr": -1.0, "patience": -1}, "3 of 4 epochs"),  # fairseq's defaults
    ({}, ""),
])  # fmt: skip
def test_a_training_that_may_be_unfinished(limits, said, capsys):
    state = {"cfg": {"optimization": limits}, "extra_state": {"train_iterator": {"epoch": 4}}}
    state["optimizer_history"] = [{"num_updates": 30}]
    warn_of_unfinished(Path("run"), state)
    assert capsys.readouterr().err == (f"run: this training has made {said}\n" if said else "")
    if "max_update" not in limits:  # a checkpoint may not know its epoch
        warn_of_unfinished(Path("run"), {**state, "extra_state": {}})
        assert not capsys.readouterr().err


def test_a_run_without_a_last_checkpoint_is_no_problem(runs, tmp_path, capfd):
    for path in runs.glob("*/checkpoints/checkpoint_last.pt"):
        path.unlink()
    results(runs, "--gen-subset")
    assert not capfd.readouterr().err


@pytest.mark.parametrize("change", [
    lambda state: state["cfg"]["optimization"].update(max_update="many"),
    lambda state: state["extra_state"].update(train_iterator=[1]),
])  # fmt: skip
def test_a_last_checkpoint_with_a_limit_or_an_epoch_that_is_no_number(runs, change, capfd):
    path = min(runs.glob("*/checkpoints/checkpoint_last.pt"))
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, path)
    results(runs, "--gen-subset")
    said = rf"{re.escape(str(path))} is damaged \(.*\): whether this training has ended is not known\n"
    assert re.fullmatch(said, capfd.readouterr().err)


def test_where_a_task_differs_its_options_are_not_named_too(capsys):
    one = Run(
        Path("one"), Path("one/best.pt"), "data", 1, "one", {"task._name": "a", "task.x": "1", "task.z": "1"}, 1, 1, 1.0
    )
    other = one._replace(name="other", options={"task._name": "b", "task.z": "2", "dataset.batch_size": "3"})
    warn_of_differences({"one": [one], "other": [other]}, "one")
    assert capsys.readouterr().err.endswith("other and one differ in more than the model: batch_size, task, z\n")
    warn_of_differences({"one": [one], "other batch_size=3 my_task=b": [other]}, "one")
    assert capsys.readouterr().err.endswith(" differ in more than the model: task, z\n")


def test_names_that_are_given(sweep, tmp_path, capfd):
    table = ["--gen-subset", "--table", str(tmp_path / "table.csv")]
    results(f"{sweep}/rec*", f"{sweep}/rnn*", "--name", "RecAtt", "--name", "ours", *table)
    assert [line.partition(",")[0] for line in (tmp_path / "table.csv").read_text().splitlines()[1:]] == [
        "RecAtt",
        "ours",
    ]
    for folders, names in ((1, 2), (2, 1)):
        capfd.readouterr()
        assert main(["results", *[str(sweep)] * folders, *["--name", "a"] * names]) == 2
        assert f"{names} --name for {folders} folders" in capfd.readouterr().err


def test_curves_have_no_line_without_points(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    runs = find_runs([str(sweep)], "checkpoint_best.pt")
    nowhere = runs[0]._replace(folder=tmp_path, checkpoint=tmp_path / "x")
    axes = draw_curves({"silent": [nowhere], "rnnsearch": runs[2:]}, "loss").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["rnnsearch"]
    assert [line.get_marker() for line in axes.get_lines() if len(line.get_xdata())] == ["$1$", "$2$"]


def test_of_two_logs_the_newer_counts(sweep, tmp_path):
    run = find_runs([str(sweep)], "checkpoint_best.pt")[0]._replace(folder=tmp_path, checkpoint=tmp_path / "x")
    for name, age, ppl in (("b.log", 2, 10.5), ("a.log", 1, 9.5), ("c.log", 3, 11.5)):
        (tmp_path / name).write_text(f"valid | epoch 001 | valid on 'valid' subset | ppl {ppl} | num_updates 5\n")
        os.utime(tmp_path / name, (100 - age, 100 - age))
    assert curve(run, "ppl") == [(5, 9.5)]
    pytest.importorskip("matplotlib")
    line, _ = draw_curves({"rnnsearch": [run]}, "ppl").axes[0].get_lines()
    assert line.get_markevery() == 1  # of a single validation, too, something is seen


def test_only_files_are_logs_and_the_last_name_counts_of_equally_old_ones(tmp_path):
    """TensorBoard's folder may have the name of a log, and a link may be broken."""
    (tmp_path / "board.log").mkdir()
    (tmp_path / "old.log").symlink_to(tmp_path / "none")
    for number in range(9):
        path = tmp_path / f"{number}.log"
        path.write_text(f"valid on 'valid' subset | ppl {number} | num_updates 5\n")
        os.utime(path, (100, 100))
    run = RUN._replace(folder=tmp_path, checkpoint=tmp_path / "checkpoints" / "x")
    assert curve(run, "ppl") == [(5, 8)]
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "0.log").write_text("valid on 'valid' subset | ppl 7.5 | num_updates 6\n")
    assert curve(run, "ppl") == [(5, 8), (6, 7.5)]


def test_tied_matrices_count_once():
    tied, names = torch.randn(5, 4), ("embed_tokens.weight", "output_projection.weight")
    tensors = {name: tied.clone() for name in names} | {"one.bias": torch.zeros(5), "other.bias": torch.zeros(5)}
    for kind in (torch.float32, torch.bfloat16):
        model = {name: tensor.to(kind) for name, tensor in tensors.items()}
        others = {"decoder.version": torch.tensor([3.0]), "dictionary_version": torch.tensor([1, 2])}
        others |= {"a.weight": torch.zeros(2, 3), "b.weight": torch.zeros(3, 2)}  # of equal numbers, and not tied
        assert count_parameters({**model, **others}) == 20 + 5 + 5 + 6 + 6


def test_a_curve_is_of_the_first_validation_set(sweep, tmp_path):
    logged = ["valid | epoch 001 | valid on 'valid' subset | ppl 10.5 | num_updates 5",
              "valid1 | epoch 001 | valid on 'valid1' subset | ppl 900 | num_updates 5"]  # fmt: skip
    (tmp_path / "train.log").write_text("\n".join([*logged, ""]))
    run = find_runs([str(sweep)], "checkpoint_best.pt")[0]._replace(folder=tmp_path, checkpoint=tmp_path / "x")
    assert curve(run, "ppl") == [(5, 10.5)]


def test_pictures_are_of_what_every_system_has(sweep):
    """TER is left out where a line is too long."""
    pytest.importorskip("matplotlib")
    found = [*by_system(find_runs([str(sweep)], "checkpoint_best.pt"))]
    bleu = {Place(name, subset, "BLEU"): {1: 30.0} for name in found for subset in ("test", "test1")}
    over_a_dial = partial(draw_dial, subsets=["test", "test1"], dial=Dial("length", ["1", "2"]))
    for draw in (partial(draw_scores, subset="test"), over_a_dial):
        figure = draw(found, {**bleu, Place("recatt", "test", "TER"): {1: 50.0}})
        assert len(figure.axes) == 1
        with pytest.raises(UserError, match="no measure is there for every system"):
            draw(found, {Place("recatt", "test", "TER"): {1: 50.0}})


@pytest.mark.parametrize("arguments,message", [
    (["nothing"], "nothing: there is no such folder"),
    (["--baseline", "lstm"], "--baseline lstm: there are recatt, rnnsearch"),
    (["--reference", "a", "b"], "2 --reference for 1 --gen-subset"),
    (["--gen-subset", "--plot", "p.png"], "--plot draws scores: name a --gen-subset"),
    (["--gen-subset", "test", "valid", "--plot", "p.png"], "--plot draws one test set, and there are 2"),
    (["--less-is-better", "BLEU"], "--less-is-better is for verdicts: name a --baseline"),
    (["--measure", "BLEU", "--measure", "BLEU=scores"], "--measure BLEU is given twice"),
    (["--gen-subset", "--seed-table", "s.csv"], "--seed-table has scores: name a --gen-subset"),
    (["--seed-table", "seeds.txt"], "must end in .csv or .json, .tex or .md"),
    (["--dial", "x=1,2"], "--dial has 2 values for 1 --gen-subset"),
    (["--digits", "16"], "argument --digits: invalid choice: 16 (choose from 0, 1, 2"),
    (["--dial", "x"], "'x' is not a name and its values"),
    (["--margin", "5"], "name a --baseline"),
    (["--measure", "METEOR"], "--measure METEOR: there are BLEU, chrF2, TER"),
    (["--less-is-better", "x"], "--less-is-better x: the measures are BLEU, chrF2, TER"),
    (["--measure", "x={translations}.none"], ".none cannot be read"),
    (["--gen-subset", "dev"], "split 'dev' cannot be loaded"),
    (["--table", "results.txt"], "must end in .csv or .json, .tex or .md"),
    (["--curve-measure", "bleu", "--curves", "c.png"], "has 'bleu' of a validation"),
    (["--gen-subset", "test", "test"], "--gen-subset test is given twice"),
    (["--gen-subset", "--measure", "accuracy"], "--measure needs a test set: name a --gen-subset"),
    (["--data", "bin", "--gen-subset"], "--data needs a measure of translations, and none is given"),
    (["--gen-subset", "--beam", "2"], "--beam needs a measure of translations, and none is given"),
    (["--measure", "x=scores", "--tokenize", "13a"], "--tokenize needs a measure of translations"),
    (["--measure", "x=scores", "--reference", "text"], "--reference needs a measure of translations"),
    (["--measure", "x=scores", "--remove-bpe"], "--remove-bpe needs a measure of translations"),
    (["--tokenize", "13a"], "--tokenize 13a would cut the reference's <<unk>>: give the raw text as --reference"),
])  # fmt: skip
def test_one_sentence(arguments, message, sweep, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    folders = [] if arguments == ["nothing"] else [str(sweep)]
    assert main(["results", *folders, *arguments, *searched(arguments)]) == 2
    error = capfd.readouterr().err
    assert message in error and "Traceback" not in error and not list(tmp_path.iterdir())


def test_a_reference_of_another_length(sweep, tmp_path, capfd):
    for text in ("", "ant\n"):
        (tmp_path / "reference").write_text(text)
        assert main(["results", str(sweep), "--reference", str(tmp_path / "reference"), *SEARCH]) == 2
        assert f"'test' has 12 sentences in the data of {sweep}" in capfd.readouterr().err


def test_a_log_that_was_cut_off(sweep, tmp_path):
    line = "valid | epoch 001 | valid on 'valid' subset | loss 3.5 | ppl 1e+06 | num_updates 7 | best_loss nan"
    (tmp_path / "train.log").write_text(f"{line}\n{line[:70]}\n{line[:-22]}")
    [run, *_] = find_runs([str(sweep)], "checkpoint_best.pt")
    assert curve(run._replace(folder=tmp_path, checkpoint=tmp_path / "x"), "ppl") == [(7, 1e6)]


def test_a_log_of_a_long_training_that_diverged(sweep, tmp_path):
    """fairseq logs large numbers of updates in scientific notation; infinity and NaN are no points."""
    logged = [("9.5", "999999"), ("9.25", "1e+06"), ("inf", "1.1e+06"), ("nan", "1.2e+06"), ("9", "1.23457e+06")]
    lines = [f"valid | epoch 001 | valid on 'valid' subset | ppl {ppl} | num_updates {n}" for ppl, n in logged]
    (tmp_path / "train.log").write_text("\n".join(lines))
    run = find_runs([str(sweep)], "checkpoint_best.pt")[0]._replace(folder=tmp_path, checkpoint=tmp_path / "x")
    assert curve(run, "ppl") == [(999_999, 9.5), (1_000_000, 9.25), (1_234_570, 9)]
    pytest.importorskip("matplotlib")
    (tmp_path / "train.log").write_text("\n".join(lines[2:4]))
    with pytest.raises(UserError, match="'ppl' of a validation, or none that is finite"):
        draw_curves({"rnnsearch": [run]}, "ppl")


def test_the_same_run_twice(sweep, capfd):
    assert main(["results", str(sweep), str(sweep), *SEARCH]) == 2
    assert "leave one out" in capfd.readouterr().err


def test_a_system_without_any_score_is_not_tested():
    rows = made({"a": SCORES["a"], "b": {}})
    assert [row["X verdict"] for row in rows] == [None, None, "not tested", "not tested"]


def test_a_measure_of_a_file_is_the_files(sweep, tmp_path):
    """A measure of a file may have the name of one that is computed together with another measure."""
    (tmp_path / "numbers").write_text("7\n" * 12)
    measures = ["--measure", "1-gram BLEU", "--measure", f"1-gram precision={tmp_path / 'numbers'}"]
    results(sweep, *measures, "--table", tmp_path / "table.json")
    rows = json.loads((tmp_path / "table.json").read_text())
    assert {row["1-gram precision"] for row in rows} == {7.0} != {row["1-gram BLEU"] for row in rows}


def test_names_of_measures_are_no_formulas(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "numbers").write_text("7\n" * 12)
    results(sweep, "--measure", rf"a$\bad$={tmp_path / 'numbers'}", "--plot", tmp_path / "scores.png")
    assert (tmp_path / "scores.png").stat().st_size > 1000


def test_options_of_one_name_in_two_groups_are_two_systems():
    given = {"task.foo": "1", "criterion.foo": "2"}, {"task.foo": "2", "criterion.foo": "1"}
    runs = [RUN._replace(name="m", seed=seed, options=options) for seed, options in enumerate(given)]
    assert [*by_system(runs)] == ["m criterion.foo=2 task.foo=1", "m criterion.foo=1 task.foo=2"]


def test_components_precede_options_in_the_names_of_systems():
    given = {"model.x": "1", "task._name": "a"}, {"model.x": "2", "task._name": "b"}
    runs = [RUN._replace(name="m", options=options) for options in given]
    assert [*by_system(runs)] == ["m task=a x=1", "m task=b x=2"]


def test_markdown_has_no_markup_of_a_cell():
    table = aligned(["word"], [["*x* ~~y~~ _z_ a_b __init__"]], form="github")
    assert not re.search(r"[*~]|(?<![^\W_])_|_(?![^\W_])", table) and "a_b" in table


def test_a_table_without_rows_has_its_headers():
    assert "word" in aligned(["word", "count"], [])


def test_printed_columns_are_aligned_by_the_cells_of_a_terminal():
    """Wide characters take two, and marks none."""
    rows = [["猫が好き", 1, None], ["a\u0301\u0323", 23, "x"]]
    assert aligned(["word", "count", "猫"], rows) == (
        "word        count  猫\n--------  -------  ----\n猫が好き        1\na\u0301\u0323              23  x"
    )


def test_no_minus_precedes_zeros():
    rows = [[-0.0004], [-0.0006], [Interval(-0.0004, None)], [Interval(-0.0004, None, True)]]
    assert aligned(["tau"], rows, {"tau": 3}).split()[2:] == ["0.000", "-0.001", "0.000", "+0.000"]


def test_a_new_checkpoint_is_translated_again(runs):
    """A training that goes on writes new checkpoints under the same name."""
    [run], [later] = (find_runs([str(folder)], "checkpoint_best.pt") for folder in sorted(runs.iterdir()))
    results(run.folder)
    shutil.copy(later.checkpoint, run.checkpoint)
    for folder in (run.folder, later.folder):
        results(folder)
    paths = sorted(run.folder.glob("translations/*.hypothesis.txt"), key=lambda path: path.stat().st_mtime_ns)
    [expected] = later.folder.glob("translations/*.hypothesis.txt")
    assert len(paths) == 2 and paths[1].read_text() == expected.read_text()


def test_updates_and_hours_are_the_checkpoints():
    """The last entry of the history counts, since the optimizer may have been another one before."""
    state = {"cfg": {"task": {"data": "bin"}, "common": {"seed": 3}, "model": {"_name": "dl4mt"}}, "model": {}}
    state |= {"extra_state": {"previous_training_time": 5400.0}}
    state |= {"optimizer_history": [{"num_updates": 7}, {"num_updates": 9}]}
    run = read_run(Path("a", "checkpoints", "checkpoint_best.pt"), state)
    assert (run.folder, run.updates, run.hours) == (Path("a"), 9, 1.5)


def test_lines_over_a_dial_are_means_and_bands_their_intervals():
    """With one seed, the band has a gap; without any seed, the line has no point."""
    pytest.importorskip("matplotlib")
    scores = {"a": {"easy": [1.0, 3.0], "hard": [5.0]}, "b": {"hard": [2.0, 4.0]}}
    places = {
        Place(name, subset, "X"): dict(enumerate(values))
        for name, subsets in scores.items()
        for subset, values in subsets.items()
    }
    (axes,) = draw_dial(["a", "b"], places, ["easy", "hard"], DIAL).axes
    assert [line.get_xydata().tolist() for line in axes.get_lines()] == [[[0, 2], [1, 5]], [[1, 3]]]
    for band, x, centre in zip(axes.collections, (0, 1), (2, 3), strict=True):
        ends = [statistic(point.tolist()) for point in band.get_paths()[0].vertices.T for statistic in (min, max)]
        assert ends == pytest.approx([x, x, centre - 12.7062, centre + 12.7062], rel=1e-4)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]


def test_a_line_is_at_the_mean_of_the_scores():
    pytest.importorskip("matplotlib")
    place = Place("a", "test", "X")
    (axes,) = draw_scores(["a"], {place: {1: 10.0, 2: 40.0}}, "test").axes
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [10, 40, 25]


@pytest.mark.parametrize("dark", [False, True])
def test_eighteen_systems_have_eighteen_colours(tmp_path, dark):
    matplotlib = pytest.importorskip("matplotlib")
    names = [f"system {k}" for k in range(18)]
    places = {Place(name, "test", "X"): {1: 1.0} for name in names}
    with picture(str(tmp_path / "p.png"), dark):
        (axes,) = draw_dial(names, places, ["test"], DIAL).axes
        colours = {matplotlib.colors.to_hex(line.get_color()) for line in axes.get_lines()}
    assert len(colours) == 18

"""One table of many runs."""

import json
import shutil
import statistics

import pytest
from corpus import SIZES, USER_DIR, preprocess, run, write_corpus
from sacrebleu import corpus_bleu

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.verbs.results import curve, find_runs, systems

SEARCH = ["--cpu", "--beam", "2", "--max-len-b", "10"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
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
    assert main(["results", *map(str, arguments), *SEARCH]) == 0


def test_means_deviations_and_significance(sweep, tmp_path, capfd):
    results(sweep, "--baseline", "rnnsearch", "--bootstrap", 100, "--table", tmp_path / "table.json")
    rows = {row["system"]: row for row in json.loads((tmp_path / "table.json").read_text())}
    assert list(rows) == ["recatt", "rnnsearch"]
    for name, row in rows.items():
        scores = []
        for seed in (1, 2):
            [folder] = sweep.glob(f"{name}-{seed}-*/translations")
            [hypothesis], [reference] = ([*folder.glob(f"test-*.{side}.txt")] for side in ("hypothesis", "reference"))
            texts = [path.read_text().splitlines() for path in (hypothesis, reference)]
            assert len(texts[0]) == len(texts[1]) == 12 and "<<unk>>" in texts[1][3]
            scores.append(corpus_bleu(texts[0], [texts[1]], tokenize="none", force=True).score)
        assert row["BLEU"] == pytest.approx(statistics.mean(scores))
        assert row["BLEU ±"] == pytest.approx(statistics.stdev(scores))
        assert row["seeds"] == 2 and row["parameters"] > 1000 and row["updates"] > 0
    assert rows["rnnsearch"]["BLEU p"] is None and 0 < rows["recatt"]["BLEU p"] <= 1
    assert "rnnsearch" in capfd.readouterr().out


def test_only_what_is_new_is_translated(sweep, tmp_path):
    results(sweep)
    made = {path: path.stat().st_mtime_ns for path in sweep.glob("*/translations/*")}
    results(sweep, "--table", tmp_path / "table.csv")
    assert {path: path.stat().st_mtime_ns for path in sweep.glob("*/translations/*")} == made
    results(sweep, "--lenpen", "0.5")
    assert len(list(sweep.glob("*/translations/*"))) == 2 * len(made)


@pytest.mark.parametrize("suffix,beginning", [("tex", "\\begin{tabular}"), ("md", "| system"), ("csv", "system,seeds")])
def test_formats(suffix, beginning, sweep, tmp_path):
    results(sweep, "--table", tmp_path / f"table.{suffix}")
    assert (tmp_path / f"table.{suffix}").read_text().startswith(beginning)


def test_pictures(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    results(sweep, "--curves", tmp_path / "curves.png", "--plot", tmp_path / "scores.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("curves.png", "scores.png"))
    [first, *_] = find_runs([str(sweep)], "checkpoint_best.pt")
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
    """Those of one architecture are told apart by the options in which they differ; seeds and folders are none."""
    runs = find_runs([str(sweep)], "checkpoint_best.pt")
    changed = runs[0]._replace(options={**runs[0].options, "dropout": "0.3"}, seed=9)
    assert set(systems([*runs, changed])) == {"recatt dropout=None", "recatt dropout=0.3", "rnnsearch"}


@pytest.mark.parametrize("arguments,message", [
    (["nothing"], "nothing: there is no checkpoint_best.pt in it or under it"),
    (["--baseline", "lstm"], "--baseline lstm: there are recatt, rnnsearch"),
    (["--reference", "a", "b"], "2 --reference for 1 --gen-subset"),
    (["--gen-subset", "--plot", "p.png"], "--plot draws scores: name a --gen-subset"),
    (["--gen-subset", "dev"], "split 'dev' cannot be loaded"),
    (["--table", "results.txt"], "must end in .csv or .json, .tex or .md"),
    (["--curve-measure", "bleu", "--curves", "c.png"], "has 'bleu' of a validation"),
])  # fmt: skip
def test_one_sentence(arguments, message, sweep, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    folders = [] if arguments == ["nothing"] else [str(sweep)]
    assert main(["results", *folders, *arguments, *SEARCH]) == 2
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


def test_the_same_run_twice(sweep, capfd):
    assert main(["results", str(sweep), str(sweep), *SEARCH]) == 2
    assert "leave one out" in capfd.readouterr().err

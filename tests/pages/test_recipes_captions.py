"""The queue of the captions' table, on a hundred lines, and the plan, which has every open finding once."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import corpus
import pytest
from corpus import ROOT, script
from test_recipes_settings import put
from test_recipes_shell import STUBS

pytestmark = pytest.mark.more

EXAMPLES = ROOT / "examples"
CAPTIONS = EXAMPLES / "captions"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A function that runs a command with tiny models in a copy of the recipe's folder, which has ``TEXT``."""
    folder, commands = tmp_path_factory.mktemp("examples") / "examples", tmp_path_factory.mktemp("commands")
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("*.png"))
    text = folder / "captions" / "TEXT"
    text.mkdir()
    corpus.write_corpus(text, train=88)
    for split, names in (("train", ["train"]), ("test", ["val", "test_2016_flickr", "test_2017_flickr"])):
        for language, side in (("en", "xx"), ("de", "yy")):
            for name in names:
                shutil.copy(text / f"{split}.{side}", text / f"{name}.{language}")
    train = STUBS["fairseq-train"].replace("--max-update $updates", "")
    python = f"case $1 in *tag.py) sed -E 's/[^ ]+/content/g' ;; *) exec {sys.executable} \"$@\" ;; esac"
    for name, shell in {**STUBS, "fairseq-train": train, "python": python}.items():
        put(commands / name, shell)
    put(folder / "common" / "fetch_multi30k.sh", "")
    warm = corpus.warm()
    path = os.pathsep.join(map(str, (commands, warm, corpus.SCRIPTS, os.environ["PATH"])))

    def run(command, **environment):
        environment = {
            **os.environ,
            "PATH": path,
            "WARM": str(warm),
            "UPDATES": "48",
            "USER_DIR": corpus.USER_DIR,
            **environment,
        }
        arguments = ["bash", "-euo", "pipefail", "-c", command]
        return subprocess.run(arguments, cwd=run.folder, env=environment, capture_output=True, text=True)

    run.folder = folder / "captions"
    return run


def test_queue(recipe):
    """The page's commands work with two runs at a time; a repeated queue does nothing; figures of deleted runs stay."""
    shell = re.search(r"^```bash\n(.*?)^```", (CAPTIONS / "README.md").read_text(), re.M | re.S)[1]
    assert 'SYSTEMS="adaptive_both direct_more" SEEDS=1 ' in shell
    done, work = recipe(shell, JOBS="2"), recipe.folder / "work"
    logs = "".join(path.read_text()[-3000:] for path in work.glob("*.log"))
    assert done.returncode == 0, f"{done.stderr}\n{logs}"
    again = recipe("SEEDS=1 ./queue.sh TEXT work", SYSTEMS="adaptive_both direct_more")
    assert again.returncode == 0 and again.stdout == ""
    settings = (work / "direct_more/1/settings").read_text()
    assert "UPDATES=24 " in settings and "bridge_direct" in settings
    assert "--warm-start work/rnnsearch_star/1/average.pt" in settings

    rows = [*csv.DictReader((work / "seeds.csv").open())]
    assert [(row["system"], row["seed"]) for row in rows] == [("adaptive_both", "1"), ("direct_more", "1")]
    measures = ["BLEU", "TER", "AER", "SAER", "words translated twice, %", "ends on the source's end, %", "UNKs, %"]
    for row in rows:
        assert all(float(row[name]) >= 0 for name in measures)
        assert row["BLEU, test_2017_flickr"] and not row["BLEU, test_2017_mscoco"] and row["BLEU, 0 to 8 words"]
    gates = [*csv.DictReader((work / "gates.csv").open())]
    assert {(row["system"], row["side"]) for row in gates} == {("adaptive_both", side) for side in ("source", "target")}
    assert {"content", "all words", "end of sentence"} == {row["tag"] for row in gates}

    shutil.rmtree(work / "adaptive_both")
    assert recipe("python collect.py work work").stdout == "1 runs\n"
    assert [*csv.DictReader((work / "seeds.csv").open())] == rows


def test_queue_of_words(recipe):
    """The queue trains on words, too: embeddings are not tied, and the translation is scored with UNKs and without."""
    done, work = recipe("RUN=words.sh SYSTEMS=direct_more SEEDS=1 ./queue.sh TEXT words"), recipe.folder / "words"
    assert done.returncode == 0, (work / "direct_more-1.log").read_text()[-3000:]
    run = work / "direct_more/1"
    assert (work / "rnnsearch_star/1/average.pt").exists() and "UPDATES=24" in (run / "settings").read_text()
    assert "'share_all_embeddings': False" in (run / "train.log").read_text()
    scores = json.loads((run / "measured/score.json").read_text())["scores"]
    assert {row["system"].rpartition("/")[2] for row in scores} == {"test.txt", "test.replaced.txt"}
    assert recipe("RUN=words.sh SYSTEMS=direct_more SEEDS=1 ./queue.sh TEXT words").stdout == ""
    assert recipe("python collect.py words words").stdout == "1 runs\n" and not (work / "seeds.csv").exists()
    [row] = csv.DictReader((work / "words.csv").open())
    assert row["system"] == "direct_more" and float(row["BLEU, UNKs replaced"]) >= 0 and float(row["TER"]) >= 0


def test_a_test_set_that_comes_later_needs_no_training(recipe):
    """A later test set has a separate folder; a finished one is not translated again."""
    text = recipe.folder / "LATER"
    shutil.copytree(recipe.folder / "TEXT", text)
    further = [text / f"test_2017_flickr.{language}" for language in ("en", "de")]
    for path in further:
        path.rename(path.with_suffix(path.suffix + ".aside"))
    train = "NAME=one UPDATES=24 ../baselines/multi30k.sh LATER later de rnnsearch"
    done, run = recipe(train), recipe.folder / "later/one"
    assert done.returncode == 0 and not (run / "test_2017_flickr").exists(), done.stderr[-3000:]
    model, first = (run / "average.pt").read_bytes(), (run / "test.generated").stat().st_mtime_ns
    for path in further:
        path.with_suffix(path.suffix + ".aside").rename(path)
    done = recipe(train)
    assert done.returncode == 0 and "== test_2017_flickr" in done.stdout, done.stderr[-3000:]
    assert (run / "average.pt").read_bytes() == model and (run / "test.generated").stat().st_mtime_ns == first
    assert (run / "test_2017_flickr/test.scores").exists() and not (run / "test_2017_flickr/valid.csv").exists()
    source = recipe.folder / "later/de-10000/test_2017_flickr/test.en"
    assert source.read_text() == further[0].read_text().lower()
    second = (run / "test_2017_flickr/test.generated").stat().st_mtime_ns
    assert recipe(train).returncode == 0
    assert (run / "test_2017_flickr/test.generated").stat().st_mtime_ns == second


def test_a_run_that_fails_is_told_and_the_others_go_on(recipe):
    done = recipe("./queue.sh nowhere none", SYSTEMS="rnnsearch recatt", SEEDS="1")
    assert done.returncode == 1 and [line.split()[0] for line in done.stderr.splitlines()] == ["rnnsearch", "recatt"]
    done = recipe("./queue.sh nowhere none", SYSTEMS="rnnsearch recatt", SEEDS="1", JOBS="4")
    assert done.stdout.count("rnnsearch 1") == done.stdout.count("recatt 1") == 1  # not by one lane after the other
    wrong = recipe("./run.sh TEXT none recat 1")
    assert wrong.returncode == 2 and "'recat' is none of rnnsearch dl4mt " in wrong.stderr
    early = recipe("./measure.sh prepared nowhere")
    assert early.returncode == 2 and early.stderr == "measure.sh: nowhere has no run that has ended\n"


def compare():
    """Return the module that makes the tables."""
    return script(CAPTIONS / "compare.py")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A function that replaces the tables that the module reads, and returns the module."""

    def write(comparisons="", seeds="", words=""):
        module = compare()
        monkeypatch.setattr(module, "HERE", tmp_path)
        head = "system,seed,BLEU\n"
        (tmp_path / "gates.csv").write_text("system,seed,side,tag,gate,%\n")
        (tmp_path / "words.csv").write_text(words or head)
        (tmp_path / "seeds.csv").write_text(seeds or head)
        named = "row,name,system,baseline,column,baseline_column,measure,better,margin\n"
        (tmp_path / "comparisons.csv").write_text(named + comparisons)
        return module

    return write


def write_measured(run, bleu):
    """Write a run as ``measure.sh`` leaves it, without gates of the target side and without the later test set."""
    score = {"BLEU": bleu, "chrF2": 62.345, "TER": 44.5, "1-gram BLEU": 60, "1-gram precision": 66.666}
    groups = [("0 to 8", 3, 45.678), ("9 to 12", 0, None), ("over 18", 2, 20)]
    (run / "measured").mkdir(parents=True)
    for name, content in {
        "score": {
            "scores": [{"measure": name, "system": "test.txt", "score": value} for name, value in score.items()],
            "groups": [
                {"group": name, "size": size, "measure": "BLEU", "test.txt": bleu} for name, size, bleu in groups
            ],
        },
        "test_2017_mscoco": {"scores": [{"measure": "TER", "score": 57.5}, {"measure": "BLEU", "score": 24.25}]},
        "aer": [{"measure": "AER", "error rate": 0.25}, {"measure": "SAER", "error rate": 0.5}],
        "overtranslation": [{"words": 8, "%": 12.5}],
        "eos": [{"sentences": 4, "%": 75.0}],
        "gates": {"source": [{"tag": "content", "words": 3, "g forward %": 40.126, "g backward %": 59.874}]},
    }.items():
        (run / "measured" / f"{name}.json").write_text(json.dumps(content))
    (run / "test.txt").write_text("a <unk> b\nc\n")
    valid = "epoch {0} | valid on 'valid' subset | loss 9 | nll_loss {0} | ppl 7\n"
    speed = "train_inner | epoch 1: loss=9, wps={}, ups=1\n"
    (run / "train.log").write_text("".join([*map(speed.format, (100, 400, 300)), *map(valid.format, (4, 3))]))


def test_collected_figures_are_those_of_the_run(tmp_path, monkeypatch, capsys):
    """The perplexity is the last validation's, and the speed is the median.

    A run that is measured again replaces its line, and no other one.
    """
    monkeypatch.setattr(sys, "argv", ["collect.py", str(tmp_path / "out"), str(tmp_path)])
    for seed, bleu in ((10, 36.789), (2, 35)):
        write_measured(tmp_path / "out" / "adaptive_gru" / str(seed), bleu)
    script(CAPTIONS / "collect.py").main()
    shutil.rmtree(tmp_path / "out")
    write_measured(tmp_path / "out" / "adaptive_gru" / "10", 37)
    script(CAPTIONS / "collect.py").main()
    assert capsys.readouterr().out == "2 runs\n1 runs\n"
    first, second = csv.DictReader((tmp_path / "seeds.csv").open())
    assert (first["seed"], first["BLEU"], second["seed"], second["BLEU"]) == ("2", "35.00", "10", "37.00")
    assert {name: figure for name, figure in first.items() if name not in ("system", "seed", "BLEU")} == {
        "chrF2": "62.34", "TER": "44.50", "1-gram precision": "66.67", "AER": "0.2500", "SAER": "0.5000",
        "words translated twice, %": "12.50", "ends on the source's end, %": "75.00", "UNKs, %": "25.00",
        "BLEU, 0 to 8 words": "45.68", "BLEU, 9 to 12 words": "", "BLEU, 13 to 15 words": "",
        "BLEU, 16 to 18 words": "", "BLEU, over 18 words": "20.00", "BLEU, test_2017_flickr": "",
        "TER, test_2017_flickr": "", "BLEU, test_2017_mscoco": "24.25", "TER, test_2017_mscoco": "57.50",
        "validation perplexity": "8.00", "subwords a second": "300",
    }  # fmt: skip
    gates = [[*line.values()] for line in csv.DictReader((tmp_path / "gates.csv").open())]
    shares = ("g forward", "40.13"), ("g backward", "59.87")
    assert gates == [["adaptive_gru", seed, "source", "content", *share] for seed in ("2", "10") for share in shares]


def test_means_are_of_runs_that_are_measured(tmp_path, monkeypatch, capsys):
    """Without a measured run, nothing is written."""
    (tmp_path / "out" / "recatt" / "1").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["collect.py", str(tmp_path / "out"), str(tmp_path)])
    with pytest.raises(SystemExit, match="out has no run that measure.sh has measured"):
        script(CAPTIONS / "collect.py").main()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_row_counts_when_each_of_its_comparisons_has_three_seeds(tables):
    """If a baseline has two columns, the larger number counts for each seed."""
    seeds = "system,seed,BLEU,TER\none,1,10.20,9.80\none,2,9.10,8.00\none,3,7.00,11.00\ntwo,1,3.00,1\ntwo,2,3.00,1\n"
    lines = "a-01,,one,one,BLEU,BLEU; TER,,more,\na-02,,one,one,BLEU,TER,,more,\na-02,,two,one,BLEU,BLEU,,more,\n"
    [(line, own, others)] = tables(lines, seeds).compared()
    assert (line["row"], own, others) == ("a-01", ["10.20", "9.10", "7.00"], ["10.20", "9.10", "11.00"])


def test_the_mean_of_several_systems_counts(tables):
    """Only seeds that all of them have."""
    lines = [f"one,{seed},{seed}.00,9.00\ntwo,{seed},{seed + 1}.00,8.00\n" for seed in (1, 2, 3)]
    words = "system,seed,BLEU,TER\n" + "".join(lines) + "one,4,1.00,1.00\n"
    module = tables('a-01,,one; two,one; two,"words, BLEU","words, TER",,more,\n', words=words)
    [(_, own, others)] = module.compared()
    assert (own, others) == (["1.50", "2.50", "3.50"], ["8.50"] * 3)


def test_a_system_without_a_test_set_is_left_out_of_its_table(tables):
    module = tables(seeds="system,seed,BLEU,later\none,1,10.20,9.80\ntwo,1,3.00,\n")
    assert [*module.systems(["BLEU"])][1:] == [["`one`", "1", "10.20"], ["`two`", "1", "3.00"]]
    assert [*module.systems(["BLEU", "later"])][1:] == [["`one`", "1", "10.20", "9.80"]]


def test_results_are_the_tables_of_the_seeds(capsys):
    compare().main()
    text = (CAPTIONS / "RESULTS.md").read_text()
    printed = capsys.readouterr().out.rstrip("\n").split("\n\n")
    assert len(printed) == 6
    for table in printed:
        assert table in text, f"python examples/captions/compare.py prints another table:\n{table}"


def test_findings_have_the_seeds_of_the_captions():
    """Findings have the seeds, direction and margin of each row of these trainings; no comparison is in two rows."""
    findings = {row["id"]: row for row in csv.DictReader((EXAMPLES / "findings.csv").open())}
    module, rows = compare(), {}
    for line, own, others in module.compared():
        rows.setdefault(line["row"], []).append((line, " ".join(own), " ".join(others)))
    assert {name for name, row in findings.items() if "captions/RESULTS.md" in row["here"]} == rows.keys()
    for name, found in rows.items():
        row = findings[name]
        assert {(line["better"], line["margin"]) for line, *_ in found} == {(row["better"], row["margin"])}
        for column, place in (("system_seeds", 1), ("baseline_seeds", 2)):
            assert row[column] == "; ".join(each[place] for each in found), (name, column)
    lines = [tuple(line.values())[2:] for line in module.read(CAPTIONS / "comparisons.csv")]
    assert len(set(lines)) == len(lines)
    plan = (CAPTIONS / "PLAN.md").read_text()
    planned = re.findall(r"^\| (\S+) \| (?:A[1-6]|W): .* \| (?:yes|later) \|$", plan, re.M)
    assert {line["row"] for line in module.read(CAPTIONS / "comparisons.csv")} == {*planned}


def test_every_open_finding_is_planned_once():
    findings = {row["id"]: row for row in csv.DictReader((EXAMPLES / "findings.csv").open())}
    text = (CAPTIONS / "PLAN.md").read_text()
    planned = re.findall(r"^\| ((?:feng|li|kuang|zhao)-\d+) \|.*\| (yes|later|no) \|$", text, re.M)
    ids = [name for name, _ in planned]
    assert len(set(ids)) == len(ids) and set(ids) <= findings.keys()
    since = re.findall(r"(\w+-\d+), [^.:]* was shown and became open", text)  # when Holm's family grew
    assert {name for name, row in findings.items() if row["verdict"] == "open"} <= {*ids, *since}
    counted = re.search(r"Of (\d+) open rows (\d+) are \*yes\*, (\d+) \*later\* and (\d+) \*no\*", text).groups()
    words = [word for _, word in planned]
    assert [*map(int, counted)] == [len(ids), *map(words.count, ("yes", "later", "no"))]


def test_the_plan_names_every_system_of_the_queue():
    """The system is in the same group as in the queue."""
    shell = f'source {CAPTIONS}/systems.sh; printf "%s\n" "${{groups[@]}}"; echo; echo "${{!systems[@]}}"'
    *groups, _, systems = subprocess.run(["bash", "-c", shell], capture_output=True, text=True).stdout.splitlines()
    assert sorted(" ".join(groups).split()) == sorted(systems.split())
    for number, group in enumerate(groups, 1):
        (row,) = re.findall(rf"^\| A{number} \| (.*?) \|", (CAPTIONS / "PLAN.md").read_text(), re.M)
        assert re.findall(r"`(\w+)`", row) == group.split()

"""The queue of the captions' table on a hundred lines, and the plan, which has every open finding once."""

import csv
import importlib.util
import os
import re
import shutil
import subprocess
import sys

import corpus
import pytest
from corpus import ROOT
from test_recipes_shell import STUBS, put

pytestmark = pytest.mark.more

EXAMPLES = ROOT / "examples"
CAPTIONS = EXAMPLES / "captions"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Runs a command in the recipe's folder of a copy of ``examples/``, on tiny models; ``TEXT`` is there."""
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
    """The page's commands, two runs at a time; started again, nothing is done; figures of runs that are gone stay."""
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


def test_a_test_set_that_comes_later_needs_no_training(recipe):
    """In a folder of its own; one that is there is not translated again."""
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
    """The module that makes the tables."""
    spec = importlib.util.spec_from_file_location("compare", CAPTIONS / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results_are_the_tables_of_the_seeds(capsys):
    compare().main()
    text = (CAPTIONS / "RESULTS.md").read_text()
    printed = capsys.readouterr().out.rstrip("\n").split("\n\n")
    assert len(printed) == 5
    for table in printed:
        assert table in text, f"python examples/captions/compare.py prints another table:\n{table}"


def test_findings_have_the_seeds_of_the_captions():
    """Each row that these trainings decide, with the plan's side and margin; no comparison decides two rows."""
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
    planned = re.findall(r"^\| (\S+) \| A[12]: ", (CAPTIONS / "PLAN.md").read_text(), re.M)
    assert {line["row"] for line in module.read(CAPTIONS / "comparisons.csv")} == {*planned}


def test_every_open_finding_is_planned_once():
    findings = {row["id"]: row for row in csv.DictReader((EXAMPLES / "findings.csv").open())}
    text = (CAPTIONS / "PLAN.md").read_text()
    planned = re.findall(r"^\| ((?:feng|li|kuang|zhao)-\d+) \|.*\| (yes|later|no) \|$", text, re.M)
    ids = [name for name, _ in planned]
    assert len(set(ids)) == len(ids) and set(ids) <= findings.keys()
    assert {name for name, row in findings.items() if row["verdict"] == "open"} <= set(ids)
    counted = re.search(r"Of (\d+) open rows (\d+) are \*yes\*, (\d+) \*later\* and (\d+) \*no\*", text).groups()
    words = [word for _, word in planned]
    assert [*map(int, counted)] == [len(ids), *map(words.count, ("yes", "later", "no"))]


def test_the_plan_names_every_system_of_the_queue():
    """In the group that the queue has it in."""
    shell = f'source {CAPTIONS}/systems.sh; printf "%s\n" "${{groups[@]}}"; echo; echo "${{!systems[@]}}"'
    *groups, _, systems = subprocess.run(["bash", "-c", shell], capture_output=True, text=True).stdout.splitlines()
    assert sorted(" ".join(groups).split()) == sorted(systems.split())
    for number, group in enumerate(groups, 1):
        (row,) = re.findall(rf"^\| A{number} \| (.*?) \|", (CAPTIONS / "PLAN.md").read_text(), re.M)
        assert re.findall(r"`(\w+)`", row) == group.split()

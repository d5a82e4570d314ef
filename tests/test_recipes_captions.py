"""The queue of the captions' table on a hundred lines, and the plan, which has every open finding once."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import corpus
import pytest
from test_recipes_shell import STUBS, put

EXAMPLES = Path(__file__).parent.parent / "examples"
CAPTIONS = EXAMPLES / "captions"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Runs a script of ``examples/`` on tiny models; its folder has ``text``."""
    folder, commands = tmp_path_factory.mktemp("captions"), tmp_path_factory.mktemp("commands")
    corpus.write_corpus(folder, train=88)
    (folder / "text").mkdir()
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for language, side in (("en", "xx"), ("de", "yy")):
            shutil.copy(folder / f"{'train' if name == 'train' else 'test'}.{side}", folder / f"text/{name}.{language}")
    python = f"case $1 in *tag.py) sed -E 's/[^ ]+/content/g' ;; *) exec {sys.executable} \"$@\" ;; esac"
    train = STUBS["fairseq-train"].replace("--max-update $updates", "")
    for name, text in {**STUBS, "python": python, "fairseq-train": train}.items():
        put(commands / name, text)
    warm = corpus.warm()
    path = os.pathsep.join(map(str, (commands, warm, corpus.SCRIPTS, os.environ["PATH"])))

    def run(name, *arguments, **environment):
        environment = {**os.environ, "PATH": path, "WARM": str(warm), "UPDATES": "48", **environment}
        command = [str(EXAMPLES / name), *map(str, arguments)]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    run.folder = folder
    return run


def test_queue(recipe):
    """Two at a time; started again, nothing is trained; figures are collected, and those of other runs stay."""
    done = recipe("captions/queue.sh", "text", "out", SYSTEMS="direct_more adaptive_both", SEEDS="1", JOBS="2")
    logs = "".join(path.read_text()[-3000:] for path in (recipe.folder / "out").glob("*.log"))
    assert done.returncode == 0, f"{done.stderr}\n{logs}"
    again = recipe("captions/queue.sh", "text", "out", SYSTEMS="direct_more adaptive_both", SEEDS="1")
    assert again.returncode == 0 and again.stdout == ""
    settings = (recipe.folder / "out/direct_more/1/settings").read_text()
    assert "UPDATES=24 " in settings and "bridge_direct" in settings
    assert "--warm-start out/rnnsearch_star/1/average.pt" in settings

    figures = recipe.folder / "figures"
    figures.mkdir()
    subprocess.run([sys.executable, CAPTIONS / "collect.py", recipe.folder / "out", figures], check=True)
    rows = [*csv.DictReader((figures / "seeds.csv").open())]
    assert [(row["system"], row["seed"]) for row in rows] == [("adaptive_both", "1"), ("direct_more", "1")]
    for row in rows:
        for name in ("BLEU", "TER", "AER", "SAER", "words translated twice, %", "ends on the source's end, %", "UNKs, %"):
            assert float(row[name]) >= 0, name
        assert row["BLEU, test_2017_flickr"] and not row["BLEU, test_2017_mscoco"] and row["BLEU, 0 to 8 words"]
    gates = [*csv.DictReader((figures / "gates.csv").open())]
    assert {row["system"] for row in gates} == {"adaptive_both"} and {row["side"] for row in gates} == {"source", "target"}
    assert {"content", "all words", "end of sentence"} == {row["tag"] for row in gates}

    shutil.rmtree(recipe.folder / "out/adaptive_both")
    subprocess.run([sys.executable, CAPTIONS / "collect.py", recipe.folder / "out", figures], check=True)
    assert [*csv.DictReader((figures / "seeds.csv").open())] == rows


def test_a_test_set_that_comes_later_needs_no_training(recipe):
    """In a folder of its own; one that is there is not translated again."""
    text = recipe.folder / "later"
    shutil.copytree(recipe.folder / "text", text)
    further = [text / f"test_2017_flickr.{language}" for language in ("en", "de")]
    for path in further:
        path.rename(path.with_suffix(path.suffix + ".aside"))
    train = ["baselines/multi30k.sh", text, "work", "de", "rnnsearch"]
    done = recipe(*train, NAME="one", UPDATES="24")
    run = recipe.folder / "work/one"
    assert done.returncode == 0 and not (run / "test_2017_flickr").exists(), done.stderr[-3000:]
    model, first = (run / "average.pt").read_bytes(), (run / "test.generated").stat().st_mtime_ns
    for path in further:
        path.with_suffix(path.suffix + ".aside").rename(path)
    done = recipe(*train, NAME="one", UPDATES="24")
    assert done.returncode == 0 and "== test_2017_flickr" in done.stdout, done.stderr[-3000:]
    assert (run / "average.pt").read_bytes() == model and (run / "test.generated").stat().st_mtime_ns == first
    assert (run / "test_2017_flickr/test.scores").exists() and not (run / "test_2017_flickr/valid.csv").exists()
    source = recipe.folder / "work/de-10000/test_2017_flickr/test.en"
    assert source.read_text() == further[0].read_text().lower()
    second = (run / "test_2017_flickr/test.generated").stat().st_mtime_ns
    assert recipe(*train, NAME="one", UPDATES="24").returncode == 0
    assert (run / "test_2017_flickr/test.generated").stat().st_mtime_ns == second


def test_a_run_that_fails_is_told_and_the_others_go_on(recipe):
    done = recipe("captions/queue.sh", "nowhere", "none", SYSTEMS="rnnsearch recatt", SEEDS="1")
    assert done.returncode == 1 and [line.split()[0] for line in done.stderr.splitlines()] == ["rnnsearch", "recatt"]
    wrong = recipe("captions/run.sh", "text", "out", "recat", "1")
    assert wrong.returncode == 2 and "'recat' is none of rnnsearch_star rnnsearch" in wrong.stderr
    early = recipe("captions/measure.sh", "prepared", "nowhere")
    assert early.returncode == 2 and early.stderr == "measure.sh: nowhere has no run that has ended\n"

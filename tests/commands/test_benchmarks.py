"""The benchmark of a GPU, tried on a CPU, and its tables."""

import json
import os
import re
import subprocess

import corpus
import pytest
from corpus import ROOT, SCRIPTS

pytestmark = pytest.mark.more

BENCHMARKS = ROOT / "benchmarks"
PARTS = {"machine", "training", "search", "fairseq-train", "profile"}


def call(*line):
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([*map(str, line)], capture_output=True, text=True, env=environment, cwd=BENCHMARKS)


def test_all_of_it(tmp_path):
    done = call("./gpu.sh", "--small", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    rows = [json.loads(line) for line in (out / "gpu.jsonl").read_text().splitlines()]
    assert not [row["error"] for row in rows if "error" in row]
    assert {row["part"] for row in rows} == {*PARTS, "took"}
    ways = {
        way for arch in ("rnnsearch", "dl4mt", "recatt", "ava", "gnmt", "gnmt_v2") for way in (arch, f"{arch}:graphs")
    }
    assert {row["way"] for row in rows if row["part"] == "training"} == {"lstm", *ways}
    searches = {row["way"]: row["search"] for row in rows if row["part"] == "search"}
    assert searches.items() >= {"rnnsearch": "SequenceGenerator", "rnnsearch:graphs": "StaticSearch"}.items()
    assert "skipped" in (out / "tests.txt").read_text().splitlines()[-1]
    for text in ("**Aims**", "| stock `lstm`", "of NVIDIA's 140,909", "not measured"):
        assert text in done.stdout
    assert (out / "table.md").read_text() in done.stdout


@pytest.mark.parametrize("line,status,message", [
    (["--fast"], 2, "usage: gpu.sh [--small] [OUT]"),
    (["one", "two"], 2, "usage: gpu.sh [--small] [OUT]"),
    (["{out}"], 1, "gpu.sh: torch sees no GPU here; --small tries it on a CPU"),
])  # fmt: skip
def test_refusals(line, status, message, tmp_path):
    done = call("./gpu.sh", *(one.format(out=tmp_path / "out") for one in line))
    assert (done.returncode, done.stderr.strip()) == (status, message)


def test_tables_of_what_was_measured_before_it_was_cut_off(tmp_path):
    row = dict(part="training", size="256/512", batch=80, dtype="float32", gib=2.0, rate=9000.0)
    rows = [
        dict(part="machine", device="NVIDIA H100", torch="2.13.0", cuda="13.0", small=False),
        dict(row, way="lstm", ms=30.0),
        dict(row, way="rnnsearch", ms=60.0, ratio=0.5, low=0.4, high=0.6),
        dict(row, way="rnnsearch:graphs", ms=10.0, ratio=3.0, low=2.5, high=3.5, gib=2.8),
        dict(row, way="dl4mt:graphs", ms=20.0, ratio=1.5, low=1.5, high=1.5),
        dict(part="fairseq-train", size="256/512", batch=80, way="lstm", ms=30.0, rate=9.0),
        dict(part="fairseq-train", size="256/512", batch=80, way="rnnsearch:graphs", ms=12.0, rate=9.0),
        dict(part="left out", name="compile", left=10, needs=90),
    ]
    text = "".join(json.dumps(one) + "\n" for one in rows) + '{"part": "train'
    (tmp_path / "gpu.jsonl").write_text(text)
    done = call(SCRIPTS / "python", "gpu_table.py", tmp_path / "gpu.jsonl")
    lines = [[*map(str.strip, line.strip("|").split("|"))] for line in done.stdout.splitlines()]
    assert ["training, 256/512, batch 80", "`rnnsearch`, graphs", "2.5", "3.00", "reached", "1.40, above"] in lines
    assert ["training, 256/512, batch 80", "`dl4mt`, graphs", "2.0", "1.50", "missed", ""] in lines
    assert ["fairseq-train, 256/512, batch 80", "`rnnsearch`, graphs", "2.0", "2.50", "reached", ""] in lines
    assert ["`rnnsearch`", "0.50 (0.40 to 0.60), 2.00 GiB"] in lines
    assert "compile: no time" in done.stdout and "line 9: cut off" in done.stderr


def test_the_pages_have_what_was_measured_on_a_gpu():
    """Every ratio, rate and memory of README.md's section is one that gpu_table.py prints."""
    text = (BENCHMARKS / "README.md").read_text()
    section = text[text.index("## On a GPU") : text.index("## The gain of each fast path")]
    cells = {cell.strip() for line in section.splitlines() if line.startswith("|") for cell in line.split("|")}
    printed = call(SCRIPTS / "python", "gpu_table.py", "h200.jsonl").stdout
    shown = {cell for cell in cells if re.search(r" to .*GiB|words/s\)|sentences/s\)", cell)}
    assert len(shown) > 30 and all(f" {cell} " in printed or f" {cell}," in printed for cell in shown)


@pytest.mark.parametrize("script, line, row", [
    ("ablation.py", "--batches 1 --archs rnnsearch", r"\| rnnsearch +\| memory shared by hypotheses +\| [\d.]+ \("),
    ("floor.py", "--batches 1 --archs rnnsearch", r"\| rnnsearch +\|"),
    ("search.py", "--ways lstm dl4mt+bfloat16+list", r"dl4mt\+bfloat16\+list +[\d.]+ sentences/s +x[\d.]+ "),
    ("speed.py", "--batches 1 --archs dl4mt", r"generation, beam 5, .*\n.*\n  dl4mt +[\d.]+ +x[\d.]+ "),
])  # fmt: skip
def test_those_of_a_cpu(script, line, row):
    """At a size at which nothing can be said about speed."""
    tiny = "--embed 8 --hidden 16 --vocabulary 40 --batch 3 --length 6 --rounds 1"
    done = corpus.run("python.script", BENCHMARKS / script, *tiny.split(), *line.split())
    assert re.search(row, done.stdout), done.stdout


def test_exported_models_against_the_stock_lstm():
    """At a size at which nothing can be said about speed."""
    tiny = "--sizes 8/16 --archs rnnsearch --ways float32 int8 --vocabulary 60 --batch 3 --sentences 2 --words 4"
    done = call(SCRIPTS / "python", "deployed.py", *tiny.split(), "--rounds", 1)
    assert done.returncode == 0, done.stderr
    number = r"\d+\.\d\d"
    spread = rf"{number} \({number} to {number}\)"
    assert re.search(r"\n\| 8/16 \| single \| batches of 3 \| .*\n\|---.*\n\| lstm \| 1 \(.* ms\) \|", done.stdout)
    for way in ("float32", "int8"):
        assert re.search(rf"\n\| rnnsearch {way} \| {spread} \| {spread} \| {number}, \d+ \|\n", done.stdout)

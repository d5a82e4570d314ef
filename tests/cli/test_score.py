import csv
import json
import math
import os
import sys

import pytest
from sacrebleu.metrics import BLEU

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.scores.groups import Groups
from fairseq_attnvariants_cli.scores.measures import metrics, scores
from fairseq_attnvariants_cli.shown.groups import draw_groups

REFERENCES = [["the cat sat on the mat", "a dog barks"]]
SYSTEMS = [("one", ["the cat sat on mat", "a dog"]), ("two", ["the cat sat on the mat", "a cat barks"])]


def values(rows):
    return {(row.measure, row.system): row.score for row in rows}


def test_unigram_measures_by_hand():
    found = values(scores(SYSTEMS, REFERENCES, metrics("none", False, 3)))
    # 7 words, all of them right, for a reference of 9
    assert found["1-gram precision", "one"] == pytest.approx(100)
    assert found["1-gram BLEU", "one"] == pytest.approx(100 * math.exp(1 - 9 / 7))
    # 9 words, 8 of them right
    assert found["1-gram precision", "two"] == pytest.approx(100 * 8 / 9)
    assert found["1-gram BLEU", "two"] == pytest.approx(100 * 8 / 9)


def test_measures_are_those_of_sacrebleu_with_its_signatures():
    rows = scores(SYSTEMS, REFERENCES, metrics("char", True, 3))
    bleu = BLEU(tokenize="char", lowercase=True).corpus_score(SYSTEMS[0][1], REFERENCES)
    assert values(rows)["BLEU", "one"] == bleu.score
    assert [row.measure for row in rows[::2]] == ["BLEU", "chrF3", "TER", "1-gram precision", "1-gram BLEU", "accuracy"]
    assert "case:lc|eff:no|tok:char|smooth:exp" in rows[0].signature and "nc:6|nw:0" in rows[2].signature
    assert all(row.interval is row.p is None for row in rows)
    assert values(rows)["TER", "two"] == pytest.approx(100 / 9)


def test_accuracy_by_hand():
    references = [["a b", "c", "d"], ["x", "C", "e "]]
    systems = [("one", [" a b", "x", "e"]), ("two", ["x", "c", "D"])]
    found = values(scores(systems, references, metrics("none", False, 2)))
    assert found["accuracy", "one"] == found["accuracy", "two"] == pytest.approx(100 * 2 / 3)
    assert values(scores(systems, references, metrics("none", True, 2)))["accuracy", "two"] == 100


def test_one_line_has_neither_interval_nor_p():
    """All resamples of one line are the same, so that any difference would look significant."""
    rows = scores([("one", ["a b c"]), ("two", ["a c c"])], [["a b c"]], metrics("none", False, 2), samples=50)
    assert all(row.interval is row.p is None and "bs:" not in row.signature for row in rows)


def test_bootstrap_is_paired_against_the_first_system():
    good = ["w x y z a b c d"] * 30
    bad = ["w x y z a b c d"] * 10 + ["w x q z a q c d"] * 20
    systems = [("good", good), ("again", good), ("bad", bad)]
    rows = [row for row in scores(systems, [good], metrics("none", False, 2), samples=50) if row.measure == "BLEU"]
    assert rows[0].p is None and rows[1].p == 1 and rows[2].p < 0.05
    assert rows[0].interval == 0 < rows[2].interval
    assert "bs:50|seed:12345" in rows[0].signature
    every = scores(systems, [good], metrics("none", True, 2))
    assert len({row.signature for row in every if row.measure in ("BLEU", "1-gram BLEU", "chrF2", "accuracy")}) == 4
    assert {"case:lc"} < {*next(row.signature for row in every if row.measure == "accuracy").split("|")}


# ---- the subcommand


@pytest.fixture
def command(tmp_path):
    """A function that writes the texts and returns the arguments of the subcommand."""
    texts = {"one": SYSTEMS[0][1], "two": SYSTEMS[1][1], "reference": REFERENCES[0]}
    texts["source"] = ["s " * 3, "s " * 6]  # the first sentence is the shorter one here, and the longer reference

    def write(**changed):
        for name, lines in {**texts, **changed}.items():
            (tmp_path / name).write_text("".join(line + "\n" for line in lines))
        path = {name: str(tmp_path / name) for name in texts}
        arguments = ["score", path["one"], path["two"], "--reference", path["reference"], "--source", path["source"]]
        return [*arguments, "--boundaries", "4", "--tokenize", "none", "--table", str(tmp_path / "scores.json")]

    return write


def test_subcommand_prints_and_writes_both_tables(command, tmp_path, capfd):
    assert main([*command(), "--group-table", str(tmp_path / "groups.csv"), "--bootstrap", "20"]) == 0
    rows = json.loads((tmp_path / "scores.json").read_text())
    assert len(rows) == 12 and rows[-1]["measure"] == "accuracy" and rows[-1]["system"].endswith("two")
    assert rows[-1]["score"] == pytest.approx(50) and 0 < rows[-1]["p"] <= 1
    with open(tmp_path / "groups.csv") as stream:
        groups = list(csv.reader(stream))
    assert [row[1:4] for row in groups] == [
        ["group", "size", "measure"],
        ["0 to 4", "1", "BLEU"],
        ["over 4", "1", "BLEU"],
    ]
    assert float(groups[2][6]) < float(groups[1][6]) == pytest.approx(100)
    out = capfd.readouterr().out
    assert "88.89" in out and "nrefs:1|bs:20|seed:12345" in out and "over 4" in out


def test_several_references(tmp_path, capfd):
    for name, text in (("system", "a b c d\ne f g h\n"), ("one", "a b c d\nx x x x\n"), ("two", "y y y y\ne f g h\n")):
        (tmp_path / name).write_text(text)
    system, *references = (str(tmp_path / name) for name in ("system", "one", "two"))
    assert main(["score", system, "--reference", *references, "--json"]) == 0
    scores = {row["measure"]: row["score"] for row in json.loads(capfd.readouterr().out)["scores"]}
    assert scores["BLEU"] == pytest.approx(100)


def test_a_name_with_an_underscore_is_in_the_legend():
    pytest.importorskip("matplotlib")
    groups = Groups("length", "BLEU", ["short", "long"], [2, 3], [[1.0, 2.0], [3.0, 4.0]], [[], []])
    figure = draw_groups([groups], ["_one", "two"])
    assert [text.get_text().strip() for text in figure.axes[0].get_legend().get_texts()] == ["_one", "two"]


@pytest.mark.parametrize("form, start", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_lengths_are_drawn(command, tmp_path, form, start):
    pytest.importorskip("matplotlib")
    assert main([*command(), "--plot", str(tmp_path / f"lengths.{form}")]) == 0
    assert (tmp_path / f"lengths.{form}").read_bytes().startswith(start)


@pytest.mark.parametrize("changed, more, message", [
    (dict(two=["a"]), [], "two ends after line 1, but {folder}/one has 2 lines"),
    (dict(one=[], two=[], reference=[], source=[]), [], "one is empty"),
    ({}, ["--boundaries", "10", "10"], "--boundaries must grow"),
    ({}, ["--chrf-beta", "0"], "argument --chrf-beta: 0 is not at least 1"),
    ({}, ["--bootstrap", "100001"], "argument --bootstrap: 100001 is more than 100000"),
    ({}, ["--table", "scores.txt"], "must end in .csv or .json"),
    ({}, ["--plot", "lengths.gif"], "must end in .png, .svg or .pdf"),
])  # fmt: skip
def test_bad_input_is_refused(command, tmp_path, refusal, changed, more, message):
    pytest.importorskip("matplotlib")
    assert message.format(folder=tmp_path) in refusal([*command(**changed), *more])
    assert len(os.listdir(tmp_path)) == 4


def test_a_missing_tokeniser_is_refused(command, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    assert "--tokenize ja-mecab: " in refusal([*command(), "--tokenize", "ja-mecab"])


def test_a_plot_needs_the_source_and_matplotlib(command, tmp_path, refusal, monkeypatch):
    arguments = command()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert 'pip install "fairseq-attnvariants[plot]"' in refusal([*arguments, "--plot", str(tmp_path / "lengths.png")])
    del arguments[5:7]
    assert "--boundaries need groups by length: give --source or --sentence-groups" in refusal(arguments)
    del arguments[5:7]
    assert "need groups: give --source" in refusal([*arguments, "--plot", str(tmp_path / "lengths.png")])

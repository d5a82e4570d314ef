"""The subcommand tune: its table equals searches of fairseq-generate with each of the penalties."""

import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from corpus import USER_DIR, run, train_arguments, train_here
from fairseq.data import Dictionary

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.tune import (
    LENGTH_PENALTIES,
    Hypothesis,
    Setting,
    best,
    hypotheses,
    preference,
    reference,
)
from fairseq_attnvariants_cli.systems import model
from fairseq_attnvariants_cli.systems.model import Sentence, System


@pytest.fixture(scope="module")
def learned(runs, tmp_path_factory):
    """A checkpoint that has learned enough for searches to find different translations."""
    folder = tmp_path_factory.mktemp("learned")
    train_here(*train_arguments(runs.data, folder, "--max-epoch", "12", "--no-epoch-checkpoints"))
    return folder / "checkpoint_last.pt"


def generated(runs, path, lenpen, strength):
    """Return the BLEU that fairseq-generate prints."""
    options = ["--user-dir", USER_DIR, "--path", path, "--cpu", "--gen-subset", "valid"]
    options += ["--beam", "8", "--lenpen", lenpen, "--scoring", "sacrebleu", "--sacrebleu-tokenizer", "none"]
    options += ["--model-overrides", f"{{'coverage_penalty': {strength}}}", "--max-len-b", "12"]
    return float(re.search(r"BLEU\S* = ([\d.]+)", run("fairseq-generate", runs.data, *options).stdout)[1])


def test_the_best_by_hand():
    short, long = Hypothesis("a", 2, -2.0), Hypothesis("a b c", 4, -3.0)
    assert [best([short, long], lenpen) for lenpen in (0, 2)] == [short, long]
    assert best([short, short._replace(text="b")], 1) is short  # of equal ones the first
    assert best([short._replace(total=-1.2), long._replace(total=-2.8)], 1).text == "a"  # EOS is a token, too


def test_of_equal_settings_that_of_fairseq_is_the_best():
    """All have a BLEU of 0 where references are single words."""
    pairs = [(strength, lenpen) for strength in (0.1, 0.0, 0.4) for lenpen in LENGTH_PENALTIES]
    rows = [Setting(*pair, 0.0, 1.0) for pair in pairs]
    assert max(rows, key=preference)[:2] == (0, 1)
    assert max([*rows, Setting(0.4, 0.6, 1.0, 1.0)], key=preference)[:2] == (0.4, 0.6)


def test_the_table_is_what_searches_with_each_give(runs, learned, capfd):
    arguments = [runs.data, "--path", learned, "--cpu", "--beam", 8, "--max-len-b", 12]
    arguments += ["--lenpen", 0, 2, "--coverage-penalty", 0, 3, "--json"]
    assert main(["tune", *map(str, arguments)]) == 0
    out, err = capfd.readouterr()
    rows = json.loads(out)
    assert [(row["coverage penalty"], row["lenpen"]) for row in rows] == [(0, 0), (0, 2), (3, 0), (3, 2)]
    for row in rows[1], rows[2]:
        expected = generated(runs, learned, row["lenpen"], row["coverage penalty"])
        assert row["BLEU"] == pytest.approx(expected, abs=0.006)
    assert len({row["BLEU"] for row in rows}) > 1, rows  # the penalties matter
    best = max(rows, key=lambda row: row["BLEU"])
    assert f"BLEU {best['BLEU']:.2f}: --lenpen {best['lenpen']:g} " in err


def test_the_reference_is_its_text(runs, tmp_path, capfd, refusal):
    """An unknown word is one word for every tokeniser; in binarised text, a tokeniser would cut ``<<unk>>``."""
    lines = (runs.text / "test.yy").read_text().splitlines()
    (tmp_path / "unknown").write_text("".join(" ".join("zzz" for _ in line.split()) + "\n" for line in lines))
    arguments = [runs.data, "--path", runs.rnnsearch / "checkpoint_last.pt", "--cpu", "--max-len-b", 12, "--lenpen", 1]
    arguments += ["--coverage-penalty", 0, "--tokenize", "13a", "--json", "--source", runs.text / "test.xx"]
    ratios = []
    for path in (runs.text / "test.yy", tmp_path / "unknown"):
        assert main(["tune", *map(str, arguments), "--reference", str(path)]) == 0
        ratios.append(json.loads(capfd.readouterr().out)[0]["length ratio"])
    assert ratios[0] == ratios[1]
    error = refusal(["tune", *map(str, arguments[:-2]), "--gen-subset", "test"])
    assert "--tokenize 13a would cut the reference's <<unk>>" in error


def test_subwords_are_joined_on_both_sides(monkeypatch):
    target = Dictionary()
    for token in ("a@@", "b", "c"):
        target.add_symbol(token)
    system = System("a.pt", SimpleNamespace(target_dictionary=target), [], torch.device("cpu"))
    tokens = target.encode_line("a@@ b zz c", add_if_not_exist=False).long()
    options = SimpleNamespace(remove_bpe="@@ ")
    found = [{"tokens": tokens, "score": torch.tensor(-1.0)}]
    monkeypatch.setattr(model, "search", lambda *_, **__: [found])
    assert [*hypotheses(system, [], options)] == [[Hypothesis("ab <unk> c", 5, -1)]]
    texts = [reference(system, Sentence({"target": tokens}, "", line), options) for line in ("a@@ b zz c", "")]
    assert texts == ["ab zz c", "ab <<unk>> c"]


def test_the_reference_of_characters_is_its_text(runs, characters, capfd):
    files = ["--source", runs.text / "test.xx", "--reference", runs.text / "test.yy"]
    arguments = [characters.data, "--path", characters.ava, "--cpu", "--beam", 2, "--max-len-b", 12, "--lenpen", 1]
    found = []
    for text in (["--gen-subset", "test"], files):
        assert main(["tune", *map(str, [*arguments, "--coverage-penalty", 0, "--json", *text])]) == 0
        found.append(json.loads(capfd.readouterr().out))
    assert found[0] == found[1]


def test_a_model_without_a_coverage_penalty(runs, capfd, refusal):
    arguments = [runs.data, "--path", runs.lstm / "checkpoint_last.pt", "--cpu", "--coverage-penalty", "0.2"]
    assert "a LSTMModel has no coverage penalty: --coverage-penalty 0" in refusal(["tune", *map(str, arguments)])
    assert main(["tune", *map(str, arguments[:-1]), "0", "--lenpen", "1", "--tokenize", "none"]) == 0
    assert "--lenpen 1\n" in capfd.readouterr().err


def test_a_missing_tokeniser_is_refused_before_anything_is_read(refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    error = refusal(["tune", "no-data", "--path", "none.pt", "--tokenize", "ja-mecab"])
    assert "--tokenize ja-mecab: " in error and "sacrebleu[ja]" in error


def test_a_table_that_cannot_be_written_is_refused_before_anything_is_read(refusal):
    error = refusal(["tune", "no-data", "--path", "none.pt", "--table", "scores.txt"])
    assert "scores.txt: the name of a table must end in" in error


def test_the_length_ratio_is_of_words_to_the_references(runs, capfd):
    """The search writes exactly one word for each sentence."""
    arguments = [runs.data, "--path", runs.rnnsearch / "checkpoint_last.pt", "--cpu", "--max-len-b", 1, "--lenpen", 1]
    assert main(["tune", *map(str, arguments), "--coverage-penalty", "0", "--gen-subset", "test", "--json"]) == 0
    [row] = json.loads(capfd.readouterr().out)
    lines = (runs.text / "test.yy").read_text().splitlines()
    assert row["length ratio"] == pytest.approx(len(lines) / sum(len(line.split()) for line in lines))

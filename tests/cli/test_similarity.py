import json

import numpy as np
import pytest
import torch
from conftest import Task, build

from fairseq_attnvariants.nn.attention import Softmax
from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.similarity import Match, attended_words, check, mean_largest
from fairseq_attnvariants_cli.systems.model import System
from fairseq_attnvariants_cli.text.files import UserError


def attention(steps, columns, *looks):
    """Return weights that are 0 except ``(step, column, weight)``."""
    weights = np.zeros((steps, columns))
    for step, column, weight in looks:
        weights[step, column] = weight
    return weights


SOURCE, TARGET = [*"abcd ef ", "</s>"], [*"wx yz", "</s>"]


def test_characters_count_once_and_belong_to_their_word():
    looks = [(0, 0, 0.9), (1, 0, 0.9), (1, 3, 0.1), (3, 2, 0.6), (4, 6, 0.7)]
    outside = [(2, 4, 0.9), (4, 7, 0.9), (5, 8, 0.9)]  # the spaces and EOS
    words = attended_words(attention(6, 9, *looks, *outside), SOURCE, TARGET)
    assert words == [Match("abcd", "wx y", 2), Match("ef", "z", 1)]


def test_the_last_letter_may_look_at_the_end_of_the_word():
    looks = [(0, 0, 0.9), (1, 1, 0.9), (3, 4, 0.9), (4, 7, 0.9)]  # y at the space after abcd, z at that after ef
    words = attended_words(attention(6, 9, *looks), SOURCE, TARGET)
    assert words == [Match("abcd", "wx y", 2), Match("ef", "z", 0)]


def test_the_threshold_has_to_be_exceeded():
    weights = attention(6, 9, (0, 0, 0.5), (1, 1, 0.51), (2, 5, 0.3))
    assert attended_words(weights, SOURCE, TARGET) == [Match("abcd", "x", 1), Match("ef", "", 0)]
    assert attended_words(weights, SOURCE, TARGET, 0.2) == [Match("abcd", "wx", 2), Match("ef", "", 1)]


def test_eos_is_a_step_without_a_character():
    assert attended_words(attention(6, 9, (4, 0, 1), (5, 1, 1)), SOURCE, TARGET)[0] == Match("abcd", "z", 2)


def test_the_largest_weight_is_a_mean_over_the_steps_of_all_sentences():
    assert mean_largest([attention(1, 2, (0, 1, 0.9)), attention(2, 3, (0, 0, 0.2), (1, 2, 0.4))]) == pytest.approx(0.5)


@pytest.mark.parametrize("source", [["</s>"], [" ", "</s>"]])
def test_an_empty_source_has_no_words(source):
    assert attended_words(np.ones((1, len(source))), source, ["</s>"]) == []


# ---- the subcommand


def arguments(characters, *more):
    return ["similarity", *map(str, (characters.data, "--path", characters.ava, "--cpu", *more))]


def test_the_share(runs, characters, tmp_path):
    """The share is of all running words of the text."""
    tables = ["--table", tmp_path / "share.json", "--words", "5", "--word-table", tmp_path / "words.json"]
    more = ["--threshold", "0", "--max-len-b", "12", "--gen-subset", "valid", *tables]
    assert main(arguments(characters, *more)) == 0
    words = (runs.text / "valid.xx").read_text().split()
    similar = sum(len(word) > 3 for word in words)  # every weight of a softmax is over 0
    [share] = json.loads((tmp_path / "share.json").read_text())
    largest = [share.pop(level) for level in ("largest weight of a word", "of a character")]
    assert share == {"words": len(words), "similar": similar, "%": 100 * similar / len(words)} and similar > 0
    assert 1 > largest[0] > largest[1] > 0  # untrained attention is spread over few words, or many characters
    listed = json.loads((tmp_path / "words.json").read_text())
    assert len(listed) == min(5, similar) and {(row["word"], row["characters"]) for row in listed} == {("ibex", 4)}


def test_words_with_the_most_characters_come_first(characters, tmp_path):
    more = ["--threshold", "0", "--characters", "2", "--words", "9", "--word-table", tmp_path / "words.json"]
    assert main(arguments(characters, *more, "--max-len-b", "12", "--gen-subset", "valid")) == 0
    counts = [row["characters"] for row in json.loads((tmp_path / "words.json").read_text())]
    assert counts == sorted(counts, reverse=True) and counts[0] == 4 and counts[-1] == 3


def test_the_limits_are_options(characters, capsys):
    for more, share in (("--threshold", "1"), "0.00"), (("--threshold", "0", "--characters", "2"), "100.00"):
        assert main(arguments(characters, *more, "--max-len-b", "12", "--gen-subset", "valid")) == 0
        assert capsys.readouterr().out.split()[-3] == share


def test_the_reference_instead_of_a_translation(runs, characters, tmp_path):
    text = ["--source", runs.text / "valid.xx", "--reference", runs.text / "valid.yy", "--forced"]
    tables = ["--words", "1", "--word-table", tmp_path / "words.json"]
    assert main(arguments(characters, *text, "--threshold", "0", *tables)) == 0
    [row] = json.loads((tmp_path / "words.json").read_text())
    line = next(line for line in (runs.text / "valid.yy").read_text().split("\n") if "ibex" in line)
    assert row == {"word": "ibex", "translation": line, "characters": 4}


def test_models_without_characters_or_with_one_level_are_refused(runs, refusal, monkeypatch):
    on_characters = Task()
    for model in (build("rnnsearch"), torch.nn.Identity()):  # ours, and any other
        with pytest.raises(UserError, match="a.pt has one level of attention"):
            check(System("a.pt", on_characters, [build("ava"), model], torch.device("cpu")))
    words_alone = build("ava", attention_via_words_alone=True)
    with pytest.raises(UserError, match="a.pt reads no characters .--attention-via-words-alone"):
        check(System("a.pt", on_characters, [build("ava"), words_alone], torch.device("cpu")))
    monkeypatch.setattr(Softmax, "adds_up", False)
    with pytest.raises(UserError, match="a.pt: similarity reads weights of attention that add up to 1"):
        check(System("a.pt", on_characters, [build("ava")], torch.device("cpu")))
    error = refusal(["similarity", str(runs.data), "--path", str(runs.lstm / "checkpoint_last.pt"), "--cpu"])
    assert "checkpoint_last.pt was not trained on characters (--task char_translation)" in error


@pytest.mark.parametrize("more, message", [
    (["--reference", "b", "--generate"], "give --reference or --generate, not both"),
    (["--words", "0"], "argument --words: 0 is not at least 1"),
    (["--word-table", "words.csv"], "--word-table needs --words"),
])  # fmt: skip
def test_options_without_effect_are_refused(characters, refusal, more, message):
    assert message in refusal(arguments(characters, *more))


def test_a_text_without_words_is_refused(characters, tmp_path, refusal):
    (tmp_path / "source").write_text("\n \n")
    assert "source has no words" in refusal(arguments(characters, "--source", tmp_path / "source", "--max-len-b", "5"))

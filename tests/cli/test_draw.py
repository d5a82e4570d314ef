"""The attention of exported models, drawn."""

import json

import numpy as np
import pytest

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.shown.heatmaps import Panel
from fairseq_attnvariants_cli.shown.terminal import heat_map
from fairseq_attnvariants_cli.subcommands.draw import read_panels

ONE = {"text": "i like cats", "symbols": ["i", "l@@", "ike", "cats", "</s>"]}
ONE["attention"] = [[0, 0.04, 0], [0.2, 0.8, 0], [0.4, 0.6, 0], [1, 0, 0], [0, 0, 1.2]]
FOUND = {"text": "i like cats", "source": ["猫@@", "好き", "</s>"], "n_best": [ONE]}
DRAWN = """i like cats

     猫 好き </s>
i
l    ░░ ▓▓▓▓
ike  ▒▒ ▒▒▒▒
cats ██
</s>         ████
"""


@pytest.fixture
def translations(tmp_path):
    path = tmp_path / "translations"
    path.write_text("".join(json.dumps(one) + "\n" for one in (FOUND, {"error": "it is too long"})), encoding="utf-8")
    return path


def test_the_terminal_shows_wide_characters_above_their_columns(translations, capsys):
    assert main(["draw", str(translations)]) == 0
    assert capsys.readouterr().out == DRAWN


@pytest.mark.parametrize("mark", ["\u0301", "\u17b7", "\u0e31", "\u0941", "\u200d"])
def test_a_symbol_of_no_width_has_a_column(mark):
    """A terminal draws a combining mark, which may be a symbol by itself, on the cell before it."""
    drawn = heat_map(Panel("t", [mark, f"b{mark}"], ["x", f"y{mark}"], np.eye(2)))
    assert drawn == f"   {mark} b{mark}\nx █\ny{mark}   █"


def test_weights_below_0_are_blank_and_above_1_solid():
    assert heat_map(Panel("t", ["a", "b"], ["x"], np.array([[-0.5, 2]]))) == "  a b\nx   █"


def test_a_picture(tmp_path):
    text, picture = tmp_path / "translations", tmp_path / "picture.svg"
    text.write_text(json.dumps({**FOUND, "source": ["cat", "dog", "</s>"]}))
    assert main(["draw", str(text), "--plot", str(picture), "--dark"]) == 0
    assert "<svg" in picture.read_text()


def test_a_picture_is_named_after_its_format(translations, tmp_path, monkeypatch, refusal):
    monkeypatch.chdir(tmp_path)
    for name in ("svg", "a.gif", "svg/png"):
        error = refusal(["draw", str(translations), "--plot", name])
        assert f"{name}: the name of a picture must end in .png, .svg or .pdf" in error
    assert [*tmp_path.iterdir()] == [translations]


def test_two_levels_are_two_heat_maps():
    levels = {**ONE, "word_attention": [[1, 0]] * 5}
    words, characters = read_panels(json.dumps({**FOUND, "source": ["a", " ", "</s>"], "n_best": [levels]}), "")
    assert (words.source, words.weights.shape) == (["a", "</s>"], (5, 2))
    assert (characters.source, characters.weights.shape) == (["a", "\u2423", "</s>"], (5, 3))


def test_a_space_within_a_feature_ends_no_word():
    levels = {**ONE, "attention": [[0, 1, 0, 0, 0]] * 5, "word_attention": [[1, 0, 0]] * 5}
    source = ["[FUTURE TENSE]", "a", " ", "b", "</s>"]
    words, _ = read_panels(json.dumps({**FOUND, "source": source, "n_best": [levels]}), "")
    assert (words.source, words.weights.shape) == (["[FUTURE TENSE]a", "b</s>"], (5, 2))


@pytest.mark.parametrize("line", [
    "i like cats",
    "[]",
    "{}",
    json.dumps({**FOUND, "source": ["猫"]}),
    json.dumps({**FOUND, "source": 3}),
    json.dumps({**FOUND, "n_best": []}),
    json.dumps({**FOUND, "n_best": [{"text": "", "symbols": [], "attention": []}]}),
    json.dumps({**FOUND, "n_best": [{**ONE, "attention": [["a"] * 3] * 5}]}),
    json.dumps({**FOUND, "n_best": [{**ONE, "attention": [[float("nan")] * 3] * 5}]}),
    json.dumps({**FOUND, "n_best": [{**ONE, "attention": [[10**400] * 3] * 5}]}),
    json.dumps({**FOUND, "n_best": [{**ONE, "word_attention": [1]}]}),
    json.dumps({**FOUND, "n_best": [{**ONE, "word_attention": [[1, 0, 0]]}]}),
    json.dumps({**FOUND, "source": ["a", " ", "</s>"], "n_best": [{**ONE, "word_attention": [[1]] * 5}]}),
    "[" * 100_000,
])  # fmt: skip
def test_other_text_is_refused_in_a_sentence(tmp_path, refusal, line):
    path = tmp_path / "text"
    path.write_text(f"{line}\n")
    assert refusal(["draw", str(path)]) == (
        f"fairseq-attnvariants draw: {path}, line 1, is not what translate.py --attention writes: give it that option\n"
    )


def test_a_line_without_a_translation(translations, tmp_path, refusal):
    for line, why in ((2, "line 2, has no translation: it is too long"), (3, "has no line 3: --line is too large")):
        picture = tmp_path / "picture.png"
        error = refusal(["draw", str(translations), "--line", str(line), "--plot", str(picture)])
        assert why in error and not picture.exists()


def test_an_empty_text(tmp_path, refusal):
    """The first line is the default, so that no ``--line`` is to blame."""
    (tmp_path / "text").touch()
    assert refusal(["draw", str(tmp_path / "text")]) == f"fairseq-attnvariants draw: {tmp_path / 'text'} is empty\n"

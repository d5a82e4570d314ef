import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from fairseq_attnvariants.nn.attention import Softmax
from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.shown.heatmaps import Panel, draw, panels
from fairseq_attnvariants_cli.systems.model import Forced
from fairseq_attnvariants_cli.text.files import UserError

pytest.importorskip("matplotlib")

from fairseq_attnvariants_cli.shown.pictures import font_families, picture  # noqa: E402


def test_pieces_are_joined_and_eos_stays():
    attention = np.array([[0.1, 0.2, 0.7], [0.3, 0.1, 0.6], [0.0, 0.1, 0.9]])
    [panel] = panels("one", Forced(0, ["a@@", "b", "</s>"], ["x@@", "y", "</s>"], {"attn": attention}), "@@ ")
    assert (panel.title, panel.source, panel.target) == ("one", ["ab", "</s>"], ["xy", "</s>"])
    np.testing.assert_allclose(panel.weights, np.array([[0.35, 0.65], [0.1, 0.9]]))


def test_words_and_their_characters():
    """In a batch with longer sentences there are more columns of words, which are left out."""
    extra = {"attn": np.random.rand(3, 6), "word_attn": np.array([[0.1, 0.4, 0.5, 0], [0, 0.2, 0.8, 0], [1, 0, 0, 0]])}
    source = ["a", "b", " ", "c", " ", "</s>"]
    words, inside = panels("ava", Forced(0, source, ["x", " ", "</s>"], extra))
    assert (words.title, inside.title) == ("ava, words", "ava")
    assert words.source == ["ab", "c", "</s>"] and inside.source == ["a", "b", "\u2423", "c", "\u2423", "</s>"]
    assert words.target == inside.target == ["x", "\u2423", "</s>"]
    np.testing.assert_allclose(words.weights, extra["word_attn"][:, :3])
    np.testing.assert_allclose(inside.weights, extra["attn"])


def test_a_higher_level_above_pieces():
    extra = {"attn": np.random.rand(2, 3), "word_attn": np.array([[0.1, 0.4, 0.5], [0.3, 0.2, 0.5]])}
    higher, lower = panels("two", Forced(0, ["a@@", "b", "</s>"], ["x", "</s>"], extra), "@@ ")
    assert (higher.title, lower.title) == ("two, higher level", "two")
    assert higher.source == lower.source == ["ab", "</s>"] and higher.target == ["x", "</s>"]
    np.testing.assert_allclose(higher.weights, np.array([[0.5, 0.5], [0.5, 0.5]]))


def boxes(figure):
    """Return the bounding boxes, in inches, of each heat map with its labels, and of the scale last."""
    scale = figure.dpi_scale_trans.inverted()
    return [axes.get_tightbbox().transformed(scale) for axes in figure.axes]


LONG = [f"a rather long word {k}" for k in range(3)]
WEIGHTS = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])


@pytest.mark.slow
def test_heat_maps_do_not_overlap_and_show_the_weights():
    heat_maps = [Panel("one", LONG, LONG[:2], WEIGHTS), Panel("$two", ["a", "b", "c"], LONG[:2], WEIGHTS)]
    figure = draw(heat_maps)
    left, right, scale = boxes(figure)
    assert left.x1 < right.x0 < left.x1 + 1 and scale.y1 < min(left.y0, right.y0)
    for axes, panel in zip(figure.axes, heat_maps):
        assert axes.images[0].get_array().tolist() == WEIGHTS.tolist() and axes.images[0].get_clim() == (0, 1)
        assert [label.get_text() for label in axes.get_xticklabels()] == panel.source
        assert [label.get_text() for label in axes.get_yticklabels()] == panel.target
    tops = [axes.get_position().y1 for axes in figure.axes]
    assert tops[0] == pytest.approx(tops[1])


def test_heat_maps_go_on_below():
    """The third heat map starts a new row if only two fit."""
    panels_ = [Panel(str(k), LONG, LONG, np.eye(3)) for k in range(3)]
    first, second, third, scale = boxes(draw(panels_, width=6))
    assert first.x1 < second.x0 and first.y1 == pytest.approx(second.y1) and second.x1 < 6
    assert third.x0 == pytest.approx(first.x0) and third.y1 < first.y0 and scale.y1 < third.y0


def test_rows_are_scaled_to_their_largest_weight():
    image = draw([Panel("one", LONG, LONG[:2], WEIGHTS)], relative=True).axes[0].images[0].get_array()
    np.testing.assert_allclose(image, [[0, 1 / 3, 1], [1, 0, 0]])


def test_a_row_of_zeros_is_not_scaled():
    image = draw([Panel("one", LONG, LONG[:2], np.array([[0.0, 0, 0], [0, 1, 2]]))], relative=True).axes[0].images[0]
    assert image.get_array().tolist() == [[0, 0, 0], [0, 0.5, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("words, width", [(30, 10), (60, 10), (150, 17)])
def test_a_long_sentence_fits_or_stays_readable(words, width):
    """Lines have at least 6 points."""
    text = [f"word{k}" for k in range(words)]
    box, _ = boxes(draw([Panel("long", text, text, np.random.rand(words, words))]))
    assert words * 6 / 72 < box.width < width and box.height > words * 6 / 72


@pytest.mark.parametrize("dark", [False, True])
def test_pictures_are_light_or_dark(tmp_path, dark):
    import matplotlib.image

    with picture(str(tmp_path / "p.png"), dark) as save:
        save(draw([Panel("one", ["a"], ["b"], np.zeros((1, 1)))]))
    pixels = matplotlib.image.imread(tmp_path / "p.png")[:, :, :3]
    assert np.median(pixels) == (0 if dark else 1) and pixels.min() < 0.2 and pixels.max() > 0.8


@pytest.mark.parametrize("dark", [False, True])
def test_pictures_do_not_depend_on_the_users_settings(tmp_path, dark):
    import matplotlib

    for name, settings in (("a.png", {}), ("b.png", {"font.size": 30, "axes.linewidth": 9})):
        with matplotlib.rc_context(settings), picture(str(tmp_path / name), dark) as save:
            save(draw([Panel("one", ["a"], ["b"], np.ones((1, 1)))]))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.commands
def test_glyphs_that_no_font_has_are_told():
    assert font_families("abc äö \u2581")[0] == "DejaVu Sans"
    with pytest.raises(UserError, match=r"no installed font has .* \(U\+0378\), .* \(U\+0379\): install one"):
        font_families("a\u0378\u0379")


@pytest.mark.commands
def test_a_font_for_another_script_is_found():
    if shutil.which("fc-list") is None or not subprocess.check_output(["fc-list", ":lang=zh-cn"]):
        pytest.skip("no font with Chinese glyphs is installed")
    assert "DejaVu Sans" not in font_families("\u4e2d\u6587")
    assert len(font_families("a\u4e2d")) == 2


# ---- the subcommand


def arguments(runs, tmp_path, *more):
    best = runs.rnnsearch / "checkpoint_best.pt"
    fixed = ["attention", runs.data, "--path", best, "--output", tmp_path / "picture.svg", "--cpu"]
    return [str(part) for part in (*fixed, *more)]


def words(tmp_path):
    """The texts in the picture: matplotlib writes each as a comment before its outline."""
    return re.findall(r"<!-- (.*?) -->", (tmp_path / "picture.svg").read_text())


def test_two_models_on_the_reference(runs, tmp_path):
    text = ["--source", runs.text / "test.xx", "--reference", runs.text / "test.yy", "--line", "4"]
    more = ["--path", runs.lstm / "checkpoint_last.pt", "--name", "first", "--name", "stock & lstm"]
    assert main(arguments(runs, tmp_path, *text, *more)) == 0
    found = words(tmp_path)
    for word in ("zebra", "yak"):  # unknown words as in the text
        assert found.count(word) == 4
    assert found.count("&lt;/s&gt;") == 4 and {"first", "stock &amp; lstm"} <= set(found)


def test_attention_via_attention_on_characters(characters, tmp_path):
    """The picture has every space, also the one before EOS, and unknown characters as in the text."""
    (tmp_path / "source").write_text("ant bee\ncat zero\n")
    (tmp_path / "reference").write_text("eeb\nx y\n")
    text = ["--source", tmp_path / "source", "--reference", tmp_path / "reference", "--line", "2", "--name", "ava"]
    line = [characters.data, "--path", characters.ava, *text, "--output", tmp_path / "picture.svg", "--cpu"]
    assert main(["attention", *map(str, line)]) == 0
    target = ["x", "\u2423", "y", "&lt;/s&gt;"]
    scale = ["0.0", "0.5", "1.0", "attention weight"]
    higher = ["cat", "zero", "&lt;/s&gt;", "ava, words", *target]
    assert words(tmp_path) == [*higher, *"cat\u2423zero\u2423", "&lt;/s&gt;", "ava", *target, *scale]


def test_weights_that_do_not_add_up_need_scaled_rows(runs, tmp_path, monkeypatch, refusal):
    monkeypatch.setattr(Softmax, "adds_up", False)
    error = refusal(arguments(runs, tmp_path))
    assert "attention without --scale-rows reads weights of attention that add up to 1" in error
    assert main(arguments(runs, tmp_path, "--scale-rows")) == 0


def test_subwords_are_joined_and_rows_scaled(runs, tmp_path):
    (tmp_path / "text").write_text("ze@@ bra yak\n")
    text = ["--source", tmp_path / "text", "--reference", tmp_path / "text"]
    assert main(arguments(runs, tmp_path, *text, "--remove-bpe", "--scale-rows")) == 0
    assert words(tmp_path).count("zebra") == 2 and "weight over the largest of its row" in words(tmp_path)


@pytest.mark.parametrize("form, start", [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_an_ensemble_translates(runs, tmp_path, form, start):
    paths = f"{runs.rnnsearch}/checkpoint1.pt:{runs.rnnsearch}/checkpoint2.pt"
    more = ["--path", paths, "--gen-subset", "test", "--generate", "--beam", "2", "--max-len-b", "5"]
    line = arguments(runs, tmp_path, *more, "--output", tmp_path / f"picture.{form}")
    del line[2:4]
    assert main(line) == 0
    assert (tmp_path / f"picture.{form}").read_bytes().startswith(start)


def test_a_source_alone_is_translated(runs, tmp_path):
    (tmp_path / "source").write_text("ant bee\nzebra\n")
    assert main(arguments(runs, tmp_path, "--source", tmp_path / "source", "--line", "2", "--max-len-b", "3")) == 0
    assert "zebra" in words(tmp_path) and "bee" not in words(tmp_path)[:2]


@pytest.mark.parametrize("more, message", [
    (["--line", "13"], "split 'test' has lines 1 to 12, and no line 13"),
    (["--line", "0"], "argument --line: 0 is not at least 1"),
    (["--output", "picture.gif"], "must end in .png, .svg or .pdf"),
    (["--output", "no/picture.svg"], "no/picture.svg cannot be written"),
    (["--name", "a", "--name", "b"], "2 --name for 1 systems"),
    (["--reference", "x", "--generate"], "give --reference or --generate, not both"),
    (["--source", "nowhere"], "nowhere cannot be read"),
])  # fmt: skip
def test_bad_input_is_refused(runs, tmp_path, refusal, more, message):
    assert message in refusal(arguments(runs, tmp_path, *more))
    assert os.listdir(tmp_path) == []


def test_a_missing_glyph_leaves_no_picture(runs, tmp_path, refusal):
    (tmp_path / "source").write_text("ant \u0378\n")
    error = refusal(arguments(runs, tmp_path, "--source", tmp_path / "source", "--max-len-b", "3"))
    assert "(U+0378)" in error and os.listdir(tmp_path) == ["source"]

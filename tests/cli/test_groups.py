"""Words and sentences in groups: every number here was computed by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.scores.contrasts import contrasts
from fairseq_attnvariants_cli.scores.counting import (
    accuracy,
    bleu,
    bleu_counts,
    f_measure,
    half_widths,
    matches,
    sentence_bleu,
    source_counts,
    word_counts,
)
from fairseq_attnvariants_cli.scores.groups import Groups, length_groups, names_up_to
from fairseq_attnvariants_cli.shown.groups import draw_groups
from fairseq_attnvariants_cli.shown.pages import template

TEXTS = {
    "reference": ["the cat sees the dog", "a dog barks"],
    "one": ["the the the dog", "a cat barks"],
    "two": ["the cat sees the dog", "dog"],
    "source": ["le chat voit le chien", "un chien aboie"],
    "train": ["the the the dog", "dog cat barks a"],  # the 3, dog 2, cat, barks and a 1, sees 0
    "train.source": ["le le chien un aboie"],  # le 2, chien, un and aboie 1, chat and voit 0
    "align": ["0-0 1-1 2-2 3-3 4-4 4-3", "0-0 1-1"],
    "reference.tags": ["D N V D N", "D N V"],
    "one.tags": ["D D X N", "D N V"],
    "two.tags": ["D N V D N", "N"],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name, lines in TEXTS.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_kth_occurrence_matches_the_kth():
    assert matches(["the", "the", "the", "dog"], ["the", "cat", "sees", "the", "dog"]) == [0, 3, None, 4]
    assert matches([], ["a"]) == [] and matches(["a"], []) == [None]


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_matches_are_clipped_counts(words, reference):
    found = [position for position in matches(words, reference) if position is not None]
    assert len(found) == len(set(found)) == sum(min(words.count(w), reference.count(w)) for w in "abc")
    assert all(reference[p] == w for w, p in zip(words, matches(words, reference)) if p is not None)


def test_groups_have_names():
    assert names_up_to((0, 1, 9, 99)) == ["0", "1", "2 to 9", "10 to 99", "over 99"]
    assert names_up_to((-6, -5, 0, 3), None) == ["up to -6", "-5", "-4 to 0", "1 to 3", "over 3"]


def run(*more):
    systems = ["one", "two", "--reference", "reference", "--tokenize", "none"]
    return main(["score", *systems, *more, "--group-table", "groups.json"])


def table(here, column="by"):
    rows = json.loads((here / "groups.json").read_text())
    return {(row["by"], row["group"]): (row["size"], row["one"], row["two"]) for row in rows if row[column]}


def test_words_by_frequency_by_hand(here):
    """Matches of system one: the, the, dog of "the cat sees the dog", a and barks of "a dog barks"."""
    assert run("--train-target", "train") == 0
    found = {group: row for (_, group), row in table(here).items()}
    # 2 matches of 3 words, for 2 of the reference; two has both
    assert found["3"] == (2, pytest.approx(100 * 2 * 2 / (3 + 2)), 100)
    # dog: 1 of 1 for 2; two 2 of 2
    assert found["2"] == (2, pytest.approx(100 * 2 * 1 / (1 + 2)), 100)
    # cat, a, barks: a and barks match, one's cat does not; two has only the first
    assert found["1"] == (3, pytest.approx(100 * 2 * 2 / (3 + 3)), pytest.approx(100 * 2 * 1 / (1 + 3)))
    assert found["0"] == (1, 0, 100) and found["4"] == (0, None, None)


def test_groups_of_lowercased_words(here):
    """--lowercase also applies to the training text that words are counted in."""
    assert run("--train-target", "train", "--sentence-groups") == 0
    expected = table(here)
    for name in ("one", "reference", "train"):
        (here / name).write_text((here / name).read_text().title())
    assert run("--train-target", "train", "--sentence-groups", "--lowercase") == 0
    assert table(here) == expected


def test_words_by_tag_by_hand(here):
    """A word that matches has the reference's tag; others, as the third "the" of one, have the system's tag."""
    assert run("--reference-tags", "reference.tags", "--system-tags", "one.tags", "--system-tags", "two.tags") == 0
    found = {group: row for (_, group), row in table(here).items()}
    assert found["D"] == (3, 100, pytest.approx(100 * 2 * 2 / (2 + 3)))
    assert found["N"] == (3, pytest.approx(100 * 2 * 1 / (2 + 3)), 100)  # dog matches, cat in the second line does not
    assert found["V"] == (2, pytest.approx(100 * 2 * 1 / (1 + 2)), pytest.approx(100 * 2 * 1 / (1 + 2)))
    assert found["X"] == (0, 0, None)


def test_source_words_by_frequency_by_hand(here):
    """Chien, linked to dog and the second the, is right if both are there; aboie has no link, so it is wrong."""
    more = ["--source", "source", "--alignments", "align", "--train-source", "train.source"]
    assert run(*more) == 0
    found = {group: row for (by, group), row in table(here).items() if by.startswith("source words")}
    assert found["0"] == (2, 0, 100)  # chat, voit
    assert found["2"] == (2, 100, 100)  # le, le
    # chien and un, chien, aboie: one has dog and the second the, and a; two has dog twice
    assert found["1"] == (4, 50, 50)


def test_sentences_by_hand(here):
    assert run("--sentence-groups", "--boundaries", "3", "4") == 0
    found = {key: row for key, row in table(here).items() if any(row)}
    assert found["sentences by words in the reference", "over 4"][0] == 1
    assert found["sentences by words in the reference", "over 4"][2] == pytest.approx(100)
    more = "sentences by words more than in the reference"
    assert [found[more, group][1:] for group in ("-2", "-1", "0")] == [(0.0, 1), (1, 0), (1, 1)]
    # one, first line: 3/4, (1+1)/(3+1), (0+1)/(2+1), (0+1)/(1+1), brevity exp(1 - 5/4)
    by_hand = 100 * math.exp(1 - 5 / 4) * (3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25
    [first, _] = sentence_bleu(bleu_counts(TEXTS["one"], [TEXTS["reference"]], "none"))
    assert first == pytest.approx(by_hand) and 30 < by_hand < 40
    assert found["sentences by their BLEU", "30 to 40"][1] >= 1
    assert found["sentences by their BLEU", "90 and over"][2] == 1


@pytest.mark.parametrize("tokenize, lowercase", [("none", False), ("13a", True)])
def test_bleu_of_sums_is_sacrebleus_of_the_text(tokenize, lowercase):
    outputs = ["The cat sat on the mat.", "a dog", "", "one two three four five"]
    references = [["the cat sat on a mat.", "a dog barks", "x", "one two three four six"], ["cat"] * 4]
    counts = bleu_counts(outputs, references, tokenize, lowercase)
    whole = BLEU(tokenize=tokenize, lowercase=lowercase).corpus_score(outputs, references).score
    assert bleu(counts.sum(0)) == pytest.approx(whole) and whole > 0
    some = BLEU(tokenize=tokenize, lowercase=lowercase).corpus_score(outputs[:2], [text[:2] for text in references])
    assert bleu(counts[:2].sum(0)) == pytest.approx(some.score)  # without lowercasing, no 4-gram matches
    assert np.isnan(bleu(np.zeros(10)))


def test_groups_by_length_end_at_their_boundaries():
    lengths, references = [0, 10, 11, 50, 51, 200], ["a b c d"] * 3 + ["x", "a b c d", "x y"]
    counts = [bleu_counts(["a b c d"] * 6, [references], "none")]
    found = length_groups("source", lengths, (10, 20, 30, 40, 50), counts, 0)
    assert found.names == ["0 to 10", "11 to 20", "21 to 30", "31 to 40", "41 to 50", "over 50"]
    assert found.counts == [2, 1, 0, 0, 1, 2] and found.intervals == [[]]
    assert found.values[0][:4] == [pytest.approx(100), pytest.approx(100), None, None]
    assert found.values[0][4] < found.values[0][5] < 100  # corpus BLEU of the group's sentences


def test_intervals_are_those_of_the_binomial():
    """100 of 400 sentences, of a word each, are right: 1.96 standard deviations of a mean."""
    counts = np.zeros((400, 2, 2))
    counts[:, 0, 1], counts[:100, 0, 0] = 1, 1
    share, none = half_widths(counts, accuracy, 2000)
    assert share == pytest.approx(100 * 1.96 * math.sqrt(0.25 * 0.75 / 400), rel=0.08) and none is None
    assert half_widths(counts, accuracy, 50) == half_widths(counts, accuracy, 50)
    counts[0, 1, 1] = 1
    assert half_widths(counts, accuracy, 50)[1] is None  # one sentence has no spread
    assert half_widths(counts[:, :0], accuracy, 50) == []  # of texts without words there are no tags


def test_a_measure_of_nothing_is_no_number():
    assert np.isnan(f_measure(np.zeros((1, 3)))) and f_measure(np.array([0, 2, 0])) == 0
    counts = word_counts([["a"]], [["b"]], [["x"]], [["y"]], ["x", "y"])
    assert counts.tolist() == [[[0, 1, 0], [0, 0, 1]]]
    counts = word_counts([["a"]], [["a"]], [["x"]], [["y"]], ["x", "y"])
    assert counts.tolist() == [[[0, 0, 0], [1, 1, 1]]]  # a match is in the reference's group
    assert source_counts([["a"]], [["a"]], [[]], [["x"]], ["x"]).tolist() == [[[0, 1]]]
    assert bleu(np.array([0, 3] + 8 * [0])) == 0  # an empty translation


def test_a_source_word_is_right_if_all_that_it_is_linked_to_is():
    links = [[(0, 0), (0, 1), (1, 0)]]
    assert source_counts([["a"]], [["a", "b"]], links, [["both", "one"]], ["both", "one"]).tolist() == [
        [[0, 1], [1, 1]]
    ]


def test_an_interval_is_the_same_whatever_fits_into_memory(monkeypatch):
    counts = np.array([[[k, 2**k]] for k in range(6)])
    expected = half_widths(counts, accuracy, 50)
    for cells in (6 * 7, 1):  # with fewer cells than sentences, resamples are drawn one by one
        monkeypatch.setattr("fairseq_attnvariants_cli.scores.counting.CELLS", cells)
        assert half_widths(counts, accuracy, 50) == expected != half_widths(counts, accuracy, 56)


def test_a_group_that_no_resample_contains_has_no_interval():
    """Group k is of sentences k and k + 1. One resample lacks some of these pairs, and the others do not vary."""
    counts = np.zeros((60, 59, 2))
    for k in range(59):
        counts[k : k + 2, k] = 1
    assert set(half_widths(counts, accuracy, 1)) == {0, None}


def test_ngrams_by_hand():
    systems = [("one", ["a b c", "a b"]), ("two", ["x b c", "q"]), ("three", ["a b c", "a b"])]
    found = contrasts(systems, ["a b c", "A b"], 2)
    # one has "a" and "a b", "a b c" once each where two has none, and b twice for once
    assert [row[:5] for row in found] == [
        ("a b c", "one", 1, "two", 0), ("a b", "one", 1, "two", 0)
    ]  # fmt: skip
    assert found[0].share == pytest.approx(100 * 2 / 3)
    upper = [(name, [line.upper() for line in lines]) for name, lines in systems[:2]]
    lowercased = contrasts(upper, ["a b c", "A b"], 2, lowercase=True)
    assert lowercased[0][:5] == ("a b", "one", 2, "two", 0) and lowercased[0].share == 75


def test_of_ngrams_with_equal_shares_those_with_more_matches_are_first():
    """Every occurrence counts: 3 matches for 1 are a share of 4/6, as 1 for none is."""
    systems = [("one", ["a y a y a", "b"]), ("two", ["a", "q"])]
    found = contrasts(systems, ["a x a x a", "b"], 2)
    assert [row[:5] for row in found] == [("a", "one", 3, "two", 1), ("b", "one", 1, "two", 0)]
    found = contrasts([("one", ["b", "a"]), ("two", ["q", "q"])], ["b", "a"], 2)
    assert [row.ngram for row in found] == ["a", "b"]  # all else being equal, in the order of the alphabet


def test_ngrams_are_written(here):
    assert main(["score", "one", "two", "--reference", "reference", "--ngrams", "1", "--ngram-table", "n.json"]) == 0
    first, second = json.loads((here / "n.json").read_text())
    assert (first["ngram"], first["system"], first["matches"], first["fewer"]) == ("a", "one", 1, 0)
    assert (second["ngram"], second["system"], second["matches"]) == ("cat sees the dog", "two", 1)


def test_intervals_stand_beside_the_values(here, capsys):
    assert run("--train-target", "train", "--bootstrap", "20") == 0
    rows = json.loads((here / "groups.json").read_text())
    assert set(rows[0]) >= {"one", "one 95% ±", "two", "two 95% ±"} and "words by frequency" in capsys.readouterr().out
    assert rows[2]["two 95% ±"] == 0 and rows[3]["two 95% ±"] is None  # always right; in one sentence alone


GROUPS = [
    Groups("words by tag", "F-measure", ["N<", "V", "$x$"], [3, 1, 0], [[50.0, 25.0, None], [0.0, 75.0, None]],
           [[5.0, None, None], [0.0, 1.0, None]]),
    Groups("sentences", "sentences", ["0", "1"], [None, None], [[3, 0], [2, 1]], [[], []]),
]  # fmt: skip


def test_bars_of_all_systems_stand_side_by_side():
    pytest.importorskip("matplotlib")
    first, second = draw_groups(GROUPS, ["one", "two"]).axes
    assert [label.get_text() for label in first.get_xticklabels()] == ["N<\n(3)", "V\n(1)"]
    heights = [[bar.get_height() for bar in bars] for bars in first.containers if hasattr(bars, "patches")]
    assert heights == [[50.0, 25.0], [0.0, 75.0]]
    left, right = (bars[0] for bars in first.containers if hasattr(bars, "patches"))
    assert left.get_x() + left.get_width() == pytest.approx(right.get_x())
    assert [label.get_text() for label in second.get_xticklabels()] == ["0", "1"]


@pytest.mark.parametrize(
    "names",
    [["one"], ["a name of many characters " * 3], [f"runs/system {k}/test.txt" for k in range(12)]],
    ids=["short", "long", "many"],
)
def test_bars_keep_their_size_whatever_names_are_above_them(names):
    pytest.importorskip("matplotlib")
    groups = Groups("words by tag", "F-measure", ["N", "V"], [3, 1], [[50.0, 25.0]] * len(names), [[]] * len(names))
    figure = draw_groups([groups], names)
    box = figure.axes[0].get_position()
    assert box.width > 0.8 and box.height > 0.6
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().bounds == box.bounds
    assert figure.axes[0].get_legend().get_window_extent().y0 >= figure.axes[0].get_window_extent().y1


def test_an_interval_that_is_not_known_is_not_drawn():
    """An interval of width 0 is drawn."""
    pytest.importorskip("matplotlib")
    groups = Groups("words by tag", "F-measure", ["N", "V", "X"], [3, 1, 2], [[50.0, 25.0, 5.0]], [[1.0, None, 0.0]])
    (axes,) = draw_groups([groups], ["one"]).axes
    [lines] = (bars.lines[2] for bars in axes.containers if not hasattr(bars, "patches"))
    assert [line[:, 1].tolist() for line in lines[0].get_segments() if len(line)] == [[49, 51], [5, 5]]


def test_control_characters_are_escapes_in_pictures():
    pytest.importorskip("matplotlib")
    groups = Groups("words by tag", "F-measure", ["N\x1b[2J", "x" * 1000], [3, 1], [[50.0, 25.0]], [[]])
    (axes,) = draw_groups([groups], ["one\x1b\ntwo"]).axes
    first, second = (label.get_text() for label in axes.get_xticklabels())
    assert first == "N\\x1b[2J\n(3)" and len(second) < 100
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one\\x1b\\ntwo"]


def test_a_group_that_all_systems_have_wrong_is_shown():
    pytest.importorskip("matplotlib")
    groups = Groups("words by frequency", "F-measure", ["0", "1", "2"], [7, 3, 0], [[0.0, 50.0, None]], [[]])
    (axes,) = draw_groups([groups], ["one"]).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n(7)", "1\n(3)"]


def test_bars_in_a_page_are_escaped_and_in_proportion():
    parts = template("parts.html").module
    page = parts.bars(GROUPS[0], ["one & only", "two"])
    assert "N&lt;" in page and "one &amp; only" in page and "$x$" not in page, "of empty groups there is nothing"
    assert "width: 66.7%" in page and "width: 100.0%" in page and "50.0 ± 5.0" in page
    [row] = contrasts([("<a>", ["x"]), ("b", [""])], ["x"], 5)
    assert "&lt;a&gt;" in parts.contrasts([row])


@pytest.mark.slow
def test_compare_shows_them_and_draws_them(here):
    pytest.importorskip("matplotlib")
    texts = ["compare", "one", "two", "--source", "source", "--reference", "reference", "--bootstrap", "20"]
    words = ["--train-target", "train", "--alignments", "align", "--train-source", "train.source"]
    assert main([*texts, *words, "--output", "page.html", "--plot", "bars.png"]) == 0
    page = (here / "page.html").read_text()
    for part in ("F-measure: words by frequency", "accuracy: source words", "BLEU: sentences by words in the source",
                 ">sentences by their BLEU<", "n-grams of the reference"):  # fmt: skip
        assert page.count(part) == 1
    assert (here / "bars.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "more, message",
    [
        (["--reference-tags", "reference.tags"], "--reference-tags and --system-tags go together"),
        (["--system-tags", "one.tags", "--system-tags", "two.tags"], "--reference-tags and --system-tags go together"),
        (["--reference-tags", "reference.tags", "--system-tags", "one.tags"], "1 --system-tags for 2 systems"),
        (["--reference-tags", "one.tags", "--system-tags", "one.tags", "--system-tags", "two.tags"],
         "one.tags, line 1: 4 tags, but the reference has 5 words there"),
        (["--alignments", "align", "--source", "source"], "--alignments and --train-source go together"),
        (["--train-source", "train", "--source", "source"], "--alignments and --train-source go together"),
        (["--alignments", "align", "--train-source", "train"], "--alignments needs --source"),
        (["--alignments", "train.source", "--train-source", "train", "--source", "source"],
         "train.source has 1 lines for 2 sentences"),
        (["--boundaries", "20", "10"], "--boundaries must grow"),
        (["--train-target", "/dev/null"], "/dev/null is empty"),
        (["--train-target", "train", "--reference", "reference", "one"], "--train-target needs one reference"),
        (["--ngrams", "2", "--reference", "reference", "one"], "--ngrams needs one reference"),
        (["--ngram-table", "n.csv", "--sentence-groups"], "--ngram-table needs --ngrams"),
        (["--plot", "p.png"], "--plot and --group-table need groups"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(here, capfd, more, message):
    before = sorted(here.iterdir())
    assert run(*more) == 2
    error = capfd.readouterr().err
    assert message in error and error.count("\n") == 1 and sorted(here.iterdir()) == before


def test_links_of_another_text_are_refused(here, capfd):
    (here / "align").write_text("0-0\n" * 3)
    assert run("--source", "source", "--alignments", "align", "--train-source", "train.source") == 2
    assert "align has 3 lines for 2 sentences" in capfd.readouterr().err


def test_ngrams_need_two_systems(here, refusal):
    assert "--ngrams needs two systems" in refusal(["score", "one", "--reference", "reference", "--ngrams", "3"])

"""The subcommands confusion and overtranslation, and how they read text, links and tags."""

import csv
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.confusion import confusion
from fairseq_attnvariants_cli.subcommands.overtranslation import ratios, repetitions
from fairseq_attnvariants_cli.text.files import UserError
from fairseq_attnvariants_cli.text.tagged import Aligned, read_tags

TAGS = st.lists(st.sampled_from(["N", "V", "D"]), min_size=1, max_size=5)


@st.composite
def aligned(draw):
    """Draw a pair of sentences with one link for each target word; its words are their tags."""
    source, target = draw(TAGS), draw(TAGS)
    chosen = draw(st.lists(st.integers(0, len(source) - 1), min_size=len(target), max_size=len(target)))
    return Aligned(source, target, [(i, j) for j, i in enumerate(chosen)], source, target)


# ---- the measures


def test_confusion_by_hand():
    pairs = [
        Aligned(["a", "b"], ["x", "y", "z"], [(0, 0), (1, 1), (1, 2)], ["N", "V"], ["N", "N", "V"]),
        Aligned(["c"], ["w", "v"], [(0, 0)], ["D"], ["N", "D"]),  # without a link, v counts nowhere
    ]
    # four links: N from N, V and D, V from V
    third = pytest.approx(100 / 3)
    assert confusion(pairs) == (
        ["target tag", "links", "V %", "D %", "N %"],
        [("N", 3, third, third, third), ("V", 1, 100, 0, 0)],
    )
    assert confusion(pairs, 1) == (["target tag", "links", "V %"], [("N", 3, third)])


@given(st.lists(aligned(), min_size=1))
def test_every_target_tag_is_shared_out(pairs):
    headers, rows = confusion(pairs)
    assert sum(row[1] for row in rows) == sum(len(pair.target) for pair in pairs)
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
    for target, links, *shares in rows:
        assert sum(shares) == pytest.approx(100)
        for header, share in zip(headers[2:], shares, strict=True):
            found = [
                (source, other)
                for pair in pairs
                for source, other in ((pair.source[i], pair.target[j]) for i, j in pair.links)
            ]
            assert share * links / 100 == pytest.approx(found.count((header.removesuffix(" %"), target)))


def test_overtranslation_by_hand():
    """The translation Hong Kong has Hong three times and Kong twice."""
    links = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (2, 5), (2, 6)]
    first = Aligned(
        ["hk", "x", "y"], ["Hong", "Kong", "Hong", "Kong", "Hong", "is", "Is"], links, ["N", "N", "V"], None
    )
    second = Aligned(["x"], ["is", "is"], [(0, 0), (0, 1)], ["V"], None)
    assert repetitions(first) == [3, 0, 0] and repetitions(second) == [1]
    assert ratios([first, second]) == [("all words", 4, 4, 100.0), ("N", 2, 3, 150.0), ("V", 2, 1, 50.0)]
    untagged = [pair._replace(source_tags=None) for pair in (first, second)]
    assert ratios(untagged) == [("all words", 4, 4, 100.0)]


@given(st.lists(aligned(), min_size=1))
def test_tags_add_up_to_all_words(pairs):
    (first, words, repeated, _), *tags = ratios(pairs)
    assert first == "all words" and words == sum(row[1] for row in tags) == sum(len(pair.source) for pair in pairs)
    assert repeated == sum(row[2] for row in tags)
    # what is not a repetition is another word for its source word
    different = {(k, i, pair.target[j]) for k, pair in enumerate(pairs) for i, j in pair.links}
    assert repeated == sum(len(pair.links) for pair in pairs) - len(different)


# ---- the subcommands


@pytest.fixture
def command(tmp_path):
    """A function that writes the files and returns the arguments of a subcommand."""

    def write(subcommand, *more, **changed):
        files = dict(source="a b\n\nc\n", target="x y z\n\nw w\n", align="0-0 1-1 1-2\n\n0-0 0-1\n")
        files |= dict(stags="N V\n\nD\n", ttags="N N V\n\nN D\n")
        for name, text in {**files, **changed}.items():
            (tmp_path / name).write_text(text)
        paths = {name: str(tmp_path / name) for name in files}
        tags = ["--source-tags", paths["stags"]]
        if subcommand == "confusion":
            tags += ["--target-tags", paths["ttags"]]
        line = [subcommand, paths["source"], paths["target"], "--alignments", paths["align"], *tags]
        return [*line, "--table", str(tmp_path / "table.csv"), *more]

    return write


def test_confusion_is_printed_and_written(command, tmp_path, capfd):
    assert main(command("confusion")) == 0
    head, *rows = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    assert head == ["target tag", "links", "D %", "V %", "N %"]
    assert rows[0][:2] == ["N", "3"] and rows[1:] == [
        ["D", "1", "100.0", "0.0", "0.0"],
        ["V", "1", "0.0", "100.0", "0.0"],
    ]
    assert "33.33" in capfd.readouterr().out


def test_confusion_without_a_link(command, tmp_path, refusal):
    line = command("confusion")
    (tmp_path / "align").write_text("\n" * len((tmp_path / "align").read_text().splitlines()))
    assert "align has no link: there is nothing to count" in refusal(line)
    assert not (tmp_path / "table.csv").exists()


def test_overtranslation_is_printed_and_written(command, tmp_path, capfd):
    assert main(command("overtranslation", "--table", str(tmp_path / "table.json"))) == 0
    rows = json.loads((tmp_path / "table.json").read_text())
    assert rows[0] == {"source tag": "all words", "words": 3, "repetitions": 1, "%": pytest.approx(100 / 3)}
    assert {row["source tag"]: row["repetitions"] for row in rows[1:]} == {"D": 1, "N": 0, "V": 0}
    assert "all words" in capfd.readouterr().out


def test_overtranslation_needs_no_tags(command, tmp_path):
    line = command("overtranslation")
    place = line.index("--source-tags")
    assert main([*line[:place], *line[place + 2 :]]) == 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("subcommand", ["confusion", "overtranslation"])
@pytest.mark.parametrize("changed, message", [
    (dict(stags="N V\n\nD D\n"), "stags, line 3: 2 tags, but {}/source has 1 words there"),
    (dict(stags="N V\n"), "stags has 1 lines, but {}/source has 3"),
    (dict(align="0-0 2-1\n\n\n"), "align, line 1: 2-1 is outside the sentences, which have 2 and 3 words"),
    (dict(align="0-0\n0-0\n\n"), "align, line 2: 0-0 is outside the sentences, which have 0 and 0 words"),
    (dict(align="0-0\n\n0?0\n"), "align, line 3: '0?0' is not an alignment pair"),
    (dict(target="x y z\n\n"), "target ends after line 2, but {}/source has 3 lines"),
    (dict(source="", target="", align="", stags="", ttags=""), "source is empty"),
])  # fmt: skip
def test_files_that_do_not_go_together_are_refused(command, tmp_path, refusal, subcommand, changed, message):
    assert message.format(tmp_path) in refusal(command(subcommand, **changed))
    assert not (tmp_path / "table.csv").exists()


def test_target_tags_are_compared_with_the_target(command, tmp_path, refusal):
    error = refusal(command("confusion", ttags="N N\n\nN D\n"))
    assert f"ttags, line 1: 2 tags, but {tmp_path}/target has 3 words there" in error


def test_a_negative_limit_is_refused(command, tmp_path, refusal):
    assert "argument --limit: -1 is not at least 0" in refusal(command("confusion", "--limit", "-1"))
    assert "table.csv" not in os.listdir(tmp_path)


def test_tags_of_more_lines_are_refused(tmp_path):
    (tmp_path / "tags").write_text("N\n" * 3)
    with pytest.raises(UserError, match="tags has 3 lines, but text has 2$"):
        read_tags(str(tmp_path / "tags"), [["a"], ["b"]], "text")

import io
import os
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.shown.tables import tables
from fairseq_attnvariants_cli.subcommands.lexicon import align, grow_diag_final_and, most_frequent
from fairseq_attnvariants_cli.text.alignments import count_links, format_links, parse_links, read_links
from fairseq_attnvariants_cli.text.files import UserError, read_lines, read_parallel, reason, write_whole
from fairseq_attnvariants_cli.text.lexicon import Entry, read_lexicon, write_lexicon

LINKS = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)))
# words as fairseq cuts them: no white space, which for Python includes U+0085 and U+2028
WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda text: text.split() == [text])
LINES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"))


@pytest.fixture
def parallel(tmp_path):
    """A function that writes the texts and the alignments, and returns the arguments of the subcommand."""

    def write(source, target, alignments):
        for name, text in (("source", source), ("target", target), ("links", alignments)):
            (tmp_path / name).write_bytes(text.encode())
        names = [str(tmp_path / name) for name in ("source", "target", "links", "table")]
        return ["lexicon", names[0], names[1], "--alignments", names[2], "--output", names[3]]

    return write


# ---- alignments


@given(LINKS)
def test_links_survive_a_round_trip(links):
    assert parse_links(format_links(links)) == links


@given(LINES)
def test_links_are_parsed_or_refused(line):
    try:
        links = parse_links(line)
    except ValueError as error:
        assert "is not an alignment pair" in str(error)
    else:
        assert len(links) == len(line.split())


@pytest.mark.parametrize("pair", ["1", "1-", "-1", "1-2-3", "1:2", "a-b", "1.0-2", "١-٢", "1_0-2", "9999999999-0"])
def test_malformed_pairs_are_refused(pair):
    with pytest.raises(ValueError, match="is not an alignment pair"):
        parse_links(f"0-0 {pair}")


def test_growth_takes_neighbours_while_a_word_has_no_link():
    # the directions agree on 0-0 alone; 1-1 is its diagonal neighbour, 2-1 that of 1-1 with a source word still free
    assert grow_diag_final_and({(0, 0), (1, 1)}, {(0, 0), (2, 1)}) == [(0, 0), (1, 1), (2, 1)]


def test_growth_adds_nothing_between_linked_words():
    assert grow_diag_final_and({(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1)}) == [(0, 0), (1, 1)]


def test_final_links_need_two_free_words():
    # 5-5 has no linked neighbour, but both its words are free; 3-0 and 0-3 would each reuse a word
    assert grow_diag_final_and({(0, 0), (5, 5)}, {(0, 0), (3, 0), (0, 3)}) == [(0, 0), (5, 5)]


def test_final_links_of_the_first_direction_win():
    one, other = {(0, 0), (5, 5)}, {(0, 0), (5, 4)}
    assert [grow_diag_final_and(*both)[1] for both in ((one, other), (other, one))] == [(5, 5), (5, 4)]


@given(
    st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6))), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)))
)
def test_growth_stays_between_intersection_and_union(forward, reverse):
    links = set(grow_diag_final_and(forward, reverse))
    assert forward & reverse <= links <= forward | reverse
    # no link is left that could still be made between two free words
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    assert all(i in sources or j in targets for i, j in forward | reverse)


# ---- the table


def test_the_most_frequent_target_wins():
    pairs = [(["a", "b"], ["x", "y"], [(0, 0), (1, 1)]), (["a", "a"], ["x", "z"], [(0, 0), (1, 1)])]
    best, second, other = Entry("a", "x", 2, 2 / 3), Entry("a", "z", 1, 1 / 3), Entry("b", "y", 1, 1.0)
    assert most_frequent(count_links(pairs)) == [best, other]
    assert most_frequent(count_links(pairs), 2) == [best, second, other]


@pytest.mark.parametrize("order", [("y", "x"), ("x", "y")])
def test_a_tie_goes_to_the_first_in_the_alphabet(order):
    assert most_frequent(count_links([(["a", "a"], list(order), [(0, 0), (1, 1)])])) == [Entry("a", "x", 1, 0.5)]


@given(st.dictionaries(WORDS, WORDS))
def test_table_survives_a_round_trip(tmp_path_factory, words):
    path = str(tmp_path_factory.mktemp("table") / "table")
    with write_whole(path) as stream:
        write_lexicon([Entry(source, target, 1, 1.0) for source, target in words.items()], stream)
    assert read_lexicon(path) == words


@pytest.mark.parametrize("text, message", [
    ("a\tx\nb\n", "line 2: not a source and a target word"),
    ("a\tx\nb\t\n", "line 2: not a source and a target word"),
    ("a\tx\n\ty\n", "line 2: not a source and a target word"),
    ("a\tx\na\ty\n", "line 2: 'a' comes a second time: keep one, or run lexicon without --candidates"),
])  # fmt: skip
def test_malformed_tables_are_refused(tmp_path, text, message):
    (tmp_path / "table").write_text(text)
    with pytest.raises(UserError, match=message):
        read_lexicon(str(tmp_path / "table"))


# ---- files


@given(st.lists(LINES))
def test_only_line_feeds_end_lines(tmp_path_factory, lines):
    path = str(tmp_path_factory.mktemp("lines") / "text")
    with write_whole(path) as stream:
        stream.writelines(line + "\n" for line in lines)
    assert list(read_lines(path)) == lines


def test_the_last_line_feed_may_be_missing(tmp_path):
    (tmp_path / "text").write_bytes("a\u2028b\u0085c\rd\ne".encode())
    assert list(read_lines(str(tmp_path / "text"))) == ["a\u2028b\u0085c\rd", "e"]


def test_what_is_not_utf8_is_refused_with_its_line(tmp_path):
    (tmp_path / "text").write_bytes(b"a\n\xff\n")
    with pytest.raises(UserError, match="text, line 2: not UTF-8 .*: save it as UTF-8"):
        list(read_lines(str(tmp_path / "text")))


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(RuntimeError), write_whole(str(path)) as stream:
        stream.write("half")
        raise RuntimeError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["out"]
    with write_whole(str(path)) as stream:
        stream.write("after")
    assert path.read_text() == "after" and os.listdir(tmp_path) == ["out"]


def test_links_and_devices_stay_what_they_are(tmp_path):
    (tmp_path / "link").symlink_to("file")
    for path in (str(tmp_path / "link"), os.devnull):
        with write_whole(path) as stream:
            stream.write("text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "text"
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_who_may_read_a_file_stays_as_it_is(tmp_path):
    path = tmp_path / "private"
    path.touch(mode=0o600)
    with write_whole(str(path)) as stream:
        stream.write("text")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("before")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    with pytest.raises(UserError, match="file cannot be written: Permission denied"), write_whole(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "before"


def test_a_private_file_is_private_while_it_is_replaced(tmp_path):
    (tmp_path / "private").touch(mode=0o600)
    with write_whole(str(tmp_path / "private")):
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_an_open_file_is_written_to_where_it_stands(tmp_path):
    with open(tmp_path / "log", "wb") as log:
        path = f"/dev/fd/{log.fileno()}"
        os.write(log.fileno(), b"head\n")
        with write_whole(path) as stream:
            stream.write("body\n")
        os.write(log.fileno(), b"tail\n")
    assert (tmp_path / "log").read_text() == "head\nbody\ntail\n"
    refused = pytest.raises(UserError, match="cannot be written: Bad file descriptor")
    with open(tmp_path / "log") as log, refused, write_whole(f"/dev/fd/{log.fileno()}"):
        pass


def test_two_outputs_are_two_files(tmp_path, monkeypatch):
    path = str(tmp_path / "one")
    for first in (write_whole(), tables()):
        with pytest.raises(UserError, match="standard output is given for two outputs"), first, write_whole("-"):
            pass
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a")))
    with pytest.raises(UserError, match="only one text can be standard input"):
        read_parallel("-", "-")
    with pytest.raises(UserError, match="one is given for two outputs"), write_whole(path), write_whole(path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.commands
@pytest.mark.parametrize("command", [
    "{python} - /dev/stdout >> log", "{python} - >(cat >> log; touch done)", "{python} - /dev/stdout | cat >> log"
])  # fmt: skip
def test_what_is_open_already_is_written_to(command, tmp_path):
    (tmp_path / "log").write_text("before\n")
    text = "import sys; from fairseq_attnvariants_cli.text.files import write_whole\n"
    text += "with write_whole(sys.argv[1]) as stream: stream.write('after\\n')"
    command = command.format(python=sys.executable) + '; [ -z "$WAIT" ] || until [ -e done ]; do sleep 0.01; done'
    environment = {**os.environ, "WAIT": ">(" if ">(" in command else ""}
    subprocess.run(["bash", "-c", command], input=text, text=True, check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "log").read_text() == "before\nafter\n"


# ---- the subcommand


def test_subcommand_counts_raw_words(parallel, tmp_path, capfd):
    arguments = parallel("the Cat\nthe dog\n\n", "die Katze\nder Hund\n\n", "0-0 1-1\n0-0 1-1\n\n")
    assert main([*arguments, "--save-alignments", str(tmp_path / "saved")]) == 0
    assert (tmp_path / "table").read_text() == "Cat\tKatze\t1\t1.0000\ndog\tHund\t1\t1.0000\nthe\tder\t1\t0.5000\n"
    assert (tmp_path / "saved").read_text() == "0-0 1-1\n0-0 1-1\n\n"
    assert "3 sentence pairs with 4 links: 3 of 3 source words have a translation" in capfd.readouterr().err


def test_subcommand_reads_alignments_from_standard_input(parallel, tmp_path, monkeypatch):
    arguments = parallel("a\n", "x\n", "0-0\n")
    with open(tmp_path / "links") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert main([*arguments[:4], "-", *arguments[5:]]) == 0
    assert (tmp_path / "table").read_text() == "a\tx\t1\t1.0000\n"


@pytest.mark.parametrize("source, target, links, message", [
    ("a\nb\n", "x\n", "0-0\n0-0\n", "target ends after line 1, but {folder}/source has 2 lines"),
    ("a\n", "x\ny\n", "0-0\n", "source ends after line 1, but {folder}/target has 2 lines"),
    ("a\n", "x\n", "", "links ends after line 0, but {folder}/source has 1 lines"),
    ("a\nb\n", "x\ny\n", "0-0\n0:0\n", "links, line 2: '0:0' is not an alignment pair"),
    ("a\nb c\n", "x\ny\n", "0-0\n1-1\n", "links, line 2: 1-1 is outside the sentences, which have 2 and 1 words"),
    ("", "", "", "source is empty"),
])  # fmt: skip
def test_bad_input_is_refused(parallel, tmp_path, refusal, source, target, links, message):
    error = refusal(parallel(source, target, links))
    assert error.startswith(f"fairseq-attnvariants lexicon: {tmp_path}/")
    assert message.format(folder=tmp_path) in error
    assert not (tmp_path / "table").exists() and len(os.listdir(tmp_path)) == 3


def test_missing_and_unwritable_files_are_refused(parallel, tmp_path, refusal):
    arguments = parallel("a\n", "x\n", "0-0\n")
    assert "nowhere cannot be read: No such file" in refusal([*arguments, "--alignments", "nowhere"])
    assert "nowhere/table cannot be written: No such file" in refusal([*arguments, "--output", "nowhere/table"])
    for folder in (str(tmp_path), f"{tmp_path}/new/"):
        assert "cannot be written: Is a directory" in refusal([*arguments, "--output", folder])


def test_a_link_that_is_given_twice_counts_once():
    links = read_links("links", ["0-0 1-0 0-0", ""], [["a", "b"], ["a"]], [["x"], ["x"]])
    assert links == [[(0, 0), (1, 0)], []]


def test_a_missing_aligner_is_refused(parallel, monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "eflomal", None)
    arguments = parallel("a\n", "x\n", "0-0\n")
    del arguments[3:5]
    assert 'pip install "eflomal>=2"' in refusal(arguments)


@pytest.mark.commands
def test_eflomal_finds_a_cipher(capfd):
    source = [f"w{i % 7} w{i % 5} w{i % 3 + 7}".split() for i in range(200)] + [[], ["w1"]]
    target = [[word.replace("w", "v") for word in reversed(words)] for words in source[:-2]] + [["v1"], []]
    alignments = list(align(source, target))
    assert len(alignments) == len(source) and alignments[-2:] == [[], []]
    table = {row.source: row.target for row in most_frequent(count_links(zip(source, target, alignments, strict=True)))}
    assert sum(table[f"w{i}"] == f"v{i}" for i in range(10)) >= 9  # eflomal cannot be given a seed
    assert read_links("saved", map(format_links, alignments), source, target) == alignments
    assert "Aligning with model 3" in capfd.readouterr().err


def test_a_line_that_ends_in_a_colon_is_told_with_the_next_one():
    """torch writes such a line before it names the parameters that do not fit."""
    error = RuntimeError('Error(s) in loading state_dict for Model:\n\tMissing key(s): "a".\n\tMore.')
    assert reason(error) == 'Error(s) in loading state_dict for Model: Missing key(s): "a".'


@pytest.mark.parametrize("command", [
    "lexicon a b --alignments links --output a",
    "lexicon a b --alignments links --output table --save-alignments b",
    "aer gold.md --hard links --table gold.md",
    "score a --reference b.csv --table b.csv",
    "compare a --source a --reference b --output link",
    "links generated --output generated",
    "replace-unk generated --source x --output generated",
])  # fmt: skip
def test_no_output_replaces_an_input(command, tmp_path, monkeypatch, refusal):
    """The text would be lost; a link to it is the same file."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "b.csv"):
        (tmp_path / name).write_text("one two\n")
    for name in ("links", "gold.md"):
        (tmp_path / name).write_text("0-0 1-1\n")
    (tmp_path / "x").write_text("x\n")
    (tmp_path / "link").symlink_to("b")
    (tmp_path / "generated").write_text("S-0\tx\nT-0\ty\nH-0\t-1\ty\nD-0\t-1\ty\nP-0\t-1 -1\nA-0\t0-0\n")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    for _ in range(2):
        assert "is an input, too, and would be replaced: name another file" in refusal(command.split())
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    # what an earlier command has read is no input of this one
    assert main(["lexicon", "b", "b.csv", "--alignments", "links", "--output", "a"]) == 0

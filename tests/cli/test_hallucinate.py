"""The subcommand hallucinate: stems by hand, rows that keep what is no stem, and what is refused."""

import io
import itertools
import random
import re
import signal
import unicodedata

import pytest
from conftest import LONG

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.hallucinate import hallucinated, kind, stems

ROWS = ["talo\tN;INE(SG)\ttalossa", "juokseminen\tN;ESS(PL)\tjuoksemisina", "yö\tN;INE(SG)\työssä"]


@pytest.fixture(autouse=True)
def limited():
    """Fail a test whose command does not end."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it is still running"))
    signal.alarm(LONG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def table(tmp_path):
    """The path of a table of inflected words."""
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{row}\n" for row in ROWS), encoding="utf-8")
    return path


@pytest.mark.parametrize("source, target, expected", [
    ("talo", "talossa", [(0, 0, 4)]),
    ("yö", "yössä", []),
    ("abuda", "nisiabudia", [(0, 4, 4)]),  # what comes before a stem is no part of it
    ("katibu", "watikatibxibu", [(0, 4, 5)]),
    ("abcxdef", "abcydef", [(0, 0, 3), (4, 4, 3)]),
    ("a-b1c", "a-b1d", []),  # two letters
    (["x\u0331\u0301", "b", "c"], ["x\u0331\u0301", "b", "c"], [(0, 0, 3)]),  # a letter with its marks is one
])  # fmt: skip
def test_stems(source, target, expected):
    assert stems(source, target) == expected


def test_letters_are_replaced_alike_and_in_stems_alone():
    """In a stem of more than five letters the first and the last stay; what is no letter stays anywhere."""
    rng, seen, replaced = random.Random(1), set(), 0
    for _ in range(100):
        one, other = hallucinated("ab-dexyz", "ab-defgqq", {0: "XY"}, rng)
        assert one[:5] == other[:5] and one[5:] == list("xyz") and other[5:] == list("fgqq") and one[2] == "-"
        seen |= {"".join(one[:5])}
        replaced += sum(letter in "XY" for letter in one)
    assert {word[0] for word in seen} == {"a", "X", "Y"} and 160 < replaced < 240  # half of 400 letters
    longer = ["".join(hallucinated("abcdefz", "abcdefg", {0: "Xb"}, rng)[0]) for _ in range(100)]
    assert {word[0] + word[5:] for word in longer} == {"afz"} and {word[1] for word in longer} == {"b", "X"}
    hyphens = ["".join(hallucinated("-a-b-c-d-e-", "-a-b-c-d-e-x", {0: "aX"}, rng)[0]) for _ in range(100)]
    assert {word[1] for word in hyphens} == {"a", "X"}  # five letters
    assert {hallucinated("-abcdef-", "-abcdef-x", {0: "aX"}, rng)[0][1] for _ in range(100)} == {"a"}  # six


def test_rows_keep_their_features_and_their_order_of_columns(table, capsys):
    assert main(["hallucinate", str(table), "--words", "50", "--seed", "3"]) == 0
    shown = capsys.readouterr()
    found = [line.split("\t") for line in shown.out.splitlines()]
    assert len({features for _, features, _ in found}) == 2  # both rows that have a stem are read
    assert len(found) == 50 and not {*ROWS} & {"\t".join(cells) for cells in found}
    assert f"2 of the 3 rows of {table} have a stem" in shown.err
    for lemma, features, form in found:
        original = ROWS[features == "N;ESS(PL)"].split("\t")
        assert [features, len(lemma), len(form)] == [original[1], len(original[0]), len(original[2])]
        assert (
            (lemma + "ssa" == form) if features == "N;INE(SG)" else (lemma[:8] == form[:8] and form[8:] == "isina"[1:])
        )
    assert main(["hallucinate", str(table), "--words", "50", "--seed", "3"]) == 0
    assert capsys.readouterr().out == shown.out
    assert main(["hallucinate", str(table), "--words", "50", "--seed", "4"]) == 0
    assert capsys.readouterr().out != shown.out


def test_syllables_stay_syllables(tmp_path, capsys):
    assert [kind(letter) for letter in "aạ가\u1100\u1161\u11a8"] == [0, 0, 0, 1, 2, 3]
    rng = random.Random(1)
    words = ["".join(chr(rng.randrange(0xAC00, 0xD7A4)) for _ in range(3)) for _ in range(20)]
    (tmp_path / "train.tsv").write_text("".join(f"{word}\tV;PST\t{word}다\n" for word in words), encoding="utf-8")
    assert main(["hallucinate", str(tmp_path / "train.tsv"), "--words", "50"]) == 0
    assert all(re.fullmatch("[가-힣]+\tV;PST\t[가-힣]+다", line) for line in capsys.readouterr().out.splitlines())


def test_marks_are_no_part_of_a_stem_where_symbols_are_decomposed(tmp_path, capsys):
    words = [f"{a}\u0301{b}\u0323{c}\u0302" for a, b, c in itertools.permutations("abcdefgh", 3)]
    (tmp_path / "train.tsv").write_text("".join(f"{word}\tN;PL\t{word}s\n" for word in words), encoding="utf-8")
    assert main(["hallucinate", str(tmp_path / "train.tsv"), "--words", "20"]) == 0
    shown = capsys.readouterr()
    lines = unicodedata.normalize("NFD", shown.out).splitlines()
    assert len(lines) == 20
    assert all(re.fullmatch("(\\w\u0301\\w\u0323\\w\u0302)\tN;PL\t\\1s", line) for line in lines)
    assert shown.err.endswith("336 of the 336 rows of " + str(tmp_path / "train.tsv") + " have a stem\n")


@pytest.mark.parametrize("text, more, said", [
    ("yö\työssä\n", [], "no word that shares 3 letters in a row with its target"),
    ("aaa\taaaa\n", [], "no word that shares"),  # there is no other letter
    ("123\t123ab\n", [], "no word that shares"),
    ("a12345b\ta12345bc\n", [], "no word that shares"),  # the ends of a long stem stay
    ("a\tb\nc\n", [], "train.tsv, line 2: 1 columns"),
    ("a\tb\tc\td\n", [], "4 columns, whose meaning is unclear: give --source-column"),
    ("talo\ttalossa\n", ["--target-column", "3"], "2 columns, and --target-column is 3"),
    ("talo\ttalossa\n", ["--words", "0"], "0 is not at least 1"),
])  # fmt: skip
def test_what_is_refused(tmp_path, refusal, text, more, said):
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    assert said in refusal(["hallucinate", tmp_path / "train.tsv", *more])


def test_rows_are_printed_as_they_are_made(table, monkeypatch):
    """So they take no memory, and a reader such as ``head`` ends the command."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Gone())
    assert main(["hallucinate", str(table), "--words", "2147483647"]) == 1


def test_sounds_of_several_letters_stay_whole(tmp_path, capsys):
    """If spaces separate the symbols of both sides, they are replaced, and not letters of them."""
    path = tmp_path / "sounds.tsv"
    path.write_text("t͡s a k a\tt͡s a k a n\ntʃ i k a\ttʃ i k a n\nd͡z o b a\td͡z o b a n\n", encoding="utf-8")
    assert main(["hallucinate", str(path), "--words", "60"]) == 0
    rows = [[cell.split(" ") for cell in line.split("\t")] for line in capsys.readouterr().out.splitlines()]
    known = set(path.read_text(encoding="utf-8").split())
    assert {symbol for row in rows for cell in row for symbol in cell} <= known
    assert all(len(source) == 4 and target == [*source, "n"] for source, target in rows)
    assert {"t͡s", "tʃ", "d͡z"} <= {source[1] for source, _ in rows}

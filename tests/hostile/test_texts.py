"""Texts that no corpus should have: very long lines, empty lines, arbitrary bytes."""

import csv
import html
import io
import os
import random
import re
import shutil

import pytest

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.scores.measures import LONGEST_TER
from fairseq_attnvariants_cli.shown.tables import table_file
from fairseq_attnvariants_cli.subcommands.compare import LONGEST
from fairseq_attnvariants_cli.text.generated import LONGEST as LONGEST_ALIGNED

pytestmark = pytest.mark.hostile

ENDLESS = 100_000  # words in a line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def endless(kind, seed=0, words=ENDLESS):
    """Return a line that repeats one word, or has words in a random order."""
    rng = random.Random(seed)
    return " ".join("a" if kind == "same" else f"w{rng.randrange(1000)}" for _ in range(words)) + "\n"


@pytest.fixture(params=["same", "random"])
def long_lines(request, folder):
    for seed, name in enumerate(("source", "system", "reference")):
        (folder / name).write_text("a b\n" + endless(request.param, seed))


# ---- long lines


def test_scores_of_long_lines_are_bounded(long_lines, capfd):
    assert main(["score", "system", "--reference", "reference", "--source", "source", "--bootstrap", "10"]) == 0
    out, error = capfd.readouterr()
    assert error == f"TER is left out: a line has {ENDLESS} words, over the limit of {LONGEST_TER}\n"
    assert "TER" not in out and "chrF2" in out


def test_ter_is_there_up_to_its_limit(folder, capfd):
    for seed, name in enumerate(("system", "reference")):
        (folder / name).write_text(endless("random", seed, LONGEST_TER))
    assert main(["score", "system", "--reference", "reference"]) == 0
    out, error = capfd.readouterr()
    assert error == "" and "TER" in out


def test_pages_of_long_lines_are_bounded(long_lines, folder):
    assert main(["compare", "system", "--source", "source", "--reference", "reference", "--output", "page.html"]) == 0
    page = (folder / "page.html").read_text()
    assert page.count("<span>") > 2 * ENDLESS and page.count("<mark") <= 2, "only the first line is marked"
    assert str(LONGEST) in page


def test_pieces_of_long_lines_are_joined(folder):
    (folder / "text").write_text("a@@ b " * (ENDLESS // 2) + "\n")
    arguments = ["--source", "text", "--reference", "text", "--remove-bpe", "--output", "page.html"]
    assert main(["compare", "text", *arguments]) == 0
    assert (folder / "page.html").read_text().count(">ab<") == ENDLESS


@pytest.mark.parametrize("subcommand", ["links", "compare", "replace-unk"])
def test_alignments_of_long_lines_are_refused(folder, refusal, subcommand):
    line = "a " * ENDLESS
    scores = "-1 " * (ENDLESS + 1)
    (folder / "generated").write_text(f"S-0\t{line}\nT-0\tx\nH-0\t-1\t{line}\nP-0\t{scores}\nA-0\t0-0\n")
    more = ["--source", "generated"] if subcommand == "replace-unk" else []
    error = refusal([subcommand, "generated", *more, "--output", "out"])
    assert (
        f"generated, line 5: A-0: {ENDLESS} and {ENDLESS} tokens, where alignments of at most {LONGEST_ALIGNED}"
        in error
    )
    assert os.listdir(folder) == ["generated"]


def test_a_huge_number_of_a_sentence_is_refused(folder, refusal):
    """Otherwise an empty line would be written for each number before it."""
    (folder / "generated").write_text("S-999999999999\ta\nH-999999999999\t-1\tx\nA-999999999999\t0-0\n")
    error = refusal(["links", "generated", "--output", "out"])
    assert "generated, line 1: sentence 999999999999, where 10000000 is the last" in error
    assert os.listdir(folder) == ["generated"]


# ---- damaged data


@pytest.mark.parametrize("damage, message", [
    (lambda content: content[:10], "split 'test' cannot be loaded: "),
    (lambda content: b"\xff\x7f" * (len(content) // 2), "xx-yy.xx, line 1: a symbol that its dictionary"),
])  # fmt: skip
def test_damaged_binarised_text_is_refused(runs, folder, refusal, damage, message):
    shutil.copytree(runs.data, folder / "data")
    damaged = folder / "data" / "test.xx-yy.xx.bin"
    damaged.write_bytes(damage(damaged.read_bytes()))
    assert message in refusal(["eos", "data", "--path", str(runs.rnnsearch / "checkpoint_best.pt"), "--cpu"])


# ---- what is no text


@pytest.mark.parametrize("content, message", [
    (b"", "is empty"),
    (b"a b\xff\n", "line 1: not UTF-8"),
    (b"\xef\xbb\xbf\xfe\n", "line 1: not UTF-8"),
])  # fmt: skip
@pytest.mark.parametrize("line", [
    "score system --reference system",
    "compare system --source system --reference system --output out",
    "lexicon system system --alignments system --output out",
    "overtranslation system system --alignments system",
])  # fmt: skip
def test_no_text_is_refused(folder, refusal, line, content, message):
    (folder / "system").write_bytes(content)
    error = refusal(line.split())
    assert message in error and os.listdir(folder) == ["system"]


@pytest.mark.parametrize(
    "line", ["", " ", "\u00a0", "\u2028", "\x00", "\x1b[2J", "<b>&\"'", "a\rb", "\u202eab", "\U0001f600"]
)
def test_odd_lines_are_scored_and_shown(folder, line):
    (folder / "system").write_bytes(f"{line}\na b\n".encode())
    assert main(["score", "system", "--reference", "system", "--source", "system"]) == 0
    assert main(["compare", "system", "--source", "system", "--reference", "system", "--output", "out"]) == 0
    assert "<b>" not in (folder / "out").read_text(encoding="utf-8")


def test_a_byte_order_mark_is_no_part_of_a_word(folder, capfd):
    (folder / "system").write_bytes(b"\xef\xbb\xbfa b c d\n")
    (folder / "reference").write_text("a b c d\n")
    assert main(["score", "system", "--reference", "reference", "--tokenize", "none"]) == 0
    assert "100.00" in next(line for line in capfd.readouterr().out.splitlines() if line.startswith("BLEU"))


def test_names_break_no_table_and_are_no_formulas(folder, capfd):
    (folder / "text").write_text("a b c d\n")
    name = "=1+1|\x1b[2J"
    for table in ("t.md", "t.csv"):
        arguments = ["text", "--reference", "text", "--tokenize", "none", "--name", name, "--table", table]
        assert main(["score", *arguments]) == 0
        assert "\x1b" not in capfd.readouterr().out
    lines = (folder / "t.md").read_text().splitlines()
    assert len({line.count("|") for line in lines}) == 1 and "\x1b" not in "".join(lines)
    assert ",'=1+1|" in (folder / "t.csv").read_text()


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1+1", "\uff0b1", "a\r=1+1", "a\n=1+1", "\r=1+1", "\t=1+1"]


def spreadsheet(text):
    """Return the cells as a program reads them for which a carriage return also ends a row."""
    return [cell for row in csv.reader(io.StringIO(text.replace("\r", "\n"))) for cell in row]


@pytest.mark.parametrize("cell", FORMULAS)
def test_no_cell_of_csv_is_a_formula(folder, cell):
    with table_file("t.csv") as save:
        save(["n-gram", cell], [[cell, "x"], ["y", cell]])
    cells = spreadsheet((folder / "t.csv").read_bytes().decode())
    assert len(cells) == 6 and not any(one[0] in "=+-@\uff1d\uff0b\t" for one in cells)


MARKUP = ["a|b", r"a\|b", r"\<img src=x>", "[a](javascript:alert(1))", "![a](http://x)", "<http://x>", "&lt;b", "`a"]


@pytest.mark.parametrize("cell", MARKUP)
def test_cells_of_markdown_are_shown_as_they_are(folder, cell):
    """A row has three cells and no active markup, and shows the text after entities are decoded."""
    with table_file("t.md") as save:
        save(["n-gram", "b", "c"], [[cell, cell, "x"]])
    text = (folder / "t.md").read_text()
    row = text.splitlines()[-1]
    assert row.count("|") == 4 and not re.search(r"[\[\]<>`\\]", text)
    assert html.unescape(row.split("|")[1].strip()) == cell


@pytest.mark.parametrize("cell", [r"\input{x}", "[x", "*x", "a & b \\\\ c", "$x$ % #", "^^5cinput"])
def test_cells_of_latex_are_text(folder, cell):
    """Cells are escaped, and none begins a row with a character that LaTeX reads after the end of a row."""
    with table_file("t.tex") as save:
        save([cell, "b"], [[cell, "x"]])
    rows = [line.strip() for line in (folder / "t.tex").read_text().splitlines() if " & " in line]
    assert len(rows) == 2
    for row in rows:
        assert row.endswith(r"\\") and row[0] not in "[*" and len(re.findall(r"(?<!\\)&", row)) == 1
        assert not re.search(r"\\input|(?<!\\)[$%#]|\^\^", row)


TERMINAL = "\x1b]0;x\x07\x1b[2J\r\nfairseq-attnvariants: all is well\u202e\u2066\u2028\x9b"


def test_what_is_printed_holds_nothing_that_a_terminal_obeys(folder, monkeypatch, capfd):
    """No control characters are in refusals, reports, tables, or the output of env."""
    monkeypatch.setenv("PYTHONPATH", TERMINAL)
    (folder / "text").write_text("a b .\n" * 200)
    (folder / "generated").write_text("S-0\ta\nT-0\tx\nH-0\t-1\t<unk>\nP-0\t-1 -1\nA-0\t0-0\n")
    (folder / "source").write_bytes(b"a\x1b[2J\n")
    score = ["score", "text", "--reference", "text", "--name", TERMINAL]
    replaced = ["replace-unk", "generated", "--source", "source", "--unk", "<unk>", "--detailed", "--output", "out"]
    for line in (score, [*score, "--json"], ["score", TERMINAL], ["score", "text", "--reference", TERMINAL], replaced,
                 ["env"], ["results", TERMINAL], ["average", TERMINAL, "--output", "x"], [TERMINAL]):  # fmt: skip
        main(line)
        out, error = capfd.readouterr()
        assert out + error and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e\u2066]", out + error), line
        assert not re.search("^fairseq-attnvariants: all is well", out + error, re.MULTILINE)


def test_a_closed_standard_input_is_refused(folder, monkeypatch, refusal):
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input cannot be read: it is closed" in refusal(["links", "-", "--output", "out"])

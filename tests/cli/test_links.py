import os

import corpus
import numpy as np
import pytest

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.text.alignments import hard_links

# the third line of the text was too long; hard and soft, in fairseq's order
GENERATED = """\
S-3\ta b@@ c
T-3\tx
H-3\t-0.5\tx@@ y z
D-3\t-0.5\tx@@ y z
P-3\t-0.1 -0.2 -0.3 -0.4
A-3\t2-0 0-1 1-2
S-0\ta b@@ c
H-0\t-0.5\tx@@ y z
P-0\t-0.1 -0.2 -0.3 -0.4
A-0\t0.4,0.3,0.3,0.0 0.5,0.2,0.3,0.0 0.5,0.0,0.1,0.4 0.1,0.1,0.1,0.7
H-0\t-0.9\tz
P-0\t-0.1 -0.2
A-0\t1.0,0.0,0.0,0.0 0.0,0.0,0.0,1.0
S-1\t
H-1\t-0.5\tx
P-1\t-0.1 -0.2
A-1\t
"""


def links(tmp_path, content, *more):
    (tmp_path / "generated").write_text(content)
    saved = ["--output", "align", "--save-source", "source", "--save-target", "target"]
    return main(
        ["links", str(tmp_path / "generated"), *(str(tmp_path / x) if x[0] != "-" else x for x in saved), *more]
    )


def read(tmp_path):
    return [(tmp_path / name).read_text().split("\n")[:-1] for name in ("source", "target", "align")]


def test_words_by_hand(tmp_path):
    """Source subwords are summed, target subwords averaged, EOS is left out; only the best hypothesis counts."""
    assert links(tmp_path, GENERATED, "--remove-bpe") == 0
    assert read(tmp_path) == [["a bc", "", "", "a bc"], ["xy z", "x", "", "xy z"], ["1-0 0-1", "", "", "0-0 1-1"]]


def test_output_without_scores_is_of_words(tmp_path):
    without = "".join(line for line in GENERATED.splitlines(keepends=True) if not line.startswith("P-"))
    assert links(tmp_path, without) == 0
    assert read(tmp_path)[2] == ["0-0 0-1 0-2", "", "", "2-0 0-1 1-2"]


def test_subwords_by_hand(tmp_path):
    assert links(tmp_path, GENERATED) == 0
    assert read(tmp_path)[2] == ["0-0 0-1 0-2", "", "", "2-0 0-1 1-2"]


def test_a_word_without_a_link_stays_without():
    assert hard_links(np.array([[0.0, 0.0], [0.0, 1.0]])) == [(1, 1)]


def test_links_are_those_of_align(runs, tmp_path):
    """align forces the same translations, so it has to find the same links."""
    path = runs.rnnsearch / "checkpoint_best.pt"
    common = ["--user-dir", corpus.USER_DIR, "--path", path, "--cpu", "--beam", "2", "--max-len-b", "5"]
    output = corpus.run("fairseq-generate", runs.data, *common, "--print-alignment", "soft").stdout
    assert links(tmp_path, output) == 0
    source, target, found = read(tmp_path)
    assert source[3] == "<unk> <unk>" and len(source) == len(target) == 12
    text = ["--source", tmp_path / "source", "--reference", tmp_path / "target", "--output", tmp_path / "forced"]
    assert main([str(part) for part in ("align", runs.data, "--path", path, "--cpu", *text)]) == 0
    assert (tmp_path / "forced").read_text().split("\n")[:-1] == found and any(found)


@pytest.mark.parametrize("old, new, message", [
    ("A-3\t2-0 0-1 1-2\n", "", "H-3 has no A- line: run fairseq-generate with --print-alignment; or was its "),
    ("H-3\t-0.5\tx@@ y z", "H-3\t-0.5\txy z",
        "the A- line of H-3 is not about its tokens: run fairseq-generate without --remove-bpe"),  # joined by fairseq
    ("S-0\ta b@@ c", "S-0\ta b@@", "or has the source text a <s>, </s> or <pad>, which fairseq does not print?"),
    (GENERATED, "nothing\n", "it is not what fairseq-generate prints"),
])  # fmt: skip
def test_bad_input_is_refused(tmp_path, capfd, old, new, message):
    assert old in GENERATED and links(tmp_path, GENERATED.replace(old, new)) == 2
    error = capfd.readouterr().err
    assert error.startswith("fairseq-attnvariants links: ") and error.count("\n") == 1 and message in error
    assert os.listdir(tmp_path) == ["generated"]


@pytest.mark.parametrize("subcommand", [["links"], ["replace-unk", "--source", os.devnull]])
def test_characters_are_not_words(tmp_path, refusal, subcommand):
    """Alignments of a model on characters count characters; an UNK is one."""
    lines = "S-0\ta b c\nH-0\t-1\tx<unk> z\nP-0\t-1 -1 -1 -1 -1\nA-0\t0-0 2-1 3-2 4-3\n"
    (tmp_path / "generated").write_text(lines)
    error = refusal([*subcommand, str(tmp_path / "generated")])
    assert "generated is of a model on characters, whose A- lines count characters" in error

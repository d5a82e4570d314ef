import os
import random

import corpus
import pytest

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.replace_unk import Replacement, replace_unks

SOURCE = ["the", "small", "dog"]
LEXICON = {"the": "der", "dog": "hund"}

RAW = "the small dog\n\na cat\ntoo long\n"
GENERATED = """2026-01-01 00:00:00 | INFO | fairseq_cli.generate | loading
S-2\ta <unk>
T-2\teine katze
H-2\t-0.5\teine <unk>
D-2\t-0.5\teine <unk>
P-2\t-0.1 -0.2 -0.3
A-2\t0-0 1-1
H-2\t-0.7\t
D-2\t-0.7\t
P-2\t-0.7
A-2\t
S-0\tthe <unk> <unk>
T-0\tder <<unk>> hund
H-0\t-0.25\tder <unk> <unk>
D-0\t-0.25\tder <unk> <unk>
P-0\t-0.1 -0.2 -0.3 -0.4
A-0\t0-0 1-1 2-2
H-0\t-0.5\t<unk>
D-0\t-0.5\t<unk>
P-0\t-0.1 -0.3
A-0\t2-0
S-1\t
T-1\t
H-1\t-1.5\t<unk>
D-1\t-1.5\t<unk>
P-1\t-0.1 -0.2
A-1\t
Generate test with beam=2: BLEU4 = 0.00
"""


@pytest.fixture
def command(tmp_path):
    """A function that writes the generated output, the raw text and the table, and returns the arguments."""

    def write(generated=GENERATED, raw=RAW, table="cat\tkatze\t9\t0.9\ndog\thund\n"):
        for name, text in (("generated", generated), ("raw", raw), ("table", table)):
            (tmp_path / name).write_bytes(text.encode())
        names = [str(tmp_path / name) for name in ("generated", "raw", "table", "output")]
        return ["replace-unk", names[0], "--source", names[1], "--lexicon", names[2], "--output", names[3]]

    return write


# ---- the rules


def test_unk_takes_the_translation_of_its_source_word():
    assert replace_unks(["<unk>"], SOURCE, {0: 2}, LEXICON, "<unk>") == [Replacement(0, 2, "hund", "table", False)]


def test_unk_copies_a_source_word_that_is_not_in_the_table():
    assert replace_unks(["<unk>"], SOURCE, {0: 1}, LEXICON, "<unk>") == [Replacement(0, 1, "small", "copy", False)]


def test_unk_without_alignment_asks_its_nearest_neighbour():
    words = ["x", "<unk>", "y", "<unk>", "<unk>"]
    assert replace_unks(words, SOURCE, {0: 0, 2: 2}, LEXICON, "<unk>") == [
        Replacement(1, 0, "der", "table", True),  # equally near: the left one
        Replacement(3, 2, "hund", "table", True),
        Replacement(4, 2, "hund", "table", True),
    ]


def test_unk_is_left_where_nothing_is_aligned():
    assert replace_unks(["<unk>"], [], {}, LEXICON, "<unk>") == [Replacement(0, None, "<unk>", "left", False)]


def test_only_unks_are_replaced():
    assert replace_unks(["<unk>", "UNK"], SOURCE, {0: 0, 1: 2}, LEXICON, "UNK") == [
        Replacement(1, 2, "hund", "table", False)
    ]


# ---- the subcommand


def test_best_hypotheses_in_the_order_of_the_source(command, tmp_path, capfd):
    assert main(command()) == 0
    assert (tmp_path / "output").read_text() == "der small hund\n<unk>\neine katze\n\n"
    assert capfd.readouterr().err == (
        "4 sentences, 1 of them without a hypothesis; 3 hypotheses with 4 UNKs: "
        "2 replaced from the table, 1 by the source word, 1 not replaced\n"
    )


def test_nbest_keeps_every_hypothesis(command, tmp_path):
    assert main([*command(), "--nbest"]) == 0
    assert (tmp_path / "output").read_text() == (
        "0\t-0.25\tder small hund\n0\t-0.5\thund\n1\t-1.5\t<unk>\n2\t-0.5\teine katze\n2\t-0.7\t\n"
    )


def test_details_list_every_unk(command, capfd):
    assert main([*command(), "--detailed"]) == 0
    assert capfd.readouterr().err.splitlines()[:-1] == [
        "0\t0\t1\t1\tsmall\tsmall\tcopy",
        "0\t0\t2\t2\tdog\thund\ttable",
        "1\t0\t0\t\t\t<unk>\tleft",
        "2\t0\t1\t1\tcat\tkatze\ttable",
    ]


def test_output_goes_to_standard_output_and_comes_from_standard_input(command, tmp_path, capfd, monkeypatch):
    arguments = command()
    with open(tmp_path / "generated") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert main(["replace-unk", "-", *arguments[2:4]]) == 0
    assert capfd.readouterr().out == "der small dog\n<unk>\neine cat\n\n"


def test_the_order_of_the_lines_does_not_matter(command, tmp_path):
    lines = GENERATED.splitlines(keepends=True)
    assert main(command("".join(sorted(lines, key=lambda line: line[:3])))) == 0  # stable: rank by rank, as sort -s
    assert (tmp_path / "output").read_text() == "der small hund\n<unk>\neine katze\n\n"


def test_exotic_white_space_ends_no_line(command, tmp_path):
    # fairseq cuts words at any white space, and prints them with spaces between
    generated = "S-0\ta b <unk> d\nH-0\t-1\t<unk>\nP-0\t-1 -1\nA-0\t2-0\n"
    assert main(command(generated, "a\u2028b\u0085c\u00a0d\n")) == 0
    assert (tmp_path / "output").read_text() == "c\n"


def test_hypotheses_whose_words_are_not_tokens_are_left(command, tmp_path, capfd):
    generated = "S-0\ta\nH-0\t-1\tab <unk>\nP-0\t-1 -1 -1 -1\nA-0\t0-0 0-1 0-2\n"
    assert main(command(generated, "a\n")) == 0
    assert (tmp_path / "output").read_text() == "ab <unk>\n"
    assert "1 hypotheses not touched, since their words are not their tokens" in capfd.readouterr().err


GOOD = "S-0\ta\nH-0\t-1\t<unk>\nP-0\t-1 -1\nA-0\t0-0\n"


@pytest.mark.parametrize("generated, raw, message", [
    (GOOD, "a b\n", "raw, line 1: 2 words, but S-0 has 1 ({folder}/generated, line 1)"),
    (GOOD, "b\n", "raw, line 1: 'b', but S-0 has 'a' ({folder}/generated, line 1)"),
    (GOOD.replace("-0\t", "-1\t"), "a\n", "raw ends after line 1, but {folder}/generated has sentence 1"),
    (GOOD.replace("A-0\t0-0\n", ""), "a\n", "line 2: H-0 has no A- line: run fairseq-generate with --print-align"),
    (GOOD.replace("A-0\t0-0", "A-0\t0:0"), "a\n", "line 4: A-0: '0:0' is not an attention weight such as"),
    (GOOD.replace("A-0\t0-0", "A-0\t0-1"), "a\n", "line 4: A-0: 0-1 is outside the sentences"),
    (GOOD.replace("A-0\t0-0", "A-0\t1.0"), "a\n", "line 4: A-0: 1 rows of 1 weights for 1 and 1 tokens, and EOS"),
    (GOOD + "S-1\tb\n", "a\nb\n", "line 5: sentence 1 has 1 S-, 0 T-, 0 H-, 0 P-, 0 A- lines: output cut off"),
    ("", "a\n", "generated has no H- lines"),
])  # fmt: skip
def test_bad_input_is_refused(command, tmp_path, refusal, generated, raw, message):
    error = refusal(command(generated, raw))
    assert error.startswith(f"fairseq-attnvariants replace-unk: {tmp_path}/")
    assert message.format(folder=tmp_path) in error
    assert not (tmp_path / "output").exists() and len(os.listdir(tmp_path)) == 3


SOFT = """S-0	the <unk> Ada met Bob
H-0	-1	<unk> der <unk> hund
P-0	-1 -1 -1 -1 -1
A-0	0.5,0.1,0.1,0.1,0.1,0.1 0.6,0.2,0.1,0.1,0,0 0.3,0.1,0.2,0,0.1,0.3 0,0,0,1,0,0 0,0,0,0,0,1
S-1	the
H-1	-1	<unk>
P-1	-1 -1
A-1	0.9,0.1 0.1,0.9
"""


def test_of_a_model_that_copies_an_unk_takes_the_word_that_was_copied(command, tmp_path, capfd):
    """Candidates are source words that the source or the target dictionary lacks; without any, all words are."""
    (tmp_path / "dict.txt").write_text("the 9\nBob 3\nmet 2 #fairseq:overwrite\n<unk> 1 #fairseq:overwrite\nZoe 1\n")
    arguments = [*command(SOFT, "the Zoe Ada met Bob\nthe\n"), "--copied", str(tmp_path / "dict.txt"), "--detailed"]
    assert main(arguments) == 0
    assert (tmp_path / "output").read_text() == "Zoe der Ada hund\nthe\n"
    assert capfd.readouterr().err.splitlines()[:2] == ["0\t0\t0\t1\tZoe\tZoe\tcopy", "0\t0\t2\t2\tAda\tAda\tcopy"]
    assert main(arguments[:-3]) == 0
    assert (tmp_path / "output").read_text() == "the der the hund\nthe\n"


def test_what_does_not_say_what_was_copied_is_refused(command, tmp_path, refusal):
    (tmp_path / "dict.txt").write_text("the 9\n")
    error = refusal([*command(), "--copied", str(tmp_path / "dict.txt")])
    assert "hard alignments, which do not say what was copied: run fairseq-generate with" in error
    joined = SOFT.partition("S-1")[0].replace("<unk> der <unk> hund", "<unk> der hund")
    error = refusal([*command(joined, "the <unk> Ada met Bob\n"), "--copied", str(tmp_path / "dict.txt")])
    assert "no hypothesis has an attention that fits its words, which --copied reads" in error
    error = refusal([*command(SOFT), "--copied", str(tmp_path / "raw")])
    assert "raw, line 1: no word and count: give dict.TARGET.txt of fairseq-preprocess" in error


def test_a_missing_table_is_refused(command, refusal):
    assert "nowhere cannot be read: No such file or directory" in refusal([*command(), "--lexicon", "nowhere"])


@pytest.mark.parametrize("unk", ["a b", " ", "<unk> ", "a\tb", ""])
def test_an_unk_that_no_word_can_be_is_refused(command, refusal, unk):
    assert "argument --unk: " in refusal([*command(), "--unk", unk])


def test_standard_input_serves_once(command, refusal, monkeypatch):
    generated = command()[-1].replace("output", "generated")
    monkeypatch.setattr("sys.stdin", open(generated))  # noqa: SIM115
    assert "only one text can be standard input" in refusal(["replace-unk", "-", "--source", "-"])


# ---- all steps, with the real commands


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    """A folder with a text of rare words, a model that knows few of them, and its output with both alignments."""
    folder = tmp_path_factory.mktemp("unk")
    rng = random.Random(1)
    for split, count in (("train", 60), ("valid", 6), ("test", 6)):
        lines = [
            " ".join(f"w{int(rng.paretovariate(0.7)) % 90}" for _ in range(rng.randint(2, 6))) for _ in range(count)
        ]
        if split == "test":
            lines[1], lines[2] = "", " ".join(["w1"] * 12)  # an empty sentence, and one that fairseq will skip
        (folder / f"{split}.xx").write_text("".join(line + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(line.replace("w", "v") + "\n" for line in lines))
    (folder / "links").write_text(
        "".join(
            " ".join(f"{i}-{i}" for i in range(len(line.split()))) + "\n"
            for line in (folder / "train.xx").read_text().splitlines()
        )
    )
    names = [f"--{kind}pref={folder / kind}" for kind in ("train", "valid", "test")]
    names += ["--destdir", folder / "bin", "--nwordssrc", "8", "--nwordstgt", "8"]
    corpus.run("fairseq-preprocess", "-s", "xx", "-t", "yy", *names)
    updates = ["--max-update", "3", "--disable-validation"]
    corpus.run("fairseq-train", *corpus.train_arguments(folder / "bin", folder / "checkpoints", *updates))
    # UNK is made certain, the output ends after four words
    options = ["--user-dir", corpus.USER_DIR, "--path", folder / "checkpoints" / "checkpoint_last.pt", "--cpu"]
    options += ["--unkpen=-100", "--max-len-b", "4", "--beam", "3", "--nbest", "2", "--batch-size", "4"]
    options += ["--max-source-positions", "10", "--skip-invalid-size-inputs-valid-test"]
    for form in ("hard", "soft"):
        process = corpus.run("fairseq-generate", folder / "bin", *options, "--print-alignment", form)
        (folder / form).write_text(process.stdout)
    table = ["--alignments", folder / "links", "--output", folder / "table"]
    assert main(["lexicon", *map(str, [folder / "train.xx", folder / "train.yy", *table])]) == 0
    return folder


@pytest.mark.commands
@pytest.mark.parametrize("form", ["hard", "soft"])
def test_end_to_end(translated, form):
    arguments = [translated / form, "--source", translated / "test.xx", "--lexicon", translated / "table"]
    process = corpus.run("fairseq-attnvariants", "replace-unk", *arguments, "--detailed")
    source = (translated / "test.xx").read_text().split("\n")[:-1]
    output = process.stdout.split("\n")[:-1]
    table = dict(line.split("\t")[:2] for line in (translated / "table").read_text().splitlines())

    lines = (translated / form).read_text().splitlines()
    best = {int(line.split("\t")[0][2:]): line.split("\t")[2] for line in reversed(lines) if line.startswith("H-")}
    attention = {int(line.split("\t")[0][2:]): line.split("\t")[1] for line in reversed(lines) if line.startswith("A-")}
    assert sorted(best) == [0, 1, 3, 4, 5] and len(output) == 6 and output[2] == ""
    assert best[1] == output[1] != "", "an empty source sentence has nothing to replace UNK with"
    kinds = set()
    for sentence in (0, 3, 4, 5):
        words = source[sentence].split()
        hypothesis = best[sentence].split()
        assert "<unk>" in hypothesis
        for j, (before, after) in enumerate(zip(hypothesis, output[sentence].split(), strict=True)):
            if before != "<unk>":
                assert after == before
                continue
            if form == "hard":
                pairs = [pair.split("-") for pair in attention[sentence].split()]
                chosen = words[next(int(i) for i, target in pairs if int(target) == j)]
            else:
                weights = [float(weight) for weight in attention[sentence].split()[j].split(",")]
                assert len(weights) == len(words) + 1
                chosen = words[weights.index(max(weights[:-1]))]
            kinds.add(chosen in table)
            assert after == table.get(chosen, chosen)
    assert True in kinds
    assert "6 sentences, 1 of them without a hypothesis; 5 hypotheses" in process.stderr

"""Stock fairseq's readers of text and its use of numpy, without ``--user-dir``."""

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from corpus import pipe_of, run, write_corpus
from fairseq import options, utils
from fairseq.data import Dictionary, LanguagePairDataset, TokenBlockDataset, data_utils
from fairseq.data.indexed_dataset import IndexedRawTextDataset
from fairseq_cli import score

from fairseq_attnvariants_cli.text.files import read_lines

pytestmark = pytest.mark.commands

OTHER = "\v\f\x1c\x1d\x1e\x85\xa0\u2028\u2029\u3000"  # white space that ends no line


MISREAD = [
    (b"a b\r\nc\rd\n", 2, "a carriage return"),
    (b"a b\r\nc\xff d\n", 2, "not UTF-8 (invalid start byte): save it as UTF-8"),
    (b"\xef\xbb\xbfa b\n", 1, "a byte order mark"),
]


@pytest.mark.parametrize("name, number, before, after, said", [
    ("train.xx", 2, b"", b"\rcat", "a carriage return"),
    ("train.yy", 91, b"", b"\rcat", "a carriage return"),
    ("test.yy", 12, b"", b"\rcat", "a carriage return"),
    ("train.xx", 2, b"", b" caf\xe9", "not UTF-8 (invalid continuation byte)"),
    ("test.yy", 1, b"\xef\xbb\xbf", b"", "a byte order mark"),
])  # fmt: skip
def test_preprocessing_refuses_what_it_misreads_before_it_writes(tmp_path, name, number, before, after, said):
    write_corpus(tmp_path)
    lines = (tmp_path / name).read_bytes().split(b"\n")
    lines[number - 1] = before + lines[number - 1] + after
    (tmp_path / name).write_bytes(b"\n".join(lines))
    prefixes = [f"--{split}pref={tmp_path / split}" for split in ("train", "valid", "test")]
    found = run("fairseq-preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", tmp_path / "bin", check=False)
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    assert f"error: {tmp_path / name}, line {number}: {said}" in found.stderr
    assert not (tmp_path / "bin").exists()


@pytest.fixture(params=MISREAD, ids=["return", "not UTF-8", "mark"])
def text(request, tmp_path):
    """A file that is misread, and the message that refuses it."""
    content, number, why = request.param
    path = tmp_path / "text"
    path.write_bytes(content)
    return path, f"{path}, line {number}: {why}"


def parse(make, *arguments):
    return make().parse_known_args([*map(str, arguments)])[0]


@pytest.mark.parametrize("make, arguments", [
    (options.get_interactive_generation_parser, ["data", "--path", "model", "--input"]),
    (options.get_preprocessing_parser, ["--alignfile"]),
    (options.get_preprocessing_parser, ["--srcdict"]),
    (score.get_parser, ["--sys", "-", "--ref"]),
])  # fmt: skip
def test_commands_refuse_it_with_its_line(text, capfd, monkeypatch, make, arguments):
    given = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(SystemExit) as end:
        parse(make, *arguments, text[0])
    assert end.value.code == 2 and f"error: {text[1]}" in capfd.readouterr().err


def test_preprocessing_looks_at_what_it_will_read_alone(text, monkeypatch, capfd):
    """A file whose name has no language, or no prefix, is not read."""
    prefix = text[0]
    monkeypatch.chdir(prefix.parent)
    for side in ("en", "de"):
        Path(f"{prefix}.{side}").write_text("a\n")
    given = ("--trainpref", prefix, "-s", "en", "-t", "de")
    assert parse(options.get_preprocessing_parser, *given).trainpref == str(prefix)
    assert parse(options.get_preprocessing_parser, *given, "--only-source").only_source
    Path(".de").write_bytes(prefix.read_bytes())
    assert not parse(options.get_preprocessing_parser, *given).testpref
    Path(f"{prefix}.de").write_bytes(prefix.read_bytes())
    with pytest.raises(SystemExit):
        parse(options.get_preprocessing_parser, *given)
    assert text[1].replace(str(prefix), f"{prefix}.de") in capfd.readouterr().err


@pytest.mark.parametrize("bad, said", [(b"c\rd\n", "a carriage return"), (b"caf\xe9 d\n", "not UTF-8")])
def test_a_stream_ends_at_it(monkeypatch, bad, said):
    given = io.TextIOWrapper(io.BytesIO(f"a{OTHER}b\r\n\n".encode() + bad))  # referenced, as sys.__stdin__ is
    monkeypatch.setattr(sys, "stdin", given)
    for _ in range(2):  # fairseq parses twice
        assert parse(options.get_interactive_generation_parser, "data", "--path", "model").input == "-"
    assert [sys.stdin.readline(), sys.stdin.readline()] == [f"a{OTHER}b\r\n", "\n"]
    with pytest.raises(SystemExit, match=f"line 3: {said}"):
        sys.stdin.readline()


@pytest.mark.parametrize(
    "read", [lambda path: IndexedRawTextDataset(path, Dictionary()), Dictionary.load, utils.load_align_dict]
)
def test_readers_refuse_it_with_its_line(text, read):
    with pytest.raises(ValueError, match=re.escape(text[1])):
        read(str(text[0]))


def test_everybody_reads_the_same_lines_and_words(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(f"a{OTHER}b\r\n\nc d\n".encode())
    dictionary = Dictionary()
    for word in "abcd":
        dictionary.add_symbol(word)
    words = [[*"ab"], [], [*"cd"]]
    assert [line.split() for line in read_lines(str(path))] == words
    assert not next(read_lines(str(path))).endswith("\r")
    found = IndexedRawTextDataset(str(path), dictionary)
    assert [[dictionary[k] for k in sentence[:-1]] for sentence in found] == words
    assert parse(options.get_interactive_generation_parser, "data", "--path", "model", "--input", path)


SIZES = np.array([2, 3, 3, 5, 7])


def test_batch_buckets_with_a_current_numpy():
    assert data_utils.get_buckets(SIZES, 2).tolist() == [3, 7]
    sentences = [torch.ones(size, dtype=torch.long) for size in SIZES]
    pairs = LanguagePairDataset(
        sentences, SIZES, Dictionary(), sentences, SIZES, Dictionary(), num_buckets=2, shuffle=False
    )
    assert pairs.buckets == [(None, 3), (None, 7)] and pairs.src_sizes.tolist() == [3, 3, 3, 7, 7]


def test_language_models_of_sentences_with_a_current_numpy():
    sentences = [torch.full((size,), k) for k, size in enumerate(SIZES)]
    blocks = TokenBlockDataset(sentences, SIZES, block_size=None, pad=1, eos=2, break_mode="eos")
    assert [block.tolist() for block in blocks] == [sentence.tolist() for sentence in sentences]


def test_only_modules_that_need_it_get_another_numpy():
    masks = data_utils.compute_mask_indices((2, 20), None, 0.5, 2, no_overlap=True)
    assert masks.shape == (2, 20) and masks.any()
    assert data_utils.np.float is float and data_utils.np.float32 is np.float32
    assert not hasattr(np, "float")


def test_embeddings_may_come_from_a_pipe():
    """A pipe can be read only once, so it is not checked before."""
    assert utils.parse_embedding(pipe_of(b"2 2\nant 0.5 1.5\nbee 1 2\n"))["ant"].tolist() == [0.5, 1.5]

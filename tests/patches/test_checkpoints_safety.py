"""Checkpoints of stock fairseq load; any other content is refused, and so are other dictionaries."""

import argparse
import os
import re
import shutil
import sys
from zipfile import ZipFile

import fairseq_cli.generate
import fairseq_cli.train
import numpy
import pytest
import torch
from conftest import TORCH
from corpus import USER_DIR, train_arguments
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_attnvariants.patches.loading.checkpoints import load

pytestmark = pytest.mark.filterwarnings("ignore:::(?!fairseq_attnvariants)")  # stock fairseq has many


@pytest.fixture
def fairseq(monkeypatch, data, tmp_path):
    """fairseq's commands, run in this process."""

    def command(main, *arguments):
        monkeypatch.setattr(sys, "argv", ["fairseq", *map(str, arguments)])
        main()

    def train(updates, *more):
        command(fairseq_cli.train.cli_main, *train_arguments(data, tmp_path, "--max-update", updates, *more))
        return tmp_path / "checkpoint_last.pt"

    def generate(path, data=data):
        arguments = [data, "--user-dir", USER_DIR, "--path", path, "--gen-subset", "test", "--results-path", tmp_path]
        command(fairseq_cli.generate.cli_main, *arguments, "--cpu", "--num-workers", "0")
        return (tmp_path / "generate-test.txt").read_text()

    return argparse.Namespace(train=train, generate=generate)


def everything_in(part):
    """Yield every value of nested dictionaries, lists and tuples."""
    if isinstance(part, (dict, list, tuple)):
        for value in part.values() if isinstance(part, dict) else part:
            yield from everything_in(value)
    else:
        yield part


@pytest.mark.parametrize("written,options", [
    (argparse.Namespace, ["--optimizer", "sgd"]),
    (argparse.Namespace, ["--optimizer", "adagrad"]),
    (argparse.Namespace, ["--optimizer", "adadelta"]),
    (argparse.Namespace, ["--lr-scheduler", "manual", "--update2lr", '{"1-9": 0.01}']),
    (numpy.ndarray, ["--eval-bleu", "--eval-bleu-args", '{"max_len_b": 10}']),
], ids=lambda value: value[1] if isinstance(value, list) and value[0] != "--eval-bleu" else None)  # fmt: skip
def test_what_stock_fairseq_writes_trains_resumes_and_generates(fairseq, written, options):
    fairseq.train(2, *options)
    path = fairseq.train(4, *options)
    state = load_checkpoint_to_cpu(str(path))
    assert [run["num_updates"] for run in state["optimizer_history"]] == [2, 4]
    raw = load(path)
    assert any(isinstance(value, written) for value in everything_in(raw)), "the test tests nothing"
    assert "Generate test with beam=5" in fairseq.generate(path)


@pytest.mark.skipif(TORCH < (2, 4), reason="arrays are read with torch 2.4 and later")
@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"], ids=["numpy 1", "numpy 2"])
def test_arrays_written_by_either_numpy_are_read(tmp_path, core):
    counts, ours, theirs = numpy.array([3, 2, 1]), tmp_path / "ours.pt", tmp_path / "theirs.pt"
    torch.save(counts, ours)
    with ZipFile(ours) as source, ZipFile(theirs, "w") as target:
        for name in source.namelist():
            target.writestr(name, re.sub(rb"numpy\._?core", core, source.read(name)))
    assert (load(theirs) == counts).all()


class Calls:
    """Pickled as a call of :func:`os.mkdir`."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


class SetsState(argparse.Namespace):
    """An object of a class that is nearly an allowed one, but runs other code when its state is set."""

    def __init__(self, folder):
        super().__init__(folder=str(folder))

    def __setstate__(self, state):
        os.mkdir(state["folder"])


@pytest.mark.parametrize("kind", [Calls, SetsState])
@pytest.mark.parametrize(
    "wrap",
    [lambda it: it, lambda it: argparse.Namespace(it=it), lambda it: numpy.array([it, None], dtype=object)],
    ids=["itself", "in a Namespace", "in an array"],
)
def test_anything_else_is_refused_and_none_of_its_code_runs(tmp_path, kind, wrap):
    path, folder = tmp_path / "checkpoint.pt", tmp_path / "made by code in the checkpoint"
    torch.save({"args": None, "cfg": None, "model": {}, "extra_state": wrap(kind(folder))}, path)
    with pytest.raises(Exception, match=f"^{path}: not loaded"):
        load_checkpoint_to_cpu(str(path))
    assert not folder.exists()


def test_the_commands_refuse_it_too(fairseq, tmp_path):
    path, folder = fairseq.train(1), tmp_path / "made by code in the checkpoint"
    state = torch.load(path, weights_only=True)
    state["extra_state"]["more"] = Calls(folder)
    torch.save(state, path)
    for command in (fairseq.generate, lambda path: fairseq.train(2)):
        with pytest.raises(Exception, match=f"^{path}: not loaded"):
            command(path)
    assert not folder.exists()


@pytest.mark.parametrize("language,side", [("xx", "source"), ("yy", "target")])
def test_dictionary_of_equal_size_with_other_words_is_refused(fairseq, data, tmp_path, language, side):
    path, other = fairseq.train(1), tmp_path / "other"
    shutil.copytree(data, other)
    words = other / f"dict.{language}.txt"
    words.write_text(words.read_text().replace("gnu ", "yak "))
    with pytest.raises(ValueError, match=f"trained with another {side} dictionary"):
        fairseq.generate(path, other)

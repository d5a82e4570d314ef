"""Trainings that are killed while they write, or repeated, end in the same weights, bit for bit."""

import errno
import logging
import multiprocessing
import os
import re
import shutil
import sys
from pathlib import Path

import corpus
import fairseq_cli.train
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_attnvariants.patches.loading.checkpoints import is_whole

UPDATES = 24
SCRIPT = Path(__file__).parents[2] / "examples" / "common" / "train.sh"
pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


OPERATIONS = (torch, "save"), (os, "fsync"), (os, "rename"), (os, "remove"), (shutil, "copyfile")


def die_before(number):
    """End this process before it writes, renames or removes a file for the ``number``-th time."""
    left = iter(range(number - 1, -1, -1))

    def counted(operation):
        return lambda *arguments, **options: operation(*arguments, **options) if next(left) else os._exit(9)

    for module, name in OPERATIONS:
        setattr(module, name, counted(getattr(module, name)))


def train(data, folder, *more, killed=0):
    """Start fairseq-train in a forked process, which may die before operation ``killed``; return the process."""
    more = more or ("--save-interval-updates", "1", "--keep-interval-updates", "2", "--max-update", UPDATES)

    def main():
        if killed:
            die_before(killed)
        sys.stdout = sys.stderr = open(folder / "log", "a", buffering=1)  # noqa: SIM115
        logging.basicConfig(force=True, stream=sys.stdout, level=logging.INFO)
        sys.argv = ["fairseq-train", *corpus.train_arguments(data, folder, *more)]
        vars(checkpoint_utils.save_checkpoint).clear()  # the best score of another run
        fairseq_cli.train.cli_main()

    folder.mkdir(exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=main)
    process.start()
    return process


def finished(process, folder):
    process.join()
    assert process.exitcode == 0, (folder / "log").read_text()[-2000:]
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)


def assert_same(one, other):
    """Assert equal weights, states of the optimizer, places in the data and best scores."""
    for part in ("model", "last_optimizer_state"):
        assert_equal(one[part], other[part])
    assert one["extra_state"]["train_iterator"] == other["extra_state"]["train_iterator"]
    assert one["extra_state"]["best"] == other["extra_state"]["best"]


def assert_equal(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The folder of a training without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    finished(train(data, folder), folder)
    return folder


def test_kills(request, data, whole, tmp_path):
    """Each kill is two operations later; after it, all checkpoints are complete, and the last one is not older."""
    folder, before = tmp_path / "run", 0
    for number in range(2, 2 + 2 * request.config.getoption("--kills"), 2):
        process = train(data, folder, killed=number)
        process.join()
        assert process.exitcode == 9, (folder / "log").read_text()[-2000:]
        for path in folder.glob("checkpoint*.pt"):
            assert is_whole(path)
        if (folder / "checkpoint_last.pt").exists():
            state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
            updates = state["optimizer_history"][-1]["num_updates"]
            assert updates >= before
            before = updates
    assert before
    assert_same(finished(train(data, folder), folder), torch.load(whole / "checkpoint_last.pt", weights_only=True))
    names = [{path.name for path in one.iterdir()} - {".lock"} for one in (folder, whole)]
    assert names[0] == names[1]


def test_a_checkpoint_is_on_disk_before_it_has_its_name(data, tmp_path):
    """Otherwise the name could survive a power cut, and the content not."""
    order = tmp_path / "order"

    def note(operation, path):
        with order.open("a") as stream:
            print(operation, path, file=stream)

    def noted(data, folder):
        fsync, rename = os.fsync, os.rename
        os.fsync = lambda stream: note("fsync", os.readlink(f"/proc/self/fd/{stream}")) or fsync(stream)
        os.rename = lambda source, target: note("rename", os.path.abspath(source)) or rename(source, target)
        corpus.train_here(*corpus.train_arguments(data, folder, "--max-update", "1"))

    process = multiprocessing.get_context("fork").Process(target=noted, args=(data, tmp_path / "run"))
    process.start()
    process.join()
    done = [line.split(" ") for line in order.read_text().splitlines()]
    renamed = [k for k, (operation, path) in enumerate(done) if operation == "rename" and path.endswith(".tmp")]
    assert renamed and all(["fsync", done[k][1]] in done[:k] for k in renamed)


def test_a_copy_that_is_cut_off_does_not_arrive(data, tmp_path, monkeypatch):
    """A kill while checkpoint_last.pt is written must not leave half of it."""

    def cut(source, target):
        target.write(source.read(1000))
        target.flush()
        os._exit(9)

    monkeypatch.setattr(shutil, "copyfileobj", cut)
    process = train(data, tmp_path / "run", "--max-update", "2")
    process.join()
    monkeypatch.undo()
    assert process.exitcode == 9 and not (tmp_path / "run" / "checkpoint_last.pt").exists()


def test_a_copy_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """A full disk must not leave half of a checkpoint."""

    def full(source, target):
        target.write(source.read()[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "saved.pt").write_text("whole")
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space"):
        PathManager.copy(str(tmp_path / "saved.pt"), str(tmp_path / "copied.pt"), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["saved.pt"]


def test_checkpoints_are_not_written_through_links(tmp_path):
    """A folder from somebody else may have links with the predictable names of temporary files."""
    (tmp_path / "mine").write_text("mine")
    for name in ("saved.pt", "copied.pt"):
        (tmp_path / f"{name}.tmp").symlink_to("mine")
    checkpoint_utils.torch_persistent_save({"x": 1}, str(tmp_path / "saved.pt"))
    PathManager.copy(str(tmp_path / "saved.pt"), str(tmp_path / "copied.pt"), overwrite=True)
    assert (tmp_path / "mine").read_text() == "mine"
    for name in ("saved.pt", "copied.pt"):
        assert torch.load(tmp_path / name, weights_only=True) == {"x": 1} and not (tmp_path / name).is_symlink()
    assert not list(tmp_path.glob("*.tmp"))


def test_a_cut_off_last_checkpoint_is_replaced_by_the_newest_complete_one(data, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    last = folder / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:5000])
    newest = sorted(folder.glob("checkpoint_*_*.pt"))[-1]
    newest.write_bytes(newest.read_bytes()[:5000])
    os.utime(folder / "checkpoint_best.pt", (0, 0))
    assert_same(finished(train(data, folder), folder), torch.load(whole / "checkpoint_last.pt", weights_only=True))
    assert "checkpoint_last.pt is damaged or cut off: continuing from" in (folder / "log").read_text()


def test_without_a_complete_checkpoint_the_reason_is_said(data, tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK")
    process = train(data, tmp_path)
    process.join()
    assert process.exitcode != 0 and "has no whole one of this model" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("more", [["--max-update", "20"], ["--max-epoch", "1"]], ids=["updates", "epochs"])
def test_repeating_a_finished_training_changes_nothing(data, tmp_path, more):
    once = finished(train(data, tmp_path, *more), tmp_path)
    content = (tmp_path / "checkpoint_last.pt").read_bytes()
    again = finished(train(data, tmp_path, *more), tmp_path)
    assert_same(once, again)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == content
    longer = finished(train(data, tmp_path, "--max-update", "22"), tmp_path)
    assert longer["optimizer_history"][-1]["num_updates"] == 22


def test_other_dictionaries_are_named_when_training_goes_on(data, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(data, other)
    for language in ("xx", "yy"):
        words = other / f"dict.{language}.txt"
        words.write_text(words.read_text().replace("gnu ", "yak "))
    folder = tmp_path / "run"
    finished(train(data, folder, "--max-update", "2"), folder)
    process = train(other, folder, "--max-update", "4")
    process.join()
    error = re.findall(r"^\S*ConfigurationError: .*", (folder / "log").read_text(), flags=re.MULTILINE)[-1]
    assert process.exitcode == 1 and f"{folder / 'checkpoint_last.pt'}; this checkpoint was trained with anoth" in error
    assert "architectures" not in error


def test_a_recipe_that_has_ended_is_not_trained_on(tmp_path):
    """fairseq does not store how long it has been patient, so the script of the recipes records the end."""
    saved = tmp_path / "an out" / "checkpoint_last.pt"
    for name, line in (
        ("fairseq-train", f"echo trained >> '{tmp_path}/calls'; touch '{saved}'; exit $FAILS"),
        ("fairseq-attnvariants", ""),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o700)

    def recipe(*more, fails=0):
        environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "FAILS": str(fails)}
        arguments = ["bin", tmp_path / "an out", "--patience", "10", *more]
        corpus.run(SCRIPT, *arguments, check=not fails, environment=environment)
        return (tmp_path / "calls").read_text().count("trained")

    assert [recipe(fails=9), recipe(), recipe(), recipe("--patience", "20"), recipe("--patience", "20")] == [
        1,
        2,
        2,
        3,
        3,
    ]

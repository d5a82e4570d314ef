"""Two trainings do not write to one folder at the same time."""

import errno
import fcntl
import gc
import multiprocessing
import os
import signal
import time

import corpus
import pytest

from fairseq_attnvariants.patches.training import lock as locks

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


class Trainer:
    """An object that weak references can refer to."""


def fork(function, *arguments):
    """Start a process that calls a function and stays; return it after the call."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()

    def stay():
        kept = function(*arguments)  # noqa: F841
        ready.set()
        time.sleep(600)

    process = context.Process(target=stay)
    process.start()
    assert ready.wait(60)
    return process


def hold(folder):
    """Lock a folder, and return the trainer that holds the lock."""
    trainer = Trainer()
    locks.lock(str(folder), trainer)
    return trainer


def test_a_second_training_is_refused_until_the_first_is_gone(runs, tmp_path):
    other, arguments = fork(hold, tmp_path), corpus.train_arguments(runs.data, tmp_path, "--max-update", "1")
    with pytest.raises(ValueError, match=rf"another training writes there \(process {other.pid} on .*, since 2"):
        corpus.train_here(*arguments)
    assert not list(tmp_path.glob("*.pt"))
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    corpus.train_here(*arguments)
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_a_full_disk_locks_without_a_text(tmp_path, monkeypatch):
    class Full:
        def __init__(self, stream):
            self.stream = stream

        def __getattr__(self, name):
            return getattr(self.stream, name)

        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(locks, "locked", lambda path: Full(open(path, "a+")))  # noqa: SIM115
    trainer = hold(tmp_path)
    assert locks.held is not None
    del trainer
    gc.collect()
    assert not (tmp_path / locks.NAME).exists()


def test_one_process_trains_again_and_gives_the_folder_back(runs, tmp_path):
    for updates in ("1", "2"):
        corpus.train_here(*corpus.train_arguments(runs.data, tmp_path, "--max-update", updates))
    gc.collect()  # deletes the trainer, which a real training has until its end
    assert (tmp_path / "checkpoint_last.pt").exists() and not (tmp_path / locks.NAME).exists()
    other = fork(hold, tmp_path)
    other.kill()
    other.join()


def test_a_training_is_not_refused_by_an_earlier_one_of_its_process(tmp_path):
    """A notebook may still have the first trainer.  When Python deletes it, the second training keeps the folder."""
    first = hold(tmp_path)
    second = hold(tmp_path)
    del first
    gc.collect()
    assert (tmp_path / locks.NAME).exists()
    del second


def test_a_training_that_is_refused_gives_the_folder_back(runs, tmp_path):
    """The folder is free even while the error, and so the trainer, is referenced."""
    arguments = corpus.train_arguments(runs.data, tmp_path, "--restore-file", tmp_path / "nothing.pt")
    with pytest.raises(ValueError, match="there is no such file") as error:
        corpus.train_here(*arguments)
    assert error.value and not (tmp_path / locks.NAME).exists()


def test_a_process_that_loads_data_does_not_keep_it(tmp_path):
    trainer = hold(tmp_path)
    child = fork(time.sleep, 0)
    stays = (tmp_path / locks.NAME).exists()
    del trainer
    hold(tmp_path)
    child.kill()
    child.join()
    assert stays  # a child that gives it back would have removed it


def test_processes_that_load_data_do_not_keep_the_folder_of_a_killed_training(tmp_path):
    """These processes may outlive the training."""

    def begin():
        trainer, loader = hold(tmp_path), os.fork()
        if not loader:
            (tmp_path / "loads").touch()
            time.sleep(600)
            os._exit(0)
        (tmp_path / "loader").write_text(str(loader))
        while not (tmp_path / "loads").exists():
            time.sleep(0.01)
        return trainer

    other = fork(begin)
    other.kill()
    other.join()
    try:
        trainer = hold(tmp_path)
        assert (tmp_path / locks.NAME).read_text().startswith(f"process {os.getpid()} ")
    finally:
        os.kill(int((tmp_path / "loader").read_text()), signal.SIGKILL)
    del trainer


def test_a_lock_that_an_ending_training_removes_is_taken_anew(tmp_path, monkeypatch):
    """The file may be removed between opening and locking it."""
    flock, removed = fcntl.flock, []

    def late(stream, how):
        flock(stream, how)
        if not removed:
            removed.append(os.unlink(tmp_path / locks.NAME))

    monkeypatch.setattr(fcntl, "flock", late)
    trainer = hold(tmp_path)
    assert (tmp_path / locks.NAME).exists()
    del trainer


@pytest.mark.parametrize("reason", [OSError(37, "No locks available"), PermissionError(13, "Permission denied")])
def test_a_file_system_without_locks_does_not_stop_a_training(runs, tmp_path, monkeypatch, caplog, reason):
    def refuse(*arguments):
        raise reason

    monkeypatch.setattr(fcntl, "flock", refuse)
    corpus.train_here(*corpus.train_arguments(runs.data, tmp_path, "--max-update", "1"))
    assert (tmp_path / "checkpoint_last.pt").exists() and f"no lock ({reason})" in caplog.text


def test_a_link_of_the_lock_is_not_followed(tmp_path, caplog):
    """In a folder of runs from somebody else, the lock may be a link."""
    other = tmp_path / "other"
    other.write_text("text")
    (tmp_path / locks.NAME).symlink_to(other)
    with caplog.at_level("INFO"):
        trainer = hold(tmp_path)
    assert other.read_text() == "text" and "no lock" in caplog.text
    del trainer


def test_a_lock_names_its_own_process_alone(tmp_path):
    """The text of a process that was killed before is overwritten."""
    other = fork(hold, tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    trainer = hold(tmp_path)
    [line] = (tmp_path / locks.NAME).read_text().splitlines()
    assert line.startswith(f"process {os.getpid()} on ")
    del trainer


def test_a_training_that_saves_nothing_needs_no_lock(runs, tmp_path):
    other = fork(hold, tmp_path)
    corpus.train_here(*corpus.train_arguments(runs.data, tmp_path, "--max-update", "1", "--no-save"))
    other.kill()
    other.join()
    assert not list(tmp_path.glob("*.pt"))

"""``make quick`` stays quick: its tests start no command, neither in another process nor in this one."""

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import corpus
import pytest
from conftest import MARKERS, outside

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("start", [
    lambda: subprocess.run(["true"]),
    lambda: os.system("true"),
    lambda: multiprocessing.get_context("fork").Process(target=print).start(),
    corpus.warm.__wrapped__,
    lambda: corpus.run("sacrebleu", "--help"),
    lambda: corpus.train_here("data"),
    lambda: corpus.preprocess_here("--only-source"),
])  # fmt: skip
def test_a_command_in_a_test_without_a_marker_is_refused(start):
    with pytest.raises(pytest.fail.Exception, match="mark this test `commands`"):
        start()


@pytest.mark.commands
def test_tests_with_the_marker_start_commands():
    assert subprocess.run(["true"]).returncode == 0


def test_sockets_have_short_names():
    """Sockets pass commands to ``warm.py``, and torch's loaders pass tensors through them."""
    assert len(os.fsencode(tempfile.gettempdir())) <= 60


def test_shared_trainings_bring_the_marker(request):
    """Otherwise a test without the marker would only be found if it ran first."""
    trained = [item for item in request.session.items if {"runs", "gated", "characters", "data"} & {*item.fixturenames}]
    assert all(MARKERS & {mark.name for mark in item.iter_markers()} for item in trained)


def test_every_marker_is_declared_and_left_out():
    declared = re.search(r"^markers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)[1]
    quick = re.search(r"^QUICK = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert set(re.findall(r'"(\w+):', declared)) == MARKERS
    assert set(re.findall(r"not (\w+)", quick)) == MARKERS


def test_a_folder_of_parts_leaves_no_module():
    """Otherwise another test's folder of the same name would seem to be imported."""
    before = sys.modules.get("mine")
    with outside(Path(__file__).with_name("mine")) as package:
        assert sys.modules["mine"] is package is not before
    assert sys.modules.get("mine") is before

"""How the C library keeps the memory of tensors."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import batch, build

from fairseq_attnvariants.models import allocation, attention_rnn

pytestmark = pytest.mark.commands

COUNT = """
import resource, sys, torch
from fairseq_attnvariants.models.allocation import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
for turn in range(9):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24).sum()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """Remove the variables that set the thresholds, unless a test sets them."""
    for name, _ in allocation.THRESHOLDS.values():
        monkeypatch.delenv(name, raising=False)


def faults(what, monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-W", "ignore", "-c", COUNT, what]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_where_the_first_is_refused_nothing_is_set(monkeypatch):
    """Older glibc refuses it; the second setting alone would stop the automatic adjustment."""
    asked = []
    library = SimpleNamespace(mallopt=lambda *arguments: asked.append(arguments) or 0)
    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda _: library)
    allocation.keep_memory.__wrapped__()
    assert asked == [(-3, 2**30)]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_large_tensors_find_the_memory_of_those_before_them(monkeypatch):
    """Eight tensors of 64 MiB need few new pages after a first one, unless environment variables set thresholds."""
    kept, plain = faults("keep", monkeypatch), faults("leave", monkeypatch)
    asked = faults("keep", monkeypatch, MALLOC_MMAP_THRESHOLD_=str(2**20))
    assert 4 * kept < min(plain, asked), (kept, plain, asked)  # at most the first of the eight asks for more


def test_a_model_that_trains_asks_for_it(monkeypatch):
    """A model that translates does not."""
    asked = []
    monkeypatch.setattr(attention_rnn, "keep_memory", lambda: asked.append("asked"))
    model = build("rnnsearch")
    model.eval()(*batch())
    assert not asked
    model.train()(*batch())
    assert asked == ["asked"]


CHILD = """
import os, torch
from fairseq_attnvariants.models.allocation import keep_memory
keep_memory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

before = resident()
kept = [torch.ones(2**24) for _ in range(9)]
del kept[:]
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_children_hold_nothing_of_it():
    """A child that loads data has none of the 576 MiB that its parent keeps."""
    command = [sys.executable, "-W", "ignore", "-c", CHILD]
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) < 100

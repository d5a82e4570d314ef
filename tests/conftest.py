"""Shared helpers and fixtures: small models of any architecture, dictionaries and padded batches."""

import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import composing
import corpus
import hypothesis
import pytest
import torch

if "TEST_GPU" not in os.environ:  # set for test_gpu.py: all other tests run on a CPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

if len(os.fsencode(tempfile.gettempdir())) > 60:  # paths of sockets, torch's too, have at most 107 bytes
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fairseq import models
    from fairseq.data import Dictionary

from fairseq_attnvariants.architectures.options import AttentionRNNConfig, flag
from fairseq_attnvariants.architectures.variants import VARIANTS, fill, settings
from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.nn import attention, cells, histories, readout, windows
from fairseq_attnvariants_cli.checks import Subject
from fairseq_attnvariants_cli.main import main

LONG = 120  # seconds after which a process is taken to hang
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

composing.remember()
gc.freeze()  # imported objects stay, so the garbage collector may skip them

MARKERS = {"slow", "commands", "docs", "more", "hostile", "exhaustive"}  # `make quick` runs the tests without these
STARTS = {"corpus.command", "subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}
quick = False  # whether the current test has none of them
ASKED = {"lscpu", "fc-list"}  # numpy and matplotlib start these when they are first used
sys.addaudithook(
    lambda event, given: quick and event in STARTS and not ASKED & {*map(str, given[:1])}
    and pytest.fail(f"{event}: mark this test `commands`")
)  # fmt: skip

# the same examples every time, and no time limit on slow machines
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True, database=None, max_examples=50)
hypothesis.settings.load_profile("tests")

TABLES = [
    attention.SCORES,
    attention.NORMALIZERS,
    histories.HISTORIES,
    windows.WINDOWS,
    cells.CELLS,
    readout.READOUTS,
    VARIANTS,
]
SMALL = dict(encoder_embed_dim=6, encoder_hidden_size=8, decoder_embed_dim=5, decoder_hidden_size=7)
CONVOLUTIONS = dict(encoder_filters="2-1-3-2", encoder_pooling=3, encoder_highway_layers=2)
CHARACTERS = dict(encoder_char_hidden_size=4, attention_via_dim=3, attention_dim=9, decoder_out_embed_dim=6)
SPACE = 5

# combinations of parts that no architecture has, for the tests of all architectures
HEADS = dict(attention_score="multihead", attention_heads=2, attention_dim=6, attention_normalizer="entmax")
LOCAL = dict(attention_score="bilinear", attention_window="predictive", attention_window_width=2)
MONOTONE = dict(attention_score="scaled", attention_normalizer="sparsemax", attention_window="monotone")
COMPOSED = {
    "heads": ("dl4mt", dict(attention_history="coverage+distance", **HEADS)),
    "local": ("rnnsearch", dict(attention_temperature=0.7, attention_history="context", **LOCAL)),
    "monotone": ("ava", dict(attention_window_width=1, **MONOTONE)),
}


class Symbols(Dictionary):
    """A dictionary whose second word is the space, for models on characters."""

    def space(self):
        return SPACE


def dictionary(words=20, prefix="w", shared=0):
    """Return a dictionary of words with a prefix; the last ``shared`` words are ``w0``, ``w1`` and so on."""
    result = Symbols()
    for i in range(words):
        result.add_symbol(f"{prefix}{i}" if i < words - shared else f"w{i - words + shared}")
    return result


class Task:
    """A task with the dictionaries that models read."""

    def __init__(self, source=None, target=None):
        self.source_dictionary = source or dictionary()
        self.target_dictionary = target or dictionary(17, "v", shared=7)


def build(name, task=None, seed=0, scale=None, **options):
    """Return a small model; ``scale`` draws parameters from -scale to scale, as small initial values hide mistakes."""
    torch.manual_seed(seed)
    name, parts = COMPOSED.get(name, (name, {}))
    cfg = AttentionRNNConfig()
    cfg.max_source_positions = cfg.max_target_positions = 1024
    convolutional = options.get("encoder_type", settings(name)["encoder_type"]) == "convolutional"
    sizes = {**SMALL, **(CHARACTERS if name.startswith("ava") else {}), **(CONVOLUTIONS if convolutional else {})}
    for option, value in {**sizes, "dropout": 0.0, **parts, **options}.items():
        setattr(cfg, option, value)
    fill(cfg, name)
    model = AttentionRNNModel.build_model(cfg, task or Task())
    if scale is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-scale, scale)
    return model


@contextlib.contextmanager
def outside(folder):
    """Yield the imported package of a folder for ``--user-dir``; restore all tables afterwards, fairseq's too."""
    tables = [table.entries for table in TABLES]
    tables += [models.ARCH_MODEL_REGISTRY, models.ARCH_MODEL_NAME_REGISTRY, models.ARCH_CONFIG_REGISTRY]
    with contextlib.ExitStack() as stack:
        for table in tables:
            stack.enter_context(mock.patch.dict(table))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.syspath_prepend(folder.parent)
        patch.setitem(sys.modules, folder.name, None)  # restored afterwards: a module of the same name, or none
        del sys.modules[folder.name]
        yield importlib.import_module(folder.name)


def batch(lengths=(5, 3, 1), target_lengths=(4, 6, 2), pad=1, eos=2, left=True, seed=1, words=17):
    """Return source tokens, padded on one side, their lengths, and previous target tokens, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.full((len(lengths), max(lengths) + 1), pad)
    previous = torch.full((len(lengths), max(target_lengths) + 1), pad)
    for row, (length, target) in enumerate(zip(lengths, target_lengths)):
        words_ = torch.cat([torch.randint(4, words, (length,), generator=generator), torch.tensor([eos])])
        if left:
            source[row, -len(words_) :] = words_
        else:
            source[row, : len(words_)] = words_
        previous[row, 0] = eos
        previous[row, 1 : target + 1] = torch.randint(4, words, (target,), generator=generator)
    return source, torch.tensor([length + 1 for length in lengths]), previous


def gradients(model, *sizes):
    """Return a model's outputs for a batch, with its costs' terms, and the gradients of the sum of their squares."""
    output, extra = model(*batch(*sizes), with_cost_terms=True)
    made = [output, *(values[0] for values in extra.values())]
    return made, torch.autograd.grad(sum(value.square().sum() for value in made), [*model.parameters()])


@pytest.fixture
def refusal(capfd):
    """A function that runs a subcommand, which refuses its arguments in one sentence, and returns this sentence."""

    def run(arguments):
        capfd.readouterr()  # of what ran before
        assert main([*map(str, arguments)]) == 2
        out, error = capfd.readouterr()
        assert out == "" and error.count("\n") == 1 and error.startswith(f"fairseq-attnvariants {arguments[0]}: ")
        return error

    return run


@pytest.fixture
def sample():
    """The sample of a :func:`batch` that fairseq's search reads."""
    tokens, lengths, _ = batch()
    return {"id": torch.arange(len(tokens)), "net_input": {"src_tokens": tokens, "src_lengths": lengths}}


def average(states):
    """Average states as fairseq's scripts/average_checkpoints.py does, with floor division unless a tensor is float."""
    result = {}
    for name, tensor in states[0].items():
        total = tensor.clone()
        for state in states[1:]:
            total += state[name]
        result[name] = total.div_(len(states)) if total.is_floating_point() else total.floor_divide_(len(states))
    return result


def stepwise(model, source, lengths, previous, rows):
    """Decode given words step by step, as a search does; return the outputs of ``rows``, and the last extra."""
    encoder_out = model.encoder.reorder_encoder_out(model.encoder(source, lengths), rows)
    state, outputs = {}, []
    for step in range(previous.size(1)):
        output, extra = model.decoder(previous[rows, : step + 1], encoder_out, incremental_state=state)
        outputs.append(output)
    return torch.cat(outputs, dim=1), extra


def assert_rounded(found, exact, of_another_source):
    """Assert that two outputs differ by rounding at most: by less than half of what another source changes."""
    assert (found - exact).norm() < 0.5 * (of_another_source - exact).norm()


@cache
def subject(name, options=()):
    """Return the subject of ``fairseq-attnvariants check`` for an architecture, or for one of :data:`COMPOSED`."""
    name, parts = COMPOSED.get(name, (name, {}))
    given = {**parts, **dict(options)}
    flags = [flag(option) if value is True else f"{flag(option)}={value}" for option, value in given.items()]
    on_characters = settings(name)["encoder_type"] == "hierarchical"
    return Subject(name, [*flags, *(["--task", "char_translation"] if on_characters else [])])


QUIETENED = [logging.getLogger(name) for name in ("fairseq", "fairseq_attnvariants")]
# signals with a handler; if SIGPIPE is not ignored, a broken connection ends the process and all of its tests
HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE)
SIGNALS = {number: signal.getsignal(number) for number in HANDLED}


@pytest.fixture(autouse=True)
def process():
    """Restore loggers and signal handlers, which subcommands change, in fixtures too."""
    for logger in QUIETENED:
        logger.setLevel(logging.NOTSET)
    yield
    logging.disable(logging.NOTSET)  # benchmarks disable logging
    for logger in QUIETENED:
        logger.setLevel(logging.NOTSET)
    for number, handler in SIGNALS.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class OnCharacters(NamedTuple):
    """The corpus as characters, and a model on it."""

    data: Path
    ava: Path  # checkpoint after a few updates


@pytest.fixture(scope="session")
def warm():
    """The folder of commands that start without importing torch."""
    return corpus.warm()


@pytest.fixture(scope="session")
def binarised(tmp_path_factory):
    """The folder of the binarised corpus of reversed sentences; its text is in the folder above."""
    folder = tmp_path_factory.mktemp("corpus")
    corpus.write_corpus(folder)
    return corpus.preprocess(folder)


@pytest.fixture(scope="session")
def data(binarised):
    """The same corpus; some modules override this fixture."""
    return binarised


class Trained(NamedTuple):
    """A corpus and short runs on it."""

    text: Path  # {train,valid,test}.{xx,yy}
    data: Path
    rnnsearch: Path  # folder of checkpoints: two epochs of 15 updates
    lstm: Path  # stock fairseq's


@pytest.fixture(scope="session")
def runs(binarised):
    """The corpus and short runs on it, for the subcommands that read a model."""
    data, folder = binarised, binarised.parent
    common = ["--max-epoch", "2", "--save-interval-updates", "10"]
    corpus.run("fairseq-train", *corpus.train_arguments(data, folder / "rnnsearch", *common))
    lstm = [data, "--user-dir", corpus.USER_DIR, "--arch", "lstm", "--encoder-bidirectional", "--save-dir"]
    lstm += [folder / "lstm", "--optimizer", "adam", "--lr", "0.01", "--batch-size", "8", "--max-epoch", "1", "--cpu"]
    for side in ("encoder", "decoder"):
        lstm += [f"--{side}-embed-dim", "16", f"--{side}-hidden-size", "16"]
    lstm += ["--decoder-out-embed-dim", "16", "--save-interval-updates", "10", "--seed", "5", "--num-workers", "0"]
    corpus.run("fairseq-train", *lstm)
    return Trained(folder, data, folder / "rnnsearch", folder / "lstm")


@pytest.fixture(scope="session")
def characters(runs):
    """The corpus as characters, and a model with attention via attention on it."""
    task = ["--user-dir", corpus.USER_DIR, "--task", "char_translation"]
    data = corpus.preprocess(runs.text, "characters", *task)
    sizes = ["--encoder-char-hidden-size", "16", "--decoder-out-embed-dim", "16", "--attention-dim", "16"]
    arguments = corpus.train_arguments(data, runs.text / "ava", "--max-update", "3", *sizes, *task[2:], arch="ava")
    corpus.run("fairseq-train", *arguments)
    return OnCharacters(data, runs.text / "ava" / "checkpoint_last.pt")


@pytest.fixture(scope="session")
def gated(runs):
    """A checkpoint with adaptive weighting and bridges after a few updates."""
    arguments = corpus.train_arguments(runs.data, runs.text / "gated", "--max-update", "5", arch="adaptive_both")
    corpus.run("fairseq-train", *arguments, "--bridge-source", "--bridge-direct", "hard", "--init-std", "0.3")
    return runs.text / "gated" / "checkpoint_last.pt"


def pytest_itemcollected(item):
    """Mark every test that uses trained models or warm commands as ``commands``."""
    if {"binarised", "warm"} & {*item.fixturenames}:
        item.add_marker("commands")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global quick
    quick = not MARKERS & {mark.name for mark in item.iter_markers()}
    try:
        return (yield)
    finally:
        quick = False


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=8, help="of tests/hostile/test_kills.py (default: %(default)s)")

"""Checkpoints of earlier versions load, compute and translate the same, and continue their training in the same way."""

import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from data import make_0_1_0 as old
from data import make_0_3_0
from fairseq import checkpoint_utils

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models.renamed import renamed

pytestmark = pytest.mark.commands

ARCHIVES = {"0.1.0": (old.ARCHIVE, old.COMPOSITIONS), "0.3.0": (make_0_3_0.ARCHIVE, make_0_3_0.COMPOSITIONS)}


def names(version):
    """Return the names of the models of a version."""
    with tarfile.open(ARCHIVES[version][0]) as archive:
        return [Path(name).stem for name in archive.getnames() if name != "expected.pt"]


MODELS = pytest.mark.parametrize("version, name", [(version, name) for version in ARCHIVES for name in names(version)])


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder for each version, with its checkpoints and their expected results; the corpus is in ``data/``."""
    folder = tmp_path_factory.mktemp("old")
    for version, (path, _) in ARCHIVES.items():
        with tarfile.open(path) as archive:
            archive.extractall(folder / version, filter="data")
    old.binarise(folder / "data")
    return folder


@pytest.fixture(scope="module")
def expected(files):
    return {version: torch.load(files / version / "expected.pt", weights_only=True) for version in ARCHIVES}


def test_every_architecture_of_then_is_there():
    assert {*names("0.1.0")} - {*old.COMPOSITIONS} <= {*VARIANTS}


@MODELS
def test_it_computes_and_translates_the_same(version, name, files, expected):
    found, expected = old.observe(files / version / f"{name}.pt", files / "data"), expected[version][name]
    assert [*map(renamed, expected["parameters"])] == found[
        "parameters"
    ]  # in this order, by which Adam keeps its moments
    assert found["translations"] == expected["translations"]
    for measured in ("logits", "attention", "scores"):
        close(found[measured], expected[measured])


@MODELS
def test_training_goes_on(version, name, files, expected, tmp_path, monkeypatch):
    """One more update, with the saved moments, gives the parameters that the old version gave."""
    monkeypatch.setattr(old, "COMPOSITIONS", ARCHIVES[version][1])
    shutil.copy(files / version / f"{name}.pt", tmp_path / "checkpoint_last.pt")
    path = old.train(name, files / "data", tmp_path, old.UPDATES + 1)
    assert checkpoint_utils.load_checkpoint_to_cpu(path)["optimizer_history"][-1]["num_updates"] == old.UPDATES + 1
    close(old.parameters(path), expected[version][name]["updated"])
    assert (old.parameters(path) - old.parameters(files / version / f"{name}.pt")).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_options_of_later_versions_can_be_overridden(dtype, files):
    """Stock fairseq ignores overrides of options that the saved configuration does not have."""
    overrides = {"data": str(files / "data" / "words"), "search_dtype": dtype}
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(files / "0.1.0" / "dl4mt.pt")], overrides)
    assert str(model.cfg.search_dtype) == dtype and model.decoder.search_dtype.asked == dtype

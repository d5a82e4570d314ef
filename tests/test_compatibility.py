"""What version 0.1.0 trained is loaded, computes and translates the same, and goes on training as it would have."""

import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from data import make_0_1_0 as old
from fairseq import checkpoint_utils

from fairseq_attnvariants.models.renamed import renamed
from fairseq_attnvariants.variants import VARIANTS

with tarfile.open(old.ARCHIVE) as archive:
    NAMES = [Path(name).stem for name in archive.getnames() if name != "expected.pt"]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The checkpoints of 0.1.0, what is expected of them, and the corpus in ``data/``."""
    folder = tmp_path_factory.mktemp("0.1.0")
    with tarfile.open(old.ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    old.binarise(folder / "data")
    return folder


@pytest.fixture(scope="module")
def expected(files):
    return torch.load(files / "expected.pt", weights_only=True)


def test_every_architecture_of_then_is_there():
    assert {*NAMES} - {*old.COMPOSITIONS} <= {*VARIANTS}


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_and_translates_the_same(name, files, expected):
    found, expected = old.observe(files / f"{name}.pt", files / "data"), expected[name]
    assert [*map(renamed, expected["parameters"])] == found[
        "parameters"
    ]  # in this order, by which Adam keeps its moments
    assert found["translations"] == expected["translations"]
    for measured in ("logits", "attention", "scores"):
        close(found[measured], expected[measured])


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on(name, files, expected, tmp_path):
    """One update more, with the moments that were saved, makes the parameters that 0.1.0 made."""
    shutil.copy(files / f"{name}.pt", tmp_path / "checkpoint_last.pt")
    path = old.train(name, files / "data", tmp_path, old.UPDATES + 1)
    assert checkpoint_utils.load_checkpoint_to_cpu(path)["optimizer_history"][-1]["num_updates"] == old.UPDATES + 1
    close(old.parameters(path), expected[name]["updated"])
    assert (old.parameters(path) - old.parameters(files / f"{name}.pt")).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_options_of_later_versions_can_be_overridden(dtype, files):
    """fairseq itself leaves out what the saved configuration does not have."""
    overrides = {"data": str(files / "data" / "words"), "search_dtype": dtype}
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(files / "dl4mt.pt")], overrides)
    assert str(model.cfg.search_dtype) == dtype and model.decoder.search_dtype.asked == dtype

"""Trainings that fail: they resume if they stopped, or are refused with a reason."""

import logging
import shutil

import corpus
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_attnvariants.patches.loading.checkpoints import load
from fairseq_attnvariants.patches.training.resuming import mend_last

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


def train(runs, folder, *more):
    corpus.train_here(*corpus.train_arguments(runs.data, folder, *more))
    return load(folder / "checkpoint_last.pt")


def test_a_rate_that_is_too_large_ends_as_with_the_stock_lstm(runs, tmp_path):
    with pytest.raises(FloatingPointError, match="^gradients are Nan/Inf$"):
        train(runs, tmp_path, "--max-update", "6", "--lr", "1e38", "--clip-norm", "0")


def test_without_the_optimizer_a_training_counts_on(runs, tmp_path, caplog):
    """Otherwise it would be trained again, without a message."""
    for updates in (2, 2, 3):
        caplog.clear()
        state = train(runs, tmp_path, "--max-update", updates, "--no-save-optimizer-state")
        assert state["optimizer_history"][-1]["num_updates"] == updates
    assert "has no optimizer state, so the optimizer starts again" in caplog.text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_warm_start_from_what_diverged_is_refused(runs, tmp_path, value):
    state = load(runs.rnnsearch / "checkpoint1.pt")
    state["model"]["decoder.output_projection.bias"][3] = value
    torch.save(state, tmp_path / "diverged.pt")
    with pytest.raises(ValueError, match="bias holds NaN or infinity: the training diverged"):
        train(runs, tmp_path / "run", "--max-update", "2", "--warm-start", tmp_path / "diverged.pt")
    assert not list(tmp_path.glob("run/*.pt"))


@pytest.mark.parametrize("start", ["rnnsearch", "missing", "lstm"])
def test_a_refused_warm_start_leaves_nothing(runs, tmp_path, start):
    path = tmp_path / "missing.pt" if start == "missing" else getattr(runs, start) / "checkpoint1.pt"
    wide = ("--encoder-hidden-size", "17", "--decoder-hidden-size", "19", "--encoder-embed-dim", "5")
    with pytest.raises(
        ValueError, match=f"--warm-start {path}: (there is no such file|it has no matrix of the same size)"
    ):
        train(runs, tmp_path / "run", "--max-update", "2", *wide, "--decoder-embed-dim", "3", "--warm-start", path)
    assert not list(tmp_path.glob("**/*.pt"))


LINKS = {"none": "has no links", "blank": "has no links", "short": "alignments of 1 sentences, and the text has 2"}
LINKS["long"] = "alignments of 3 sentences, and the text has 2"


@pytest.mark.parametrize("kind", LINKS)
def test_alignments_of_another_number_of_sentences_are_refused(tmp_path, kind):
    lines = {"none": [], "blank": ["", ""], "short": ["0-0"], "long": ["0-0"] * 3}[kind]
    for split in ("train", "valid"):
        for language in ("xx", "yy"):
            (tmp_path / f"{split}.{language}").write_text("a\nb\n")
        (tmp_path / f"{split}.links").write_text("".join(f"{line}\n" for line in lines))
    corpus.preprocess_here(
        "-s", "xx", "-t", "yy", "--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid",
        "--align-suffix", "links", "--destdir", tmp_path / "bin",
    )  # fmt: skip
    guided = ("--load-alignments", "--criterion", "label_smoothed_cross_entropy_with_costs", "--alignment-weight", "1")
    with pytest.raises(ValueError, match=LINKS[kind]):
        corpus.train_here(*corpus.train_arguments(tmp_path / "bin", tmp_path / "run", *guided))
    assert not list(tmp_path.glob("run/*.pt"))


def test_only_a_checkpoint_of_this_training_takes_the_place_of_a_damaged_one(runs, tmp_path):
    """Averages, without an optimizer, and other models do not count; checkpoints of an older version do, if renamed."""
    [model], _, _ = checkpoint_utils.load_model_ensemble_and_task([str(runs.rnnsearch / "checkpoint1.pt")])
    last, content = tmp_path / "checkpoint_last.pt", b"PK"
    last.write_bytes(content)
    average = load(runs.rnnsearch / "checkpoint2.pt")
    del average["last_optimizer_state"], average["extra_state"]["val_loss"]
    torch.save(average, tmp_path / "checkpoint_average.pt")
    shutil.copy(runs.lstm / "checkpoint1.pt", tmp_path / "checkpoint_lstm.pt")
    with pytest.raises(ValueError, match="damaged or cut off, and .* has no whole one"):
        mend_last(str(tmp_path), model)
    assert last.read_bytes() == content
    shutil.copy(runs.rnnsearch / "checkpoint1.pt", tmp_path)
    (tmp_path / "checkpoint_average.pt").touch()
    mend_last(str(tmp_path), model)
    assert last.read_bytes() == (tmp_path / "checkpoint1.pt").read_bytes() and PathManager.isfile(str(last))
    older = load(runs.rnnsearch / "checkpoint1.pt")
    older["model"] = {name.replace(".network.", ".layers."): value for name, value in older["model"].items()}
    torch.save(older, tmp_path / "checkpoint1.pt")
    last.write_bytes(content)
    mend_last(str(tmp_path), model)
    assert last.read_bytes() == (tmp_path / "checkpoint1.pt").read_bytes()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", ["checkpoint_a.pt", "checkpoint_b.pt"])
def test_of_two_of_as_many_updates_the_one_with_an_optimizer_takes_the_place(runs, tmp_path, name):
    """The name of the folder is a pattern, which must be taken literally."""
    folder = tmp_path / "lr=[0.01]"
    folder.mkdir()
    state = load(runs.rnnsearch / "checkpoint1.pt")
    torch.save({**state, "last_optimizer_state": None}, folder / "checkpoint_a.pt")
    shutil.copy(folder / "checkpoint_a.pt", folder / "checkpoint_b.pt")
    shutil.copy(runs.rnnsearch / "checkpoint1.pt", folder / name)
    (folder / "checkpoint_last.pt").write_bytes(b"PK")
    [model], _, _ = checkpoint_utils.load_model_ensemble_and_task([str(runs.rnnsearch / "checkpoint1.pt")])
    mend_last(str(folder), model)
    assert load(folder / "checkpoint_last.pt")["last_optimizer_state"]
    logging.disable(logging.NOTSET)

"""Folders of runs with malformed files: a refusal is one sentence with the file's name, and no link loops forever."""

import glob
import math
import os

import pytest
import torch

from fairseq_attnvariants.patches.loading import checkpoints as loading
from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.scores.runs import find_files
from fairseq_attnvariants_cli.shown.heatmaps import Panel, draw
from fairseq_attnvariants_cli.shown.pictures import LONGEST
from fairseq_attnvariants_cli.subcommands import gates
from fairseq_attnvariants_cli.systems.averaging import best, mean

pytestmark = pytest.mark.hostile

MISSING = object()
ODD = [MISSING, None, "text", [1], {"a": {"b": [1]}}, math.nan, math.inf, 10**400, b"x", (1, 2)]
PLACES = {  # what the table of runs reads, and the odd values that are refused there
    "cfg.task.data": [value for value in ODD if value != "text"],
    "cfg.common": ODD,
    "cfg.common.seed": [value for value in ODD if value != 10**400],
    "cfg.model._name": ODD,
    "cfg.criterion": ["text", [1], math.nan],
    "cfg.optimization": ["text", [1], math.nan],
    "extra_state.previous_training_time": [*ODD, -1.0],
    "optimizer_history": ODD,
}


def put(state, place, value):
    """Set or delete the value at a place of the state."""
    *way, last = place.split(".")
    for key in way:
        state = state[key] if isinstance(state, dict) else vars(state)[key]
    state = state if isinstance(state, dict) else vars(state)
    if value is MISSING:
        del state[last]
    else:
        state[last] = value


@pytest.mark.parametrize("architecture", ["rnnsearch", "lstm"])
@pytest.mark.parametrize("place", PLACES)
def test_malformed_runs_are_refused_in_one_sentence(runs, tmp_path, capfd, place, architecture):
    path = tmp_path / "checkpoint_best.pt"
    for value in PLACES[place]:
        state = loading.load(getattr(runs, architecture) / "checkpoint1.pt")
        put(state, place, value)
        torch.save(state, path)
        assert main(["results", str(tmp_path), "--gen-subset"]) == 2, value
        error = capfd.readouterr().err
        assert str(path) in error and len(error.splitlines()) == 1 and len(error) < len(str(path)) + 300


@pytest.mark.parametrize("place, value", [
    ("cfg.checkpoint.best_checkpoint_metric", [1]),
    ("cfg.checkpoint.best_checkpoint_metric", {"a": 1}),
    ("extra_state.val_loss", 10**400),
])  # fmt: skip
def test_odd_scores_of_checkpoints_are_refused(runs, tmp_path, refusal, place, value):
    state = loading.load(runs.rnnsearch / "checkpoint1.pt")
    put(state, place, value)
    torch.save(state, tmp_path / "checkpoint1.pt")
    error = refusal(["average", "--folder", str(tmp_path), "--best", "1", "--output", str(tmp_path / "mean.pt")])
    assert str(tmp_path) in error and not (tmp_path / "mean.pt").exists()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int8, torch.bool])
def test_parameters_of_other_kinds_are_not_averaged(runs, tmp_path, refusal, dtype):
    """Two number types are refused in either order."""
    good, name = str(runs.rnnsearch / "checkpoint2.pt"), "decoder.output_projection.bias"
    state = loading.load(runs.rnnsearch / "checkpoint1.pt")
    state["model"][name] = state["model"][name].to(dtype)
    torch.save(state, tmp_path / "odd.pt")
    for inputs in ([good, str(tmp_path / "odd.pt")], [str(tmp_path / "odd.pt"), good]):
        error = refusal(["average", *inputs, "--output", str(tmp_path / "mean.pt")])
        assert f"{name} is of " in error and str(dtype) in error


def test_complex_parameters_have_a_mean():
    one, other = torch.tensor([1 + 2j]), torch.tensor([3 - 1j])
    assert torch.equal(mean([{"x": one}, {"x": other}])["x"], torch.tensor([2 + 0.5j]))


def test_finite_scores_are_still_found(runs, tmp_path):
    torch.save(loading.load(runs.rnnsearch / "checkpoint1.pt"), tmp_path / "checkpoint1.pt")
    assert best(str(tmp_path), 1) == [str(tmp_path / "checkpoint1.pt")]


def test_links_that_lead_in_circles_come_to_an_end(tmp_path, monkeypatch):
    """Folders that link to their parents would be read 2^40 times; each is read once."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint_best.pt").touch()
    for name, target in (("a", "b"), ("b", "a"), ("up", "."), ("run/up", ".."), ("run/again", ".."), ("linked", "run")):
        os.symlink(target, tmp_path / name)
    looked, look = [], glob.glob
    monkeypatch.setattr(glob, "glob", lambda name, root_dir: looked.append(root_dir) or look(name, root_dir=root_dir))
    assert len(find_files([str(tmp_path)], "checkpoint_best.pt")) == 1
    assert len(looked) == 2
    (tmp_path / "run").rename(tmp_path / ".run")  # a hidden folder, such as a file system's snapshots
    assert not find_files([str(tmp_path / "up")], "checkpoint_best.pt")


def test_words_without_an_end_are_cut_in_pictures():
    word = "x" * 1_000_000
    heat_map = draw([Panel("", ["a", word], [word], torch.tensor([[0.2, 0.8]]).numpy())])
    lines = gates.draw([([word], ["g"], torch.tensor([[0.2]]).numpy())])
    for labels in (heat_map.axes[0].get_yticklabels(), lines.axes[0].get_xticklabels()):
        assert [label.get_text() for label in labels] == ["x" * (LONGEST - 1) + "\u2026"]


def test_control_characters_are_escapes_in_pictures():
    [axes, _] = draw([Panel("a\x1b", ["\x00b"], ["c\u202e"], torch.ones(1, 1).numpy())]).axes
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label]
    assert [label.get_text() for label in labels] == ["\\x00b", "c\\u202e", "a\\x1b"]

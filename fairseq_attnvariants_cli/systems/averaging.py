"""One checkpoint with the mean parameters of several."""

import argparse
import glob
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.checkpoint_utils import checkpoint_paths
from torch import Tensor
from tqdm import tqdm

from fairseq_attnvariants.models.fingerprint import FINGERPRINT, current
from fairseq_attnvariants.patches.loading.configuration import as_dict
from fairseq_attnvariants.patches.loading.plain import place

from ..text.files import UserError, say
from .model import read_checkpoint

Checkpoint = dict[str, Any]

# options that change how a model is trained and computed, but not what it computes, besides all dropouts
HOW = {
    "coverage_penalty", "compile", "compute_dtype", "cuda_graphs", "decoder_embed_path", "decoder_freeze_embed",
    "encoder_embed_path", "encoder_freeze_embed", "gate_bias", "init", "init_std", "kernels", "recompute_steps",
    "search_dtype", "warm_start",
}  # fmt: skip
PATTERNS = {"epochs": r"checkpoint(\d+)\.pt", "updates": r"checkpoint_\d+_(\d+)\.pt"}


def architecture(state: Checkpoint) -> dict[str, Any]:
    """Return the model's options except :data:`HOW` and dropouts; a model without a dataclass has only its name."""
    model = state["cfg"]["model"]
    if isinstance(model, argparse.Namespace):
        return {"arch": getattr(model, "arch", None)}
    kept = {name: value for name, value in model.items() if "dropout" not in name and name not in HOW}
    return {"arch": kept.pop("_name", None), **kept}


def difference(first: Checkpoint, second: Checkpoint) -> str:
    """Return a difference for which two checkpoints cannot be averaged, or an empty text if there is none."""
    ours, theirs = architecture(first), architecture(second)
    for name in sorted(ours.keys() | theirs.keys(), key=lambda name: (name != "arch", str(name))):
        if str(ours.get(name)) != str(theirs.get(name)):
            return f"the model's option {name} is {ours.get(name)!r} in one and {theirs.get(name)!r} in the other"
    one, other = first["model"], second["model"]
    if unshared := sorted(one.keys() ^ other.keys()):
        return f"only one has the parameter {unshared[0]}"
    for name, tensor in one.items():
        if tensor.shape != other[name].shape:
            return f"{name} is {tuple(tensor.shape)} in one and {tuple(other[name].shape)} in the other"
        if is_number(tensor) != is_number(other[name]) or tensor.is_complex() != other[name].is_complex():
            return f"{name} is of {tensor.dtype} in one and of {other[name].dtype} in the other"
        if name.endswith(FINGERPRINT) and not torch.equal(tensor, other[name]):
            return f"they were trained with different dictionaries ({name.partition('.')[0]})"
    return ""


def is_number(tensor: Tensor) -> bool:
    """Return whether a tensor can be averaged: integers and truth values cannot."""
    return tensor.is_floating_point() or tensor.is_complex()


def mean(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each parameter, computed in float64; integers and truth values are those of the last state.

    Parameters that are tied in all states stay tied.
    """
    result = dict(states[-1])
    means: dict[Any, Tensor] = {}
    for name, last in states[-1].items():
        if not is_number(last):
            continue
        held = tuple(place(state[name]) for state in states)
        if held not in means:
            total = torch.zeros_like(last, dtype=torch.promote_types(last.dtype, torch.float64))
            for state in states:
                total += state[name]
            means[held] = (total / len(states)).to(last.dtype)
        result[name] = means[held]
    return result


def average(paths: Sequence[str]) -> Checkpoint:
    """Return the newest of the checkpoints, with the mean parameters of all and without the optimizer's state.

    Raises:
        UserError: a checkpoint cannot be read, or checkpoints differ in architecture, dictionaries or parameters.
    """
    states = [read_checkpoint(path) for path in tqdm(paths, desc="loading", disable=None)]
    for path, state in zip(paths, states, strict=True):
        marks = {name: current(tensor) for name, tensor in state["model"].items() if name.endswith(FINGERPRINT)}
        state["model"].update(marks)
        if found := difference(states[0], state):
            raise UserError(f"{paths[0]} and {path} cannot be averaged: {found}")
    states.sort(key=updates)
    counts = [*filter(None, map(updates, states))]  # an imported or exported model has 0
    if len(seeds := {*map(seed, states)}) > 1:
        say(
            f"these are trainings with the seeds {', '.join(map(str, seeds))}: only checkpoints of one have a good mean"
        )
    elif len({*counts}) < len(counts):
        say("some of these have the same number of updates: a copy of another counts twice")
    newest = states[-1]
    # scores of the newest checkpoint are left out
    extra = {name: value for name, value in newest["extra_state"].items() if name not in ("val_loss", "best")}
    return {**newest, "model": mean([state["model"] for state in states]), "extra_state": extra}


def seed(state: Checkpoint) -> Any:
    """Return the seed of a checkpoint's training, or None if the checkpoint lacks it."""
    return as_dict(state["cfg"].get("common") or {}).get("seed")


def updates(state: Checkpoint) -> int:
    """Return the number of a checkpoint's updates."""
    return state["optimizer_history"][-1]["num_updates"]


def last(folder: str, count: int, kind: str) -> list[str]:
    """Return the paths of the last ``count`` checkpoints that were saved after epochs, or after numbers of updates.

    Raises:
        UserError: there are fewer checkpoints.
    """
    paths = checkpoint_paths(folder, PATTERNS[kind])
    return _first(paths, count, f"{folder} has {len(paths)} checkpoints saved by {kind}")


def best(folder: str, count: int) -> list[str]:
    """Return the paths of the ``count`` checkpoints with the best ``--best-checkpoint-metric``, the best first.

    Raises:
        UserError: there are fewer checkpoints with a value, or their metrics differ.
    """
    values: dict[int, Any] = {}  # by number of updates: checkpoint_best.pt and others are copies
    metrics = set()
    for path in tqdm(sorted(glob.glob(os.path.join(glob.escape(folder), "checkpoint*.pt"))), disable=None):
        state = read_checkpoint(path)
        value = state["extra_state"].get("val_loss")
        if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
            options = state["cfg"].get("checkpoint")
            if not isinstance(options, dict) or not isinstance(options.get("best_checkpoint_metric"), str):
                raise UserError(f"{path} does not say which metric is best: name those to be averaged")
            sign = -1 if options.get("maximize_best_checkpoint_metric") else 1
            metrics.add((options["best_checkpoint_metric"], sign))
            values.setdefault(updates(state), (sign * value, path))
    if len(metrics) > 1:
        raise UserError(f"{folder} has checkpoints of runs with different metrics: name those to be averaged")
    paths = [path for _, path in sorted(values.values())]
    return _first(paths, count, f"{folder} has {len(paths)} different checkpoints with a validation score")


def _first(paths: list[str], count: int, message: str) -> list[str]:
    if len(paths) < count:
        raise UserError(f"{message}, and {count} are asked for")
    return paths[:count]

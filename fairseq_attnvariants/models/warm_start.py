"""Start of a model from another model's checkpoint, as Kuang et al. 2018 §3 do for the direct bridge.

The model takes the parameters that both have.  A matrix that has more columns than in the checkpoint keeps its random
values in these columns, and all other parameters stay as they were initialised.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from fairseq import checkpoint_utils
from torch import Tensor, nn

from ..architectures.derived import bidirectional_layers, history_names, layers_inside
from ..architectures.variants import BASE, settings
from ..arithmetic.choice import match_choice
from ..registry import ConfigurationError, in_folder
from .fingerprint import check_fingerprints
from .renamed import rename

BUFFERS = "version", "_float_tensor"  # buffers of fairseq's models; the second one is never initialised
CELLS = "decoder.network.transition.before.", "decoder.network.transition.after."
ATTENTION = ("decoder.network.transition.attention.",)
INITIAL = ("decoder.network.initial",)
OUTER = "decoder.network.readout."
INNER = f"{OUTER}readout."  # with copying, whose readout contains another one
READOUT = OUTER, "decoder.output_projection."


class Meaning(NamedTuple):
    """A setting that changes what parameters mean, although their names stay the same."""

    option: str  # its name in the log
    read: Callable[[Any], Any]  # the setting of a configuration
    prefixes: tuple[str, ...]


def value_of(option: str, *prefixes: str) -> Meaning:
    """The :class:`Meaning` whose setting is the value of an option."""
    return Meaning(option, lambda cfg: str(getattr(cfg, option)), prefixes)


MEANINGS = [
    value_of("encoder_type", "encoder.network."),
    value_of("encoder_char_cell", "encoder.network.characters."),
    value_of("encoder_cell", "encoder.network."),
    value_of("encoder_reads", "encoder.network."),
    value_of("decoder_cell", *CELLS, "decoder.network.above."),
    value_of("context_gate", *CELLS),
    value_of("adaptive_gru_released", "decoder.network.transition.after."),
    value_of("attention_score", *ATTENTION),
    value_of("attention_heads", *ATTENTION),
    value_of("adaptive_output_swapped", f"{OUTER}weighting.", f"{INNER}weighting."),
    value_of("initial_state", *INITIAL),
    value_of("readout", *READOUT),
    Meaning("layer_norm", lambda cfg: str(cfg.layer_norm) != "none", ("encoder.network.",)),
    Meaning(
        "layer_norm",
        lambda cfg: str(cfg.layer_norm) == "all",
        (*CELLS, "decoder.network.above.", "decoder.network.transition.query_cell.", *ATTENTION, *INITIAL, *READOUT),
    ),
    Meaning(
        "layer_norm_joint",
        lambda cfg: bool(cfg.layer_norm_joint),
        ("encoder.network.", *CELLS, "decoder.network.above."),
    ),
    # the initial state is from the state at the first word, or at the last
    Meaning("encoder_bidirectional_layers", lambda cfg: bidirectional_layers(cfg) == cfg.encoder_layers, INITIAL),
    # attention's query is the state of a separate cell, of the lowest layer or of the highest layer
    Meaning("attention_history", lambda cfg: "state" in history_names(cfg), ATTENTION),
    Meaning("decoder_transition", layers_inside, ATTENTION),
]


class WarmStart(NamedTuple):
    """The names of taken, new and unused parameters."""

    path: str
    taken: int = 0
    grown: Mapping[str, str] = {}
    """parameters with more columns than in the checkpoint, and how many columns were taken"""
    other: Mapping[str, str] = {}
    """parameters that were not taken, and why: they have another kind or size there, or are missing"""
    left: int = 0
    """the number of the checkpoint's parameters that this model does not have"""

    def __str__(self) -> str:
        """A short table for the log."""
        rows = [f"warm start from {self.path}: {self.taken} parameters taken"]
        rows += [f"  grown       {name} ({how})" for name, how in self.grown.items()]
        rows += [f"  not taken   {name} ({why})" for name, why in self.other.items()]
        if self.left:
            rows += [f"  {self.left} parameters of the checkpoint belong to components that this model does not have"]
        return "\n".join(rows)


def learned(name: str) -> bool:
    """Whether training changes the entry of a checkpoint that has this name."""
    return name.rpartition(".")[2] not in BUFFERS


def not_finite(saved: Mapping[str, Tensor]) -> str | None:
    """The name of the first parameter that holds NaN or infinity."""
    return next((name for name, one in saved.items() if learned(name) and not one.isfinite().all()), None)


@torch.no_grad()
def warm_start(model: nn.Module, path: str) -> WarmStart:
    """Give ``model`` the parameters that it shares with the checkpoint ``path``.

    With ``--bridge-source``, annotations end in the embedding.  So a matrix that reads them has more columns, by the
    embedding's width.

    Raises:
        ConfigurationError: there is no such file, it holds NaN or infinity, it shares no matrix with the model, or it
            was trained with other dictionaries.
    """
    if not os.path.isfile(path):
        raise ConfigurationError(f"there is no such file{in_folder(path)}")
    state = checkpoint_utils.load_checkpoint_to_cpu(path)
    saved: dict[str, Tensor] = state["model"]
    if diverged := not_finite(saved):
        raise ConfigurationError(f"{diverged} holds NaN or infinity: the training diverged")
    rename(model, saved)
    match_choice(model, saved)
    cfg: Any = model.cfg
    there = state["cfg"]["model"]
    saved = _with_copying(saved, getattr(there, "copying", False), cfg.copying)
    donor = argparse.Namespace(**{option: getattr(there, option, value) for option, value in settings(BASE).items()})
    differing = [one for one in MEANINGS if one.read(donor) != one.read(cfg)]
    strange = {prefix: f"of another {one.option} there" for one in differing for prefix in one.prefixes}
    source_bridge = cfg.encoder_embed_dim * (cfg.bridge_source and not donor.bridge_source)
    check_fingerprints(model, saved)
    grown, other, taken, matrices = {}, {}, 0, 0
    parameters = dict(model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    for name, parameter in parameters.items():
        value, own = saved.get(name), first[id(parameter)]
        if own != name and value is not None and not torch.equal(value, saved.get(own, value)):
            other[name] = f"tied to {own} here"
            continue
        kind = next((why for prefix, why in strange.items() if name.startswith(prefix)), None)
        if value is None or kind:
            other[name] = kind or "not in the checkpoint"
        elif value.shape == parameter.shape:
            taken += 1
            matrices += value.dim() > 1
            parameter.copy_(value)
        elif value.dim() == 2 and parameter.shape == (len(value), value.size(1) + source_bridge):
            grown[name] = f"{value.size(1)} of {parameter.size(1)} columns taken"
            parameter[:, : value.size(1)].copy_(value)
        else:
            other[name] = f"{_size(value)} in the checkpoint, {_size(parameter)} here"
    if not (matrices or grown):
        raise ConfigurationError("it has no matrix of the same size as this model; give both the same widths")
    left = len(saved.keys() - model.state_dict().keys())
    return WarmStart(path, taken, grown, other, left)


def _with_copying(saved: dict[str, Tensor], there: Any, here: Any) -> dict[str, Tensor]:
    """Return the checkpoint's parameters, with the readout's under the names of a model that copies, or does not."""
    if here and not there:
        return {name.replace(OUTER, INNER): value for name, value in saved.items()}
    if there and not here:
        own = {name for name in saved if name.startswith(OUTER) and not name.startswith(INNER)}
        return {name.replace(INNER, OUTER): value for name, value in saved.items() if name not in own}
    return saved


def _size(value: Tensor) -> str:
    return "x".join(map(str, value.shape))

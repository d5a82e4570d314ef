"""Starting a model from another one's checkpoint (Kuang et al. 2018 §3 trains the direct bridge so).

What both have is taken, what has grown keeps its random values in the additional columns, and the rest is left as it
was initialised.
"""

import os
from typing import Any, Dict, Mapping, NamedTuple, Tuple

import torch
from fairseq import checkpoint_utils
from torch import Tensor, nn

from ..architectures.variants import BASE, settings
from ..arithmetic.choice import match_choice
from ..registry import ConfigurationError
from .fingerprint import check_fingerprint
from .renamed import rename

PARTS: Dict[str, Tuple[str, ...]] = {
    "encoder_type": ("encoder.network.",),
    "encoder_char_cell": ("encoder.network.characters.",),
    "encoder_cell": ("encoder.network.",),
    "decoder_cell": (
        "decoder.network.transition.before.",
        "decoder.network.transition.after.",
        "decoder.network.above.",
    ),
    "context_gate": ("decoder.network.transition.before.", "decoder.network.transition.after."),
    "adaptive_gru_released": ("decoder.network.transition.after.",),
    "attention_score": ("decoder.network.transition.attention.",),
    "adaptive_output_swapped": ("decoder.network.readout.weighting.",),
    "initial_state": ("decoder.network.initial",),
    "readout": ("decoder.network.readout.", "decoder.output_projection."),
}
"""Options under whose values parameters of one name mean different things."""


class WarmStart(NamedTuple):
    """What became of every parameter, by name."""

    path: str
    taken: int = 0
    grown: Mapping[str, str] = {}
    """with more columns than in the checkpoint: how many were taken"""
    other: Mapping[str, str] = {}
    """not taken: of another kind or size there, or not there at all"""
    left: int = 0
    """parameters of the checkpoint that this model does not have"""

    def __str__(self) -> str:
        """A short table for the log."""
        rows = [f"warm start from {self.path}: {self.taken} parameters taken"]
        rows += [f"  grown       {name} ({how})" for name, how in self.grown.items()]
        rows += [f"  not taken   {name} ({why})" for name, why in self.other.items()]
        rows += [f"  {self.left} parameters of the checkpoint are of parts that this model does not have"] * (
            self.left > 0
        )
        return "\n".join(rows)


def warm_start(model: nn.Module, path: str) -> WarmStart:
    """Give ``model`` the parameters that it shares with the checkpoint ``path``.

    With ``--bridge-source``, annotations end in the embedding, and a matrix that reads them has grown by its width.

    Raises:
        ConfigurationError: there is no such file, or it shares nothing with the model.
        ValueError: it was trained with other dictionaries.
    """
    if not os.path.isfile(path):
        raise ConfigurationError("there is no such file")
    state = checkpoint_utils.load_checkpoint_to_cpu(path)
    saved: Dict[str, Tensor] = state["model"]
    for name, weights in saved.items():
        if not weights.isfinite().all():
            raise ConfigurationError(f"{name} holds NaN or infinity: the training diverged")
    rename(model, saved)
    match_choice(model, saved, "")
    cfg: Any = model.cfg
    there = state["cfg"]["model"]
    saved = _with_copying(saved, getattr(there, "copying", False), cfg.copying)
    strange = {
        prefix: f"of another {option} there"
        for option, prefixes in PARTS.items()
        for prefix in prefixes
        if str(getattr(there, option, settings(BASE)[option])) != str(getattr(cfg, option))
    }
    for side, language in (("encoder", "source"), ("decoder", "target")):
        check_fingerprint(getattr(model, side), saved, side, language)
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
            _copy(parameter, value)
        elif value.dim() == 2 and parameter.shape == (
            len(value),
            value.size(1) + cfg.bridge_source * cfg.encoder_embed_dim,
        ):
            grown[name] = f"{value.size(1)} of {parameter.size(1)} columns taken"
            _copy(parameter[:, : value.size(1)], value)
        else:
            other[name] = f"{_size(value)} in the checkpoint, {_size(parameter)} here"
    if not (matrices or grown):
        raise ConfigurationError("no matrix of this model is there in the same size; give both the same widths")
    left = len(saved.keys() - model.state_dict().keys())
    return WarmStart(path, taken, grown, other, left)


def _with_copying(saved: Dict[str, Tensor], there: Any, here: Any) -> Dict[str, Tensor]:
    """The checkpoint with the readout's parameters where a model that copies has them, or one that does not."""
    readout, inner = "decoder.network.readout.", "decoder.network.readout.readout."
    if here and not there:
        return {name.replace(readout, inner): value for name, value in saved.items()}
    if there and not here:
        own = {name for name in saved if name.startswith(readout) and not name.startswith(inner)}
        return {name.replace(inner, readout): value for name, value in saved.items() if name not in own}
    return saved


@torch.no_grad()
def _copy(parameter: Tensor, value: Tensor) -> None:
    parameter.copy_(value)


def _size(value: Tensor) -> str:
    return "x".join(map(str, value.shape))

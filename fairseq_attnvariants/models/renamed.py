"""Present names for the parameters of older versions."""

import re
from typing import Any

import torch
from torch import nn

from ..nn.layers import FusedLayer

LAYERS = r"(encoder\.network\.(?:above\.)?(?:rnn|upper|words|characters)|decoder\.network\.above\.rnn)"
RENAMED = [
    # until 0.3.0
    (r"(encoder|decoder)\.layers\.", r"\1.network."),
    (r"decoder\.network\.upper\.", "decoder.network.above."),
    (LAYERS + r"\.layers\.(\d+)\.cells\.0\.(\d+)\.", r"\1.layers.\2.cells.\3."),
    (LAYERS + r"\.cells\.(\d+)\.(\d+)\.", r"\1.layers.\2.cells.\3."),
    (LAYERS + r"\.((?:weight|bias)_[ih]h)_l(\d+)", r"\1.layers.\3.\2_l0"),
    (r"decoder\.network\.above\.rnn\.", "decoder.network.above."),
]
"""Beginnings of names in older versions, and their present form; applied one after the other."""


def renamed(name: str) -> str:
    """Return the present name of a parameter."""
    for old, new in RENAMED:
        name = re.sub("^" + old, new, name)
    return name


def rename(model: nn.Module, state_dict: dict[str, Any], prefix: str = "") -> None:
    """Give the parameters of a checkpoint their present names, in place.

    Args:
        model: the model that loads them.
        state_dict: parameters by name.
        prefix: the beginning of the model's names.
    """
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[prefix + renamed(name.removeprefix(prefix))] = state_dict.pop(name)
    for name, layer in model.named_modules():
        if isinstance(layer, FusedLayer):
            fuse(state_dict, f"{prefix}{name}.")


def fuse(state_dict: dict[str, Any], layer: str) -> None:
    """Give a layer's parameters PyTorch's names, in place.

    Until 0.3.0 a layer with dropout within its recurrence had the parameters of cells, which have no second bias.
    """
    for cell, end in ((f"{layer}cells.0.", "l0"), (f"{layer}cells.1.", "l0_reverse")):
        if f"{cell}recurrent.weight" in state_dict:
            state_dict[f"{layer}weight_ih_{end}"] = state_dict.pop(f"{cell}inputs.input.weight")
            state_dict[f"{layer}weight_hh_{end}"] = state_dict.pop(f"{cell}recurrent.weight")
            state_dict[f"{layer}bias_ih_{end}"] = bias = state_dict.pop(f"{cell}inputs.input.bias")
            state_dict[f"{layer}bias_hh_{end}"] = torch.zeros_like(bias)

"""Layer normalisation (Ba et al. 2016), in the same places as in Nematus."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .init import Scheme


class LayerNorm(nn.Module):
    """``gain ∘ (x - mean) / deviation + bias`` for slices of a row, each with its own mean and deviation.

    Args:
        parts: the widths of the slices.
    """

    def __init__(self, *parts: int):
        super().__init__()
        self.parts = parts
        self.weight = nn.Parameter(torch.ones(sum(parts)))
        self.bias = nn.Parameter(torch.zeros(sum(parts)))

    def initialise(self, scheme: Scheme) -> None:
        """Fill the gain with 1; the bias is 0 before."""
        nn.init.ones_(self.weight)

    def forward(self, values: Tensor) -> Tensor:
        """``... x Σ parts``, computed in float32 or better, returned in the parameters' type."""
        pieces = (at_least_float32(value).split(self.parts, dim=-1) for value in (values, self.weight, self.bias))
        normalised = [F.layer_norm(x, gain.shape, gain, bias) for x, gain, bias in zip(*pieces)]
        return torch.cat(normalised, dim=-1).to(self.weight.dtype)


def layer_norm(wanted: bool, *parts: int) -> nn.Module:
    """Return normalisation of slices of these widths, or the identity."""
    return LayerNorm(*parts) if wanted else nn.Identity()


def at_least_float32(value: Tensor) -> Tensor:
    """Return the value in float32, or in float64 if it is float64: for energies, softmax and normalisation."""
    return value.to(torch.promote_types(value.dtype, torch.float32))

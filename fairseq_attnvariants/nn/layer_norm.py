"""Layer normalisation (Ba et al. 2016), where Nematus has it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .init import Scheme


class LayerNorm(nn.Module):
    """``gain ∘ (x - mean) / deviation + bias`` of parts of a row, each with the mean and the deviation of its own.

    Args:
        parts: their widths.
    """

    def __init__(self, *parts: int):
        super().__init__()
        self.parts = parts
        self.weight = nn.Parameter(torch.ones(sum(parts)))
        self.bias = nn.Parameter(torch.zeros(sum(parts)))

    def initialise(self, scheme: Scheme) -> None:
        """A gain of 1; the bias is 0 so far."""
        nn.init.ones_(self.weight)

    def forward(self, values: Tensor) -> Tensor:
        """``... x Σ parts``, computed in float32 or better, in the parameters' type."""
        pieces = (at_least_float32(value).split(self.parts, dim=-1) for value in (values, self.weight, self.bias))
        normalised = [F.layer_norm(x, gain.shape, gain, bias) for x, gain, bias in zip(*pieces)]
        return torch.cat(normalised, dim=-1).to(self.weight.dtype)


def layer_norm(wanted: bool, *parts: int) -> nn.Module:
    """Normalisation of parts of these widths, or nothing."""
    return LayerNorm(*parts) if wanted else nn.Identity()


def at_least_float32(value: Tensor) -> Tensor:
    """Float32, or float64 where the value is: for energies, softmax and normalisation."""
    return value.to(torch.promote_types(value.dtype, torch.float32))

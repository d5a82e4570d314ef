"""Initial values.

There are two schemes, both with biases of 0.  In dl4mt's scheme, square matrices are orthogonal, and other matrices and
embeddings are N(0, 0.01²).  In the scheme of the code of Zhao and Zhang (2018), matrices are U(±√(6 / (in + out))) and
embeddings U(±0.01).  A single number, such as a learned temperature, keeps the value from its constructor.  A component
with other initial values has the method ``initialise(scheme)``, which runs after that: cells and recurrent layers
(orthogonal gate by gate, biases of gates), convolutions, highway layers, layer normalisation, readouts, and the normed
additive score.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Scheme(NamedTuple):
    """The initial values of parameters."""

    uniform: bool = False
    """fill matrices as the code of Zhao and Zhang 2018 does, not as dl4mt"""
    deviation: float = 0.01
    """standard deviation of dl4mt's scheme: 0.01 suits the papers' widths; with more, smaller models learn sooner"""
    gate_bias: float = 0.0
    """bias of a GRU's reset and update gate"""

    def matrix_(self, weight: Tensor) -> None:
        """Fill a matrix ``out x in``, filters ``out x in x width``, or a vector, which is a matrix of one row."""
        if self.uniform:
            nn.init.xavier_uniform_(torch.atleast_2d(weight).flatten(1))
        else:
            nn.init.normal_(weight, std=self.deviation)

    def square_(self, weight: Tensor) -> None:
        """Fill a tensor as :meth:`matrix_` does, but square matrices of dl4mt's scheme are orthogonal."""
        orthogonal = not self.uniform and weight.dim() == 2 and weight.size(0) == weight.size(1)
        nn.init.orthogonal_(weight) if orthogonal else self.matrix_(weight)

    def embedding_(self, weight: Tensor) -> None:
        """Fill an embedding matrix."""
        nn.init.uniform_(weight, -0.01, 0.01) if self.uniform else self.matrix_(weight)


def by_gate(fill: Callable[[Tensor], object], weight: Tensor, hidden_dim: int) -> None:
    """Fill ``k·hidden_dim x in`` gate by gate, each ``hidden x in``."""
    for block in weight.split(hidden_dim):
        fill(block)


@torch.no_grad()
def initialise(model: nn.Module, scheme: Scheme) -> None:
    """Fill every parameter of a model, except single numbers."""
    for name, parameter in model.named_parameters():
        if "bias" in name.split(".")[-1]:
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1 or parameter.numel() > 1:
            scheme.square_(parameter)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            scheme.embedding_(module.weight)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif hasattr(module, "initialise"):
            module.initialise(scheme)  # type: ignore[operator]

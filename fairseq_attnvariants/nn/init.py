"""Initial values: dl4mt's, which blocks' are close to.

Recurrent and square matrices are orthogonal, other matrices N(0, 0.01²), biases 0.
"""

import torch
from torch import Tensor, nn

STD = 0.01


def normal_(linear: nn.Linear) -> nn.Linear:
    """N(0, 0.01²) for the matrix and 0 for the bias; returns the layer."""
    nn.init.normal_(linear.weight, std=STD)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def square_or_normal_(linear: nn.Linear) -> nn.Linear:
    """Orthogonal where the matrix is square, else as :func:`normal_`; returns the layer."""
    normal_(linear)
    if linear.in_features == linear.out_features:
        nn.init.orthogonal_(linear.weight)
    return linear


def orthogonal_blocks_(weight: Tensor) -> Tensor:
    """Fill ``k·n x n`` with ``k`` orthogonal ``n x n`` matrices, one a gate."""
    with torch.no_grad():
        for block in weight.split(weight.size(1)):
            nn.init.orthogonal_(block)
    return weight

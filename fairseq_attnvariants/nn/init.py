"""Initial values: dl4mt's, which blocks' are close to.

Recurrent and square matrices are orthogonal, other matrices N(0, 0.01²), biases 0.  The deviation can be set for
everything that is built within :func:`deviation`: 0.01 was chosen for the papers' widths, and smaller models learn
sooner from larger values.
"""

from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator

import torch
from torch import Tensor, nn

_DEVIATION = ContextVar("deviation", default=0.01)


@contextmanager
def deviation(value: float) -> Iterator[None]:
    """Parts built inside start from N(0, value²) wherever the default is N(0, 0.01²)."""
    token = _DEVIATION.set(value)
    try:
        yield
    finally:
        _DEVIATION.reset(token)


def normal_tensor_(tensor: Tensor) -> Tensor:
    """Fill with N(0, 0.01²), or the deviation that was set; returns the tensor."""
    return nn.init.normal_(tensor, std=_DEVIATION.get())


def normal_(linear: nn.Linear) -> nn.Linear:
    """:func:`normal_tensor_` for the matrix and 0 for the bias; returns the layer."""
    normal_tensor_(linear.weight)
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

"""Initial values.

Recurrent matrices are orthogonal, a matrix for each gate, and biases 0.  Everything else follows a scheme:

``normal`` (dl4mt's, which blocks' is close to): square matrices orthogonal, others and embeddings N(0, 0.01²);
``uniform`` (Zhao & Zhang): matrices U(±√(6 / (in + out))), embeddings U(±0.01).

The scheme and the deviation can be set for everything that is built within :func:`initial_values`.
"""

import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator, NamedTuple

import torch
from torch import Tensor, nn


class Scheme(NamedTuple):
    """How matrices and embeddings start."""

    uniform: bool = False
    deviation: float = 0.01
    """of the normal scheme: 0.01 was chosen for the papers' widths, smaller models learn sooner from larger values"""


_SCHEME: ContextVar[Scheme] = ContextVar("scheme", default=Scheme())  # noqa: B039 (immutable)


@contextmanager
def initial_values(scheme: Scheme) -> Iterator[None]:
    """Parts built inside start as ``scheme`` says."""
    token = _SCHEME.set(scheme)
    try:
        yield
    finally:
        _SCHEME.reset(token)


def embedding_(weight: Tensor) -> Tensor:
    """Fill an embedding matrix; returns it."""
    scheme = _SCHEME.get()
    return nn.init.uniform_(weight, -0.01, 0.01) if scheme.uniform else nn.init.normal_(weight, std=scheme.deviation)


def matrix_(weight: Tensor) -> Tensor:
    """Fill a matrix ``out x in``, or a vector, which is a matrix of one row; returns it."""
    scheme = _SCHEME.get()
    if not scheme.uniform:
        return nn.init.normal_(weight, std=scheme.deviation)
    rows, columns = (1, weight.numel()) if weight.dim() == 1 else (weight.size(0), weight[0].numel())
    bound = math.sqrt(6 / (rows + columns))
    return nn.init.uniform_(weight, -bound, bound)


def linear_(linear: nn.Linear) -> nn.Linear:
    """:func:`matrix_` for the matrix and 0 for the bias; returns the layer."""
    matrix_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def square_(linear: nn.Linear) -> nn.Linear:
    """As :func:`linear_`, but in the normal scheme a square matrix is orthogonal; returns the layer."""
    linear_(linear)
    if linear.in_features == linear.out_features and not _SCHEME.get().uniform:
        nn.init.orthogonal_(linear.weight)
    return linear


def gates_(weight: Tensor, hidden: int) -> Tensor:
    """Fill the ``hidden x in`` matrices of a cell's gates, each as :func:`square_` does; returns the tensor."""
    orthogonal = weight.size(1) == hidden and not _SCHEME.get().uniform
    with torch.no_grad():
        for block in weight.split(hidden):
            nn.init.orthogonal_(block) if orthogonal else matrix_(block)
    return weight


def recurrent_(weight: Tensor) -> Tensor:
    """Fill ``k·n x n`` with ``k`` orthogonal ``n x n`` matrices, one a gate."""
    with torch.no_grad():
        for block in weight.split(weight.size(1)):
            nn.init.orthogonal_(block)
    return weight

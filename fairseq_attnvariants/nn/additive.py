"""The energies of the additive score.  The largest tensor has batch x source x attention width numbers per step.

Shapes as in :mod:`.state`.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .device import on_gpu
from .layer_norm import at_least_float32

KeyFeatures = tuple[Tensor, Tensor]  # B x k x S x f, and a matrix A x f


def additive_energies(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """``e_ij = v·tanh(query + keys + Σ matrix features)``, float32 or better.

    (Feng et al. 2016 §3.2, Li et al. 2018 §2.)

    Args:
        query: ``B x k x A``.
        keys: ``B x S x A``.
        vector: ``v``, ``A``.
        features: from the histories, each ``B x k x S x f`` and a matrix ``A x f``.

    Returns:
        ``B x k x S``.
    """
    with torch.autocast(query.device.type, enabled=False):
        total = compared(query, keys, *features)
        return tanh_product(total, vector.to(total.dtype))


def compared(query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
    """``query + keys + Σ matrix features``, the argument of the score's tanh, ``B x k x S x A``, float32 or better.

    The sum has the arguments' type, because sums of two types take several times longer on a CPU.
    """
    total = query.unsqueeze(2) + keys.unsqueeze(1)
    for values, matrix in features:
        total = total + F.linear(values.to(matrix.dtype), matrix)
    return at_least_float32(total)


def tanh_product(values: Tensor, vector: Tensor) -> Tensor:
    """``v·tanh(x)``, ``...``, for values ``... x A`` and a vector ``A``.  Overwrites the values, which are large.

    On a CPU it computes ``2 v·σ(2x) - Σv``, because PyTorch's σ takes a third of the time of its tanh there.
    """
    if on_gpu(values):
        return values.tanh_() @ vector
    return 2 * (values.mul_(2).sigmoid_() @ vector) - vector.sum()


def tanh_(values: Tensor) -> Tensor:
    """Overwrite ``x`` with ``tanh(x)``; on a CPU with ``2 σ(2x) - 1``."""
    return values.tanh_() if on_gpu(values) else values.mul_(2).sigmoid_().mul_(2).sub_(1)

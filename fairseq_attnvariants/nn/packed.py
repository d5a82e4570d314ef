"""Products of one matrix with few rows, again and again, as a time loop makes them.

Before it multiplies, a processor brings a matrix into an order of its own; with few rows, that takes as long as the
product.  MKL can be given the matrix in that order: then products of 80 rows run nearly as fast as those of thousands.
"""

from functools import partial
from typing import Callable, Optional

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST = 2**18  # numbers of a matrix that is worth it
AVAILABLE = torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


def affine(value: Tensor, plus: Optional[Tensor] = None, *, matrix: Tensor) -> Tensor:
    """``value @ matrix.T + plus``; ``plus`` is a row or has the result's shape."""
    if plus is None or plus.dim() == 1:
        return F.linear(value, matrix, plus)
    return torch.addmm(plus, value, matrix.t())


def prepared(matrix: Tensor, rows: int) -> Callable[..., Tensor]:
    """:func:`affine` of the matrix, for values of ``rows`` rows, without gradient.

    On a CPU a large matrix is rearranged now, which takes as long as a few products.
    """
    if not AVAILABLE or matrix.is_cuda or matrix.dtype != torch.float32 or matrix.numel() < LEAST:
        return partial(affine, matrix=matrix)
    matrix = matrix.contiguous()
    packed = torch.ops.mkl._mkl_reorder_linear_weight(matrix, rows)

    def run(value: Tensor, plus: Optional[Tensor] = None) -> Tensor:
        bias = plus if plus is not None and plus.dim() == 1 else None
        result = torch.ops.mkl._mkl_linear(value, packed, matrix, bias, rows)
        return result if plus is bias else result.add_(plus)

    return run

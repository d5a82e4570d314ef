"""Sums over a batch that the criterions weigh.  They know nothing of fairseq.

Shapes: ``B`` batch, ``T`` target length, ``n`` encoder's hidden width.
"""

from typing import Tuple

import torch
from torch import Tensor

EPSILON = 1e-12


def smooth_norm(vectors: Tensor) -> Tensor:
    """``||x||_2`` over the last dimension, float32; a small ε inside the root keeps its gradient finite at 0."""
    vectors = vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors
    return (vectors.square().sum(-1) + EPSILON).sqrt()


def embedding_distance(bridged: Tensor, target: Tensor, target_mask: Tensor, squared: bool = True) -> Tensor:
    """The direct bridge's cost, ``Σ_t ||W x_{t*} - e(y_t)||²`` over real target tokens, EOS included (003 eq. 3).

    Args:
        bridged: ``W x_{t*}``, ``B x T x m``.
        target: ``e(y_t)``, ``B x T x m``.
        target_mask: True at real target tokens, ``B x T``.
        squared: sum the squared norms; else the norms.
    """
    difference = bridged.float() - target.float() if bridged.dtype != torch.float64 else bridged - target
    norms = difference.square().sum(-1) if squared else smooth_norm(difference)
    return (norms * target_mask).sum()


def fertility_costs(conditions: Tensor, target_mask: Tensor) -> Tuple[Tensor, Tensor]:
    """CondDec's costs (001 §5), summed over sentences.

    Step-decay: ``1/T Σ_i ||sd_i - sd_{i-1}||_2``; left-over: ``||sd_T||_2``, with ``T`` the sentence's real steps.

    Args:
        conditions: ``sd_0 .. sd_T``, ``B x (T+1) x 2n``.
        target_mask: True at real target tokens, EOS included, ``B x T``; a row without any costs nothing.

    Returns:
        the step-decay and the left-over costs, two scalars.
    """
    lengths = target_mask.sum(1)
    steps = smooth_norm(conditions[:, 1:] - conditions[:, :-1]) * target_mask
    decay = (steps.sum(1) / lengths.clamp(min=1)).sum()
    # the last real column: where padding stands on the right it is the length
    columns = torch.arange(1, target_mask.size(1) + 1, device=target_mask.device)
    last = (columns * target_mask).amax(1)
    final = conditions[torch.arange(conditions.size(0), device=conditions.device), last]
    left = (smooth_norm(final) * (lengths > 0)).sum()
    return decay, left

"""Sums over a batch that the criterions weigh.  This module does not import fairseq.

Shapes: ``B`` batch, ``T`` target length, ``S`` source length, ``n`` encoder's hidden width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..nn.layer_norm import at_least_float32

EPSILON = 1e-12


def norms(vectors: Tensor, squared: bool = False) -> Tensor:
    """Return ``||x||`` or ``||x||²`` over the last dimension; a small ε in the root keeps its gradient finite at 0."""
    squares = at_least_float32(vectors).square().sum(-1)
    return squares if squared else (squares + EPSILON).sqrt()


def bridging(
    bridged: Tensor, target: Tensor, target_mask: Tensor, squared: bool = True, unit_length: bool = False
) -> Tensor:
    """The direct bridge's loss, ``Σ_t ||W x_{t*} - e(y_t)||²`` over real target tokens, EOS included.

    (Kuang et al. 2018 eq. 3.)

    Args:
        bridged: ``W x_{t*}``, ``B x T x m``.
        target: ``e(y_t)``, ``B x T x m``.
        target_mask: True at real target tokens, ``B x T``.
        squared: sum the squared norms instead of the norms.
        unit_length: ``e(y_t) / ||e(y_t)||`` instead of ``e(y_t)``, so that the cost does not fall if embeddings only
            become shorter.
    """
    target = at_least_float32(target)
    if unit_length:
        target = F.normalize(target, dim=-1)
    return (norms(bridged - target, squared) * target_mask).sum()


def step_decay(conditions: Tensor, target_mask: Tensor, squared: bool = False) -> Tensor:
    """CondDec's step-decay cost, ``1/T Σ_i ||sd_i - sd_{i-1}||``, summed over sentences of ``T`` real steps.

    (Feng et al. 2016 §5.)

    For steps in one direction, the cost of plain norms does not depend on how the distance is divided into steps;
    squares cost least if all steps are equal.

    Args:
        conditions: ``sd_0 .. sd_T``, ``B x (T+1) x 2n``.
        target_mask: True at real target tokens, EOS included, ``B x T``; a row without real tokens costs nothing.
        squared: sum the squared norms instead of the norms.
    """
    steps = norms(conditions.diff(dim=1), squared) * target_mask  # B x T
    return (steps.sum(1) / target_mask.sum(1).clamp(min=1)).sum()


def left_over(conditions: Tensor, target_mask: Tensor) -> Tensor:
    """CondDec's left-over cost, ``||sd_T||``, summed over sentences (Feng et al. 2016 §5).

    The arguments are those of :func:`step_decay`.
    """
    # the number of the last real column, from 1: with padding on the right this is the length
    columns = torch.arange(1, target_mask.size(1) + 1, device=target_mask.device)
    last = (columns * target_mask).amax(1)
    final = conditions[torch.arange(conditions.size(0), device=conditions.device), last]  # B x 2n
    return (norms(final) * target_mask.any(1)).sum()


def coverage(weights: Tensor, target_mask: Tensor) -> Tensor:
    """The coverage loss, ``Σ_i Σ_j min(w_ij, c_ij)`` with ``c_ij = Σ_{t<i} w_tj`` (See et al. 2017, eq. 12).

    Args:
        weights: ``B x T x S``, zero at the source's padding.
        target_mask: True at real target tokens, ``B x T``.
    """
    weights = weights * target_mask.unsqueeze(2)  # padding may also precede the words
    before = weights.cumsum(1) - weights  # B x T x S
    return torch.minimum(weights, before).sum()


def alignment(weights: Tensor, links: Tensor | None, fractions: Tensor | None) -> Tensor:
    """Guided alignment (Chen et al. 2016, Liu et al. 2016): ``-Σ log w_ij`` over links, averaged per target word.

    The logarithm takes weights of at least a small ε, because windows and sparse normalizers give weights of exactly
    zero.

    Args:
        weights: ``B x T x S``.
        links: the batch's links, as fairseq's ``alignments``: source column and ``row · T + step``, ``L x 2``; or None.
        fractions: for each link, one over the number of links of its target word, ``L``.
    """
    if links is None or fractions is None:
        return weights.new_zeros(())
    linked = weights.flatten(0, 1)[links[:, 1], links[:, 0]]  # L
    return -(linked.clamp(min=EPSILON).log() * fractions).sum()


def symmetric_divergence(pairs: Tensor, target_mask: Tensor) -> Tensor:
    """R-Drop's cost, ``½ Σ_t (KL(P_t ‖ Q_t) + KL(Q_t ‖ P_t))`` (Liang et al. 2021, eq. 2).

    Both divergences together are ``Σ_y (P(y) - Q(y)) (log P(y) - log Q(y))``; gradients flow into both predictions.

    Args:
        pairs: ``log P`` and ``log Q`` of each sentence, ``B x 2 x T x V``.
        target_mask: True at real target tokens, ``B x T``.
    """
    first, second = pairs.unbind(1)
    both = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return (both * target_mask).sum() / 2

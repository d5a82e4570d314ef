"""Bridges between source and target embeddings (003 §2): which source word a target word looks at.

Shapes: ``B`` batch, ``S`` source length, ``T`` target length, ``m`` embedding width.
"""

import torch
from torch import Tensor, nn

from .init import square_


def most_attended(weights: Tensor, padding_mask: Tensor) -> Tensor:
    """``t* = argmax_j α_tj`` (003 eq. 2) among real positions, the first of several; ``... x S`` to ``...``."""
    return weights.masked_fill(padding_mask, -1.0).argmax(-1)


def select(embeddings: Tensor, positions: Tensor) -> Tensor:
    """``x_{t*}``: rows ``positions`` (``B`` or ``B x T``) of ``B x S x m``; ``B x m`` or ``B x T x m``."""
    batch, length, width = embeddings.shape
    first = length * torch.arange(batch, device=positions.device)
    flat = positions + first.view(-1, *[1] * (positions.dim() - 1))
    return embeddings.reshape(-1, width).index_select(0, flat.flatten()).view(*positions.shape, width)


class DirectBridge(nn.Module):
    """Maps source embeddings to where the target's are: ``W x_{t*}`` (003 eq. 3), without a bias.

    Args:
        source_dim, target_dim: widths of the embeddings.
        soft: map ``Σ_j α_tj x_j`` instead of ``x_{t*}``.
    """

    def __init__(self, source_dim: int, target_dim: int, soft: bool = False):
        super().__init__()
        self.soft = soft
        self.projection = square_(nn.Linear(source_dim, target_dim, bias=False))

    def forward(self, embeddings: Tensor, weights: Tensor, padding_mask: Tensor) -> Tensor:
        """``B x T x target_dim``, of source embeddings ``B x S x m`` and attention ``B x T x S``."""
        if self.soft:
            return self.projection(torch.bmm(weights.to(embeddings.dtype), embeddings))
        return self.projection(select(embeddings, most_attended(weights, padding_mask.unsqueeze(1))))

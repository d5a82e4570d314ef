"""Bridges between source and target embeddings (Kuang et al. 2018 §2), from the most attended source word."""

import torch
from torch import Tensor, nn


def most_attended(embeddings: Tensor, weights: Tensor, padding_mask: Tensor) -> Tensor:
    """``x_{t*}``, where ``t* = argmax_j α_tj`` (Kuang et al. 2018 eq. 2) among real positions; the first of equals.

    Returns ``B x k x m``, from embeddings ``B x S x m``, weights ``B x k x S`` for ``k`` steps or hypotheses, and a
    mask ``B x S``.
    """
    positions = weights.masked_fill(padding_mask.unsqueeze(1), -1.0).argmax(2, keepdim=True)  # t*, B x k x 1
    return embeddings.gather(1, positions.expand(-1, -1, embeddings.size(2)))


class DirectBridge(nn.Module):
    """Maps source embeddings towards target embeddings: ``W x_{t*}`` (Kuang et al. 2018 eq. 3), without a bias.

    Args:
        source_dim, target_dim: widths of the embeddings.
        soft: map ``Σ_j α_tj x_j`` instead of ``x_{t*}``.
    """

    def __init__(self, source_dim: int, target_dim: int, soft: bool = False):
        super().__init__()
        self.soft = soft
        self.projection = nn.Linear(source_dim, target_dim, bias=False)

    def forward(self, embeddings: Tensor, weights: Tensor, padding_mask: Tensor) -> Tensor:
        """``B x T x target_dim``, from source embeddings ``B x S x m`` and attention ``B x T x S``."""
        if self.soft:
            read = torch.bmm(weights.to(embeddings.dtype), embeddings)
        else:
            read = most_attended(embeddings, weights, padding_mask)
        bridge: Tensor = self.projection(read)
        return bridge

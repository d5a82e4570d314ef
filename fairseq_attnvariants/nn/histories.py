"""What attention knows of earlier steps: the recurrent paths of 001, whose terms add to the score.

RNNAtt is none of them: it replaces the query, see :class:`~.transition.Transition`.

Shapes as in :mod:`.state`; ``k = N/B`` is the number of hypotheses of a sentence, 1 but in beam search.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .cells import ContextLinear
from .state import Memory, State, grouped

KeyFeatures = Tuple[Tensor, Tensor]  # B x k x S x f, and a matrix A x f


class History(nn.Module):
    """A recurrent path; each method returns None where the path adds nothing.  Paths compose: their terms add up."""

    def query_term(self, state: State) -> Optional[Tensor]:
        """Added to the projected query, ``N x A``."""
        return None

    def key_features(self, memory: Memory, state: State) -> Optional[KeyFeatures]:
        """Features ``B x k x S x f`` and a matrix ``A x f`` whose product is added to the keys."""
        return None

    def energy_term(self, memory: Memory, state: State) -> Optional[Tensor]:
        """Added to the energies, ``B x k x S``, float32."""
        return None


class ContextHistory(History):
    """RecAtt (001 §4.1): the score reads the previous context, ``+ V c_{i-1}``."""

    def __init__(self, annotation_dim: int, attention_dim: int):
        super().__init__()
        self.projection = ContextLinear(annotation_dim, attention_dim, bias=False)

    def query_term(self, state: State) -> Tensor:
        return self.projection(state.context)  # N x A


class DistanceHistory(History):
    """HybridAtt1 (001 §6.2): ``e'_ij = σ(j - m_{i-1}) exp(e_ij)`` with ``m_{i-1} = Σ_j j w_{i-1,j}``.

    In log space: ``log σ(j - m_{i-1})`` is added to the energy.  ``j`` counts real tokens from 1, and ``m_0 = 0``.
    """

    def energy_term(self, memory: Memory, state: State) -> Tensor:
        positions = memory.positions.unsqueeze(1)  # B x 1 x S
        centre = (positions * grouped(state.weights, positions)).sum(2, keepdim=True)  # B x k x 1
        return F.logsigmoid(positions - centre)  # B x k x S


class ConvolutionHistory(History):
    """HybridAtt2 (001 §6.3): the score reads the previous weights around ``j``, ``+ L (Q * w_{i-1})_j``.

    ``filters`` filters of ``width`` (odd) weights, centred, zero-padded, without bias; ``w_0`` is uniform over real
    positions.  Gradients flow through the weights.
    """

    def __init__(self, filters: int, width: int, attention_dim: int):
        super().__init__()
        self.margin = width // 2
        self.filters = nn.Conv1d(1, filters, width, bias=False)  # applied as a product: S stays free for --compile
        self.projection = nn.Linear(filters, attention_dim, bias=False)

    def key_features(self, memory: Memory, state: State) -> KeyFeatures:
        weights = grouped(state.weights, memory.keys)  # B x k x S
        first = weights.sum(2, keepdim=True).eq(0)
        weights = torch.where(first, uniform_weights(memory.padding_mask).to(weights).unsqueeze(1), weights)
        filters = self.filters.weight.squeeze(1)  # f x r
        windows = F.pad(weights, (self.margin, self.margin)).unfold(2, filters.size(1), 1)  # B x k x S x r
        return F.linear(windows.to(filters.dtype), filters), self.projection.weight  # B x k x S x f


def uniform_weights(padding_mask: Tensor) -> Tensor:
    """``w_0``: uniform over real positions and zero on padding, ``B x S``, float32."""
    real = (~padding_mask).float()
    return real / real.sum(1, keepdim=True).clamp(min=1)

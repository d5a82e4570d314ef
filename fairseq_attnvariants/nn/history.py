"""Recurrent paths of attention: what a step's attention knows of the steps before it (001 §4 and §6).

Each path reads the previous :class:`~.state.State` and adds a term at one of three places of the score
``e_ij = v·tanh(query term + key term) + energy term``.  Paths compose: their terms add up.
RNNAtt is no such term: it replaces the query, see :class:`~.transition.Transition`.

Shapes: ``B`` batch, ``N`` rows of states (``B``, or in beam search all hypotheses), ``S`` source length,
``A`` attention width, ``a`` annotation width.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .context import ContextLinear, context_of
from .init import linear_, matrix_, square_
from .state import Memory, State, grouped


class History(nn.Module):
    """A recurrent path; each method returns None where the path adds nothing."""

    def query_term(self, memory: Memory, state: State) -> Optional[Tensor]:
        """Added to the projected query, ``N x A``."""
        return None

    def key_features(self, memory: Memory, state: State) -> Optional[Tuple[Tensor, Tensor]]:
        """Features ``N x S x k`` and a matrix ``A x k`` whose product is added to the keys."""
        return None

    def energy_term(self, memory: Memory, state: State) -> Optional[Tensor]:
        """Added to the energies, ``N x S``, float32."""
        return None


class ContextHistory(History):
    """RecAtt (001 §4.1): the score reads the previous context, ``+ V c_{i-1}``."""

    def __init__(self, annotation_dim: int, attention_dim: int):
        super().__init__()
        self.projection = square_(ContextLinear(annotation_dim, attention_dim, bias=False))

    def query_term(self, memory: Memory, state: State) -> Tensor:
        return self.projection(context_of(memory, state.context))


class DistanceHistory(History):
    """HybridAtt1 (001 §6.2): ``e'_ij = σ(j - m_{i-1}) exp(e_ij)`` with ``m_{i-1} = Σ_j j w_{i-1,j}``.

    In log space: ``log σ(j - m_{i-1})`` is added to the energy.  ``j`` counts real tokens from 1, and ``m_0 = 0``.
    """

    def energy_term(self, memory: Memory, state: State) -> Tensor:
        assert memory.positions is not None
        positions = memory.positions.unsqueeze(1)
        centre = (positions * grouped(state.weights, positions)).sum(2, keepdim=True)
        return F.logsigmoid(positions - centre).flatten(0, 1)


class ConvolutionHistory(History):
    """HybridAtt2 (001 §6.3): the score reads the previous weights around ``j``, ``+ L (Q * w_{i-1})_j``.

    ``filters`` filters of ``width`` (odd) weights, centred, zero-padded, without bias; ``w_0`` is uniform over real
    positions.  Gradients flow through the weights.
    """

    def __init__(self, filters: int, width: int, attention_dim: int):
        super().__init__()
        self.filters = nn.Conv1d(1, filters, width, padding=width // 2, bias=False)
        matrix_(self.filters.weight)
        self.projection = linear_(nn.Linear(filters, attention_dim, bias=False))

    def key_features(self, memory: Memory, state: State) -> Tuple[Tensor, Tensor]:
        first = state.weights.sum(1, keepdim=True).eq(0)
        uniform = uniform_weights(memory.padding_mask, state.weights.dtype)
        weights = torch.where(first, uniform.repeat_interleave(len(first) // len(uniform), dim=0), state.weights)
        features = self.filters(weights.to(self.filters.weight.dtype).unsqueeze(1))  # B x k x S
        return features.transpose(1, 2), self.projection.weight


def uniform_weights(padding_mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """``w_0``: uniform over real positions and zero on padding, ``B x S``."""
    real = (~padding_mask).to(dtype)
    return real / real.sum(1, keepdim=True).clamp(min=1)


def real_positions(padding_mask: Tensor) -> Tensor:
    """``j``: real tokens counted from 1, whichever side the padding is on, ``B x S``, float32."""
    return torch.cumsum(~padding_mask, dim=1).float()

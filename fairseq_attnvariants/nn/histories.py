"""What attention knows of earlier steps: the recurrent paths of Feng et al. (2016), and coverage.

Their terms add to the score.

RNNAtt is none of them: it replaces the query, see :class:`~.transition.Transition`.

Shapes as in :mod:`.state`; ``k = N/B`` is the number of hypotheses of a sentence, 1 but in beam search.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .cells import ContextLinear, GRUCell
from .layer_norm import at_least_float32
from .state import Memory, State, grouped

KeyFeatures = Tuple[Tensor, Tensor]  # B x k x S x f, and a matrix A x f


class History(nn.Module):
    """A recurrent path; each method returns None, or no entries, where the path adds nothing."""

    def memory_entries(self, annotations: Tensor) -> Dict[str, Any]:
        """Its entries of :class:`~.state.Memory`, of ``s_j``, ``B x S x a``."""
        return {}

    def first_entries(self, memory: Memory) -> Dict[str, Any]:
        """Its entries of the state before the first step."""
        return {}

    def query_term(self, state: State) -> Optional[Tensor]:
        """Added to the projected query, ``N x A``."""
        return None

    def key_features(self, memory: Memory, state: State) -> Optional[KeyFeatures]:
        """Features ``B x k x S x f`` and a matrix ``A x f`` whose product is added to the keys."""
        return None

    def energy_term(self, memory: Memory, state: State) -> Optional[Tensor]:
        """Added to the energies, ``B x k x S``, float32."""
        return None

    def next_entries(self, memory: Memory, state: State, weights: Tensor, hidden: Tensor) -> Dict[str, Any]:
        """Its entries of the next state, once ``w_ij``, ``N x S``, is known; ``hidden`` is ``h_{i-1}``, ``N x n``."""
        return {}


class Histories(nn.ModuleDict):
    """Several paths as one: their terms add up, and each has entries of its own or the same as another."""

    def memory_entries(self, annotations: Tensor) -> Dict[str, Any]:
        return self._entries("memory_entries", annotations)

    def first_entries(self, memory: Memory) -> Dict[str, Any]:
        return self._entries("first_entries", memory)

    def query_term(self, state: State) -> Optional[Tensor]:
        return plus(*self._all("query_term", state))

    def key_features(self, memory: Memory, state: State) -> List[KeyFeatures]:
        return [features for features in self._all("key_features", memory, state) if features is not None]

    def energy_term(self, memory: Memory, state: State) -> Optional[Tensor]:
        return plus(*self._all("energy_term", memory, state))

    def next_entries(self, memory: Memory, state: State, weights: Tensor, hidden: Tensor) -> Dict[str, Any]:
        return self._entries("next_entries", memory, state, weights, hidden)

    def _all(self, method: str, *arguments: Any) -> List[Any]:
        return [getattr(history, method)(*arguments) for history in self.values()]

    def _entries(self, method: str, *arguments: Any) -> Dict[str, Any]:
        return {name: value for entries in self._all(method, *arguments) for name, value in entries.items()}


class ContextHistory(History):
    """RecAtt (Feng et al. 2016 §4.1): the score reads the previous context, ``+ V c_{i-1}``."""

    def __init__(self, annotation_dim: int, attention_dim: int):
        super().__init__()
        self.projection = ContextLinear(annotation_dim, attention_dim, bias=False)

    def query_term(self, state: State) -> Tensor:
        return self.projection(state.context)  # N x A


class DistanceHistory(History):
    """HybridAtt1 (Feng et al. 2016 §6.2): ``e'_ij = σ(j - m_{i-1}) exp(e_ij)`` with ``m_{i-1} = Σ_j j w_{i-1,j}``.

    In log space: ``log σ(j - m_{i-1})`` is added to the energy.  ``j`` counts real tokens from 1, and ``m_0 = 0``.
    """

    def energy_term(self, memory: Memory, state: State) -> Tensor:
        positions = memory.positions.unsqueeze(1)  # B x 1 x S
        centre = (positions * grouped(state.weights, positions)).sum(2, keepdim=True)  # B x k x 1
        return F.logsigmoid(positions - centre)  # B x k x S


class ConvolutionHistory(History):
    """HybridAtt2 (Feng et al. 2016 §6.3): the score reads the previous weights around ``j``, ``+ L (Q * w_{i-1})_j``.

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


class CoverageHistory(History):
    """Coverage (See 2017 eq. 10-11): the score reads how much was attended, ``+ V c_ij``, ``c_ij = Σ_{t<i} w_tj``."""

    def __init__(self, attention_dim: int):
        super().__init__()
        self.projection = nn.Linear(1, attention_dim, bias=False)

    def first_entries(self, memory: Memory) -> Dict[str, Any]:
        return {"coverage": torch.zeros_like(memory.positions)}

    def key_features(self, memory: Memory, state: State) -> KeyFeatures:
        return self.coverage(memory, state).unsqueeze(3), self.projection.weight  # B x k x S x 1

    def coverage(self, memory: Memory, state: State) -> Tensor:
        """``c_ij``, ``B x k x S``, float32."""
        assert state.coverage is not None
        return grouped(state.coverage, memory.keys)

    def next_entries(self, memory: Memory, state: State, weights: Tensor, hidden: Tensor) -> Dict[str, Any]:
        assert state.coverage is not None
        return {"coverage": state.coverage + weights}


class FertilityHistory(CoverageHistory):
    """Linguistic coverage (Tu 2016): ``c_ij = Σ_{t<i} w_tj / Φ_j``, fertility ``Φ_j = N σ(u·s_j)``, ``N = 2``."""

    LARGEST = 2.0

    def __init__(self, annotation_dim: int, attention_dim: int):
        super().__init__(attention_dim)
        self.fertility = nn.Linear(annotation_dim, 1, bias=False)

    def memory_entries(self, annotations: Tensor) -> Dict[str, Any]:
        return {
            "fertility": self.LARGEST * torch.sigmoid(at_least_float32(self.fertility(annotations).squeeze(2)))
        }  # B x S

    def coverage(self, memory: Memory, state: State) -> Tensor:
        assert memory.fertility is not None
        return super().coverage(memory, state) / memory.fertility.unsqueeze(1)  # B x k x S


class CoverageGRUHistory(History):
    """Neural coverage (Tu 2016): the keys get ``V C_{i-1,j}``, ``C_ij = GRU(C_{i-1,j}; w_ij, s_j, h_{i-1})``.

    ``C_0j = 0``.  Each step has a state of width ``d`` for every source position, which training keeps, ``N x S x d``.
    """

    def __init__(self, annotation_dim: int, hidden_dim: int, coverage_dim: int, attention_dim: int):
        super().__init__()
        self.cell = GRUCell({"annotation": annotation_dim, "hidden": hidden_dim, "weight": 1}, coverage_dim)
        self.projection = nn.Linear(coverage_dim, attention_dim, bias=False)

    def memory_entries(self, annotations: Tensor) -> Dict[str, Any]:
        return {"coverage_inputs": self.cell.project("annotation", annotations)}  # B x S x 3d

    def first_entries(self, memory: Memory) -> Dict[str, Any]:
        return {"coverage_state": memory.values.new_zeros(*memory.positions.shape, self.cell.hidden_dim)}

    def key_features(self, memory: Memory, state: State) -> KeyFeatures:
        assert state.coverage_state is not None
        return grouped(state.coverage_state, memory.keys), self.projection.weight  # B x k x S x d

    def next_entries(self, memory: Memory, state: State, weights: Tensor, hidden: Tensor) -> Dict[str, Any]:
        previous, inputs = state.coverage_state, memory.coverage_inputs
        assert previous is not None and inputs is not None
        inputs = inputs.unsqueeze(1) + grouped(self.cell.project("hidden", hidden), inputs).unsqueeze(2)
        weight = weights.to(previous.dtype).view(-1, 1)  # (N·S) x 1
        states = self.cell(previous.flatten(0, 1), inputs.flatten(0, 2), weight=weight)  # (N·S) x d
        padding = memory.padding_mask.unsqueeze(1).unsqueeze(3)  # B x 1 x S x 1
        return {"coverage_state": grouped(states.view_as(previous), padding).masked_fill(padding, 0.0).flatten(0, 1)}


def plus(*terms: Optional[Tensor]) -> Any:
    """Sum of terms, of which any may be None."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None


def uniform_weights(padding_mask: Tensor) -> Tensor:
    """``w_0``: uniform over real positions and zero on padding, ``B x S``, float32."""
    real = (~padding_mask).float()
    return real / real.sum(1, keepdim=True).clamp(min=1)

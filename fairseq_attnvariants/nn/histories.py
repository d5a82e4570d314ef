"""What attention knows of earlier steps: the recurrent paths of Feng et al. (2016), and coverage.

Their terms add to the score.

A history extends :class:`History` and is entered by :data:`register_history`.

Shapes as in :mod:`.state`; ``k = N/B`` is the number of hypotheses of a sentence, 1 but in beam search.
"""

from typing import Annotated, Any, NamedTuple, Optional, Type

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..registry import Bound, ConfigurationError, Part, Registry, Widths, at_least
from .additive import KeyFeatures
from .cells import GRUCell
from .layer_norm import at_least_float32
from .state import Memory, State, grouped

ODD = Bound("be odd and at least 1, so that a filter has a centre", lambda value: value >= 1 and value % 2 == 1)


class Past(NamedTuple):
    """What a history or a window reads at a step.

    An entry is a tensor, a tuple or a dictionary of such, or None; its tensors' first dimension is the rows.
    """

    memory: Memory
    """of the sentences"""
    state: State
    """of the previous step"""
    known: Any
    """the part's own entry of the memory, rows as the memory's"""
    carried: Any
    """its own entry of the state, rows as the state's"""
    query: Any = None
    """this step's query, before it is projected, ``N x n``"""
    hidden: Any = None
    """``h_i``, the state that this step leaves, ``N x n``; None before :meth:`Carrying.next`"""


class Carrying(Part, nn.Module):
    """A part of attention that may know something of a sentence, and carry something from step to step."""

    def remember(self, annotations: Tensor) -> Any:
        """Its entry of the memory, computed once a sentence, of ``s_j``, ``B x S x a``."""
        return None

    def start(self, memory: Memory) -> Any:
        """Its entry of the state before the first step, ``B x ...``."""
        return None

    def next(self, past: Past, weights: Tensor, hidden: Tensor) -> Any:
        """Its entry of the next state, once ``w_ij``, ``N x S``, is known; ``hidden`` is ``h_{i-1}``, ``N x n``."""
        return past.carried


class History(Carrying):
    """What attention knows of earlier steps; each method returns None where the history adds nothing.

    Args:
        widths: what it may be built from.
    """

    replaces_query = False
    """whether the query is the state of a cell of attention's own, which :class:`~.transition.Transition` steps"""

    def __init__(self, widths: Widths):
        super().__init__()

    @classmethod
    def check_declaration(cls, what: str) -> None:
        super().check_declaration(what)
        terms = ("query_term", "key_features", "energy_term")
        if not cls.replaces_query and all(getattr(cls, term) is getattr(History, term) for term in terms):
            raise ConfigurationError(f"{what} defines none of {', '.join(terms)}, so it would change nothing")

    def query_term(self, past: Past) -> Optional[Tensor]:
        """Added to the projected query, ``N x A``."""
        return None

    def key_features(self, past: Past) -> Optional[KeyFeatures]:
        """Features ``B x k x S x f`` and a matrix ``A x f`` whose product is added to the keys."""
        return None

    def energy_term(self, past: Past) -> Optional[Tensor]:
        """Added to the energies, ``B x k x S``, float32."""
        return None


HISTORIES: Registry[Type[History]] = Registry("attention history", History)
register_history = HISTORIES.register


@register_history("context")
class ContextHistory(History):
    """RecAtt (Feng et al. 2016 §4.1): the score reads the previous context, ``+ V c_{i-1}``."""

    def __init__(self, widths: Widths):
        super().__init__(widths)
        self.projection = nn.Linear(widths.context, widths.attention, bias=False)

    def query_term(self, past: Past) -> Tensor:
        term: Tensor = self.projection(past.state.context)
        return term  # N x A


@register_history("state")
class StateHistory(History):
    """RNNAtt (Feng et al. 2016 §4.2): the query is ``q_{i-1}``, the state of a cell that reads ``h`` and ``c``.

    Its cell, start and state are the decoder's (``query_cell``, ``initial_query``, :attr:`.State.query`), because it
    steps with the decoder's cells, before attention looks, and starts as they do.
    """

    replaces_query = True


@register_history("distance")
class DistanceHistory(History):
    """HybridAtt1 (Feng et al. 2016 §6.2): ``e'_ij = σ(j - m_{i-1}) exp(e_ij)`` with ``m_{i-1} = Σ_j j w_{i-1,j}``.

    In log space: ``log σ(j - m_{i-1})`` is added to the energy.  ``j`` counts real tokens from 1, and ``m_0 = 0``.
    """

    def energy_term(self, past: Past) -> Tensor:
        positions = past.memory.positions.unsqueeze(1)  # B x 1 x S
        centre = (positions * grouped(past.state.weights, positions)).sum(2, keepdim=True)  # B x k x 1
        return F.logsigmoid(positions - centre)  # B x k x S


@register_history("convolution")
class ConvolutionHistory(History):
    """HybridAtt2 (Feng et al. 2016 §6.3): the score reads the previous weights around ``j``, ``+ L (Q * w_{i-1})_j``.

    The filters are centred, zero-padded and without bias; ``w_0`` is uniform over real positions.  Gradients flow
    through the weights, which it carries.

    Args:
        filters: filters of the convolution over the previous weights (HybridAtt2).
        width: width of these filters, odd (HybridAtt2).
    """

    def __init__(self, widths: Widths, *, filters: Annotated[int, at_least(1)] = 10, width: Annotated[int, ODD] = 11):
        super().__init__(widths)
        self.margin = width // 2
        self.filters = nn.Conv1d(1, filters, width, bias=False)  # applied as a product: S stays free for --compile
        self.projection = nn.Linear(filters, widths.attention, bias=False)

    def start(self, memory: Memory) -> Tensor:
        return uniform_weights(memory.padding_mask)

    def next(self, past: Past, weights: Tensor, hidden: Tensor) -> Tensor:
        return weights

    def key_features(self, past: Past) -> KeyFeatures:
        weights = grouped(past.carried, past.memory.keys)  # B x k x S
        filters = self.filters.weight.squeeze(1)  # f x r
        windows = F.pad(weights, (self.margin, self.margin)).unfold(2, filters.size(1), 1)  # B x k x S x r
        return F.linear(windows.to(filters.dtype), filters), self.projection.weight  # B x k x S x f


@register_history("coverage")
class CoverageHistory(History):
    """Coverage (See 2017 eq. 10-11): the score reads how much was attended, ``+ V c_ij``, ``c_ij = Σ_{t<i} w_tj``.

    It carries ``Σ_{t<i} w_tj``, ``N x S``, float32.
    """

    def __init__(self, widths: Widths):
        super().__init__(widths)
        self.projection = nn.Linear(1, widths.attention, bias=False)

    def start(self, memory: Memory) -> Tensor:
        return torch.zeros_like(memory.positions)

    def key_features(self, past: Past) -> KeyFeatures:
        return self.coverage(past).unsqueeze(3), self.projection.weight  # B x k x S x 1

    def coverage(self, past: Past) -> Tensor:
        """``c_ij``, ``B x k x S``, float32."""
        return grouped(past.carried, past.memory.keys)

    def next(self, past: Past, weights: Tensor, hidden: Tensor) -> Tensor:
        coverage: Tensor = past.carried
        return coverage + weights


@register_history("fertility")
class FertilityHistory(CoverageHistory):
    """Linguistic coverage (Tu 2016): ``c_ij = Σ_{t<i} w_tj / Φ_j``, fertility ``Φ_j = N σ(u·s_j)``, ``N = 2``.

    ``Φ``, ``B x S``, float32, is known before the first step.
    """

    LARGEST = 2.0

    def __init__(self, widths: Widths):
        super().__init__(widths)
        self.fertility = nn.Linear(widths.annotation, 1, bias=False)

    def remember(self, annotations: Tensor) -> Tensor:
        return self.LARGEST * torch.sigmoid(at_least_float32(self.fertility(annotations).squeeze(2)))

    def coverage(self, past: Past) -> Tensor:
        fertility: Tensor = past.known
        return super().coverage(past) / fertility.unsqueeze(1)  # B x k x S


@register_history("coverage_gru")
class CoverageGRUHistory(History):
    """Neural coverage (Tu 2016): the keys get ``V C_{i-1,j}``, ``C_ij = GRU(C_{i-1,j}; w_ij, s_j, h_{i-1})``.

    It carries ``C_{i-1,j}``, ``N x S x d``, ``C_0j = 0``, which training keeps of every step; ``W s_j + b`` of its GRU,
    ``B x S x 3d``, is known before.

    Args:
        width: width d of the coverage_gru's states, one per source position.
    """

    def __init__(self, widths: Widths, *, width: Annotated[int, at_least(1)] = 10):
        super().__init__(widths)
        self.cell = GRUCell({"annotation": widths.annotation, "hidden": widths.hidden, "weight": 1}, width)
        self.projection = nn.Linear(width, widths.attention, bias=False)

    def remember(self, annotations: Tensor) -> Tensor:
        return self.cell.project("annotation", annotations)

    def start(self, memory: Memory) -> Tensor:
        return memory.embeddings.new_zeros(*memory.positions.shape, self.cell.hidden_dim)  # values may be rounded

    def key_features(self, past: Past) -> KeyFeatures:
        return grouped(past.carried, past.memory.keys), self.projection.weight  # B x k x S x d

    def next(self, past: Past, weights: Tensor, hidden: Tensor) -> Tensor:
        previous, inputs = past.carried, past.known
        inputs = inputs.unsqueeze(1) + grouped(self.cell.project("hidden", hidden), inputs).unsqueeze(2)
        weight = weights.to(previous.dtype).view(-1, 1)  # (N·S) x 1
        states = self.cell(previous.flatten(0, 1), inputs.flatten(0, 2), weight=weight)  # (N·S) x d
        padding = past.memory.padding_mask.unsqueeze(1).unsqueeze(3)  # B x 1 x S x 1
        return grouped(states.view_as(previous), padding).masked_fill(padding, 0.0).flatten(0, 1)


HISTORIES.taken = frozenset([*dir(nn.ModuleDict), "none"])


def uniform_weights(padding_mask: Tensor) -> Tensor:
    """``w_0``: uniform over real positions and zero on padding, ``B x S``, float32."""
    real = (~padding_mask).float()
    return real / real.sum(1, keepdim=True).clamp(min=1)

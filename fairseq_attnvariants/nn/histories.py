"""Attention histories: the recurrent paths of Feng et al. (2016), and coverage.

A history adds terms to the score.  It extends :class:`History`, and :data:`register_history` registers it.

Shapes as in :mod:`.state`.
"""

from typing import Annotated, Any, NamedTuple

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
    """The input of a history or a window at a step.

    An entry is a tensor, a tuple or dictionary of tensors, or None.  The first dimension of its tensors is the rows.
    """

    memory: Memory
    """the memory of the sentences"""
    state: State
    """the state of the previous step"""
    known: Any
    """the component's entry of the memory, with the memory's rows"""
    carried: Any
    """the component's entry of the state, with the state's rows"""
    query: Any = None
    """this step's query, before it is projected, ``N x n``"""
    hidden: Any = None
    """``h_i``, the state after this step, ``N x n``; None before :meth:`Carrying.next`"""


class Carrying(Part, nn.Module):
    """A component of attention with an entry in the memory and in the state."""

    def remember(self, annotations: Tensor) -> Any:
        """Return the component's entry in the memory, computed once per sentence from ``s_j``, ``B x S x a``."""
        return None

    def start(self, memory: Memory) -> Any:
        """Return the component's entry in the state before the first step, ``B x ...``."""
        return None

    def next(self, past: Past, weights: Tensor, hidden: Tensor) -> Any:
        """Return the component's entry in the next state, from ``w_ij``, ``N x S``, and ``h_{i-1}``, ``N x n``."""
        return past.carried


class History(Carrying):
    """An attention history; each method returns None if the history adds nothing there.

    Args:
        widths: the widths that it may use.
    """

    replaces_query = False
    """whether the query is the state of the query cell, which :class:`~.transition.Transition` runs"""

    def __init__(self, widths: Widths):
        super().__init__()

    @classmethod
    def check_declaration(cls, what: str) -> None:
        super().check_declaration(what)
        terms = ("query_term", "key_features", "energy_term")
        if not cls.replaces_query and all(getattr(cls, term) is getattr(History, term) for term in terms):
            raise ConfigurationError(f"{what} defines none of {', '.join(terms)}, so it would change nothing")

    def query_term(self, past: Past) -> Tensor | None:
        """Return the term for the projected query, ``N x A``."""
        return None

    def key_features(self, past: Past) -> KeyFeatures | None:
        """Return the factors of the term for the keys: features ``B x k x S x f`` and a matrix ``A x f``."""
        return None

    def energy_term(self, past: Past) -> Tensor | None:
        """Return the term for the energies, ``B x k x S``, float32."""
        return None


HISTORIES: Registry[type[History]] = Registry("attention history", History)
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
    """RNNAtt (Feng et al. 2016 §4.2): the query is ``q_{i-1}``, where ``q_i = GRU(q_{i-1}; h_{i-1}, c_i)``.

    Its cell, start and state belong to the decoder (``query_cell``, ``initial_query``, :attr:`.State.query`), because
    the cell starts and runs together with the decoder's cells.
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

    The filters are centred, zero-padded and without bias; ``w_0`` is uniform over real positions.  The state is
    ``w_{i-1}``, and gradients flow through it.

    Args:
        filters: filters of the convolution over the previous weights (HybridAtt2).
        width: width of these filters, odd (HybridAtt2).
    """

    def __init__(self, widths: Widths, *, filters: Annotated[int, at_least(1)] = 10, width: Annotated[int, ODD] = 11):
        super().__init__(widths)
        self.margin = width // 2
        self.filters = nn.Conv1d(1, filters, width, bias=False)  # applied as a product, so --compile need not fix S
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
    """Coverage (See 2017 eq. 10-11): the score reads the sum of earlier weights, ``+ V c_ij``, ``c_ij = Σ_{t<i} w_tj``.

    The state is ``Σ_{t<i} w_tj``, ``N x S``, float32.
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
    LEAST = 1e-12  # with less, c / Φ and its gradient could become NaN

    def __init__(self, widths: Widths):
        super().__init__(widths)
        self.fertility = nn.Linear(widths.annotation, 1, bias=False)

    def remember(self, annotations: Tensor) -> Tensor:
        share = torch.sigmoid(at_least_float32(self.fertility(annotations).squeeze(2)))
        return (self.LARGEST * share).clamp(min=self.LEAST)

    def coverage(self, past: Past) -> Tensor:
        fertility: Tensor = past.known
        return super().coverage(past) / fertility.unsqueeze(1)  # B x k x S


@register_history("coverage_gru")
class CoverageGRUHistory(History):
    """Neural coverage (Tu 2016): the keys get ``V C_{i-1,j}``, ``C_ij = GRU(C_{i-1,j}; w_ij, s_j, h_{i-1})``.

    The state is ``C_{i-1,j}``, ``N x S x d``, with ``C_0j = 0``; training keeps it for every step.  ``W s_j + b`` of
    its GRU, ``B x S x 3d``, is known before the first step.

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
        return memory.embeddings.new_zeros(*memory.positions.shape, self.cell.hidden_dim)  # .values may be rounded

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

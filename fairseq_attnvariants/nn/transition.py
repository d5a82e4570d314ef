"""One step of the decoder: where attention stands among the cells.

The architectures differ in the order of a few parts, so one step serves them all::

    rnnsearch            attend, cell              query h_{i-1}
    dl4mt, rnnsearch*    cell, attend, cell        query s'
    attention via a.     cell, attend              query r_i, the new state; the cell reads c_{i-1}
    input feeding        the first cell also reads c_{i-1}
    RNNAtt               the query is q_{i-1}, the state of a cell of attention's own
    CondDec              a condition is added to the last cell's state
    target-side bridge   the last cell also reads x_{t*}, the embedding of the most attended word

Shapes: ``B`` batch, ``T`` target length, ``n`` hidden width, ``a`` annotation width.
"""

from typing import NamedTuple, Optional, Union

import torch
from torch import Tensor, nn

from .attention import AdditiveAttention, AttentionViaAttention
from .bridging import most_attended, select
from .cells import Cell, StackedCell
from .context import Context, ContextLinear, context_of
from .init import linear_, square_
from .loop import LoopLinear
from .state import Encoded, Memory, State, grouped

AnyCell = Union[Cell, StackedCell]


class Condition(nn.Module):
    """CondDec's condition (001 §5): what of the source is still to be said.

    ``d_i = σ(W^d y_{i-1} + U^d h_{i-1} + V^d c_i + b)``, ``sd_i = d_i ∘ sd_{i-1}``; ``tanh(V^h sd_i)`` is added
    to the cell's new state.  ``sd_0`` is the encoder's final states ``[→s_S; ←s_1]``.

    Args:
        target_dim, hidden, context_dim: widths of ``y``, ``h`` and ``c``.
        condition_dim: width of ``sd``.
    """

    def __init__(self, target_dim: int, hidden: int, context_dim: int, condition_dim: int):
        super().__init__()
        self.target = linear_(nn.Linear(target_dim, condition_dim))
        self.hidden = square_(LoopLinear(hidden, condition_dim, bias=False))
        self.context = square_(ContextLinear(context_dim, condition_dim, bias=False))
        self.output = square_(LoopLinear(condition_dim, hidden, bias=False))

    def decay(self, target: Tensor, hidden: Tensor, context: Context, condition: Tensor) -> Tensor:
        """``sd_i``, ``B x condition_dim``; ``target`` is already projected, ``W^d y_{i-1} + b``."""
        gate = self.context(context, self.hidden(hidden, target))
        return torch.sigmoid(gate.to(condition.dtype)) * condition

    def forward(self, condition: Tensor) -> Tensor:
        """``tanh(V^h sd_i)``, ``B x n``."""
        return torch.tanh(self.output(condition).to(condition.dtype))


class Projected(NamedTuple):
    """Projections of the target embeddings, made for the whole sentence before the loop."""

    cell: Tensor
    """for the cell that reads the target, ``B x T x gates·n``."""
    condition: Optional[Tensor]
    """for the condition's gate, ``B x T x condition width``."""


class Transition(nn.Module):
    """One decoder step composed of parts.

    Args:
        before: cell before attention, or None (``rnnsearch``).
        attention: the attention.
        after: cell after attention, which reads the context, or None (attention via attention).
        query_cell: attention's own cell (RNNAtt), or None.
        condition: CondDec's condition, or None.
    """

    def __init__(
        self,
        before: Optional[AnyCell],
        attention: Union[AdditiveAttention, AttentionViaAttention],
        after: Optional[AnyCell],
        query_cell: Optional[Cell] = None,
        condition: Optional[Condition] = None,
    ):
        super().__init__()
        self.before = before
        self.attention = attention
        self.after = after
        self.query_cell = query_cell
        self.condition = condition

    @property
    def first(self) -> AnyCell:
        """The cell that reads the target embedding (and the previous context, with input feeding)."""
        return self.before or self.last

    @property
    def last(self) -> AnyCell:
        """The cell whose state the step leaves."""
        cell = self.after or self.before
        assert cell is not None
        return cell

    def project(self, target: Tensor) -> Projected:
        """Project the target embeddings ``B x T x m`` of all steps at once."""
        return Projected(
            self.first.project("target", target),
            None if self.condition is None else self.condition.target(target),
        )

    def forward(self, cell: Tensor, condition: Optional[Tensor], memory: Memory, state: State) -> State:
        """One step.

        Args:
            cell, condition: this step's rows of :class:`Projected`.
            memory: of the sentence.
            state: of the previous step.

        Returns:
            the next state; its ``context`` and ``weights`` are this step's.
        """
        previous = hidden = state.hidden
        projected = self.first.add(cell, "previous_context", context_of(memory, state.context))
        if self.before is not None:
            hidden = self.before(projected, hidden)
            projected = None
        query = self.first.output(hidden) if state.query is None else state.query
        summed, weights, upper_weights = self.attention(query, memory, state)
        context = context_of(memory, summed)
        if self.after is not None:
            projected = self.after.add(projected, "context", context)
            if memory.embeddings is not None:
                positions = most_attended(grouped(weights, memory.padding_mask), memory.padding_mask.unsqueeze(1))
                attended = select(memory.embeddings, positions).flatten(0, 1)
                projected = self.after.add(projected, "attended", attended)
            hidden = self.after(projected, hidden)

        own = state.query
        if self.query_cell is not None and own is not None:
            read = self.query_cell.add(None, "hidden", self.last.output(previous))
            own = self.query_cell(self.query_cell.add(read, "context", context), own)

        left = state.condition
        if self.condition is not None and left is not None and condition is not None:
            left = self.condition.decay(condition, previous, context, left)
            hidden = hidden + self.condition(left)
        return state._replace(
            hidden=hidden, context=summed, weights=weights, upper_weights=upper_weights, query=own, condition=left
        )


class InitialState(nn.Module):
    """``h_0`` from the source, one affine map and tanh.

    ``first``: of the backward state at the first word (001, Bahdanau 2015); ``linear``: the same without tanh (004);
    ``mean``: of the mean of the real annotations (002, 003).

    Args:
        source: ``first``, ``linear`` or ``mean``.
        source_dim: width of what is read.
        state_dim: width of the state.
        copies: how many layers start from it.
    """

    def __init__(self, source: str, source_dim: int, state_dim: int, copies: int = 1):
        super().__init__()
        self.source = source
        self.copies = copies
        self.projection = square_(nn.Linear(source_dim, state_dim))

    def forward(self, encoded: Encoded) -> Tensor:
        """``B x (copies · state_dim)``."""
        state = self.projection(self.summary(encoded)).to(encoded.final.dtype)
        return (state if self.source == "linear" else torch.tanh(state)).repeat(1, self.copies)

    def summary(self, encoded: Encoded) -> Tensor:
        """What ``h_0`` is made of, ``B x source_dim``."""
        if self.source != "mean":
            return encoded.final[:, encoded.final.size(1) // 2 :]
        annotations, padding_mask = encoded.annotations, encoded.padding_mask
        if encoded.upper_annotations is not None and encoded.upper_padding_mask is not None:
            annotations, padding_mask = encoded.upper_annotations, encoded.upper_padding_mask
        lengths = (~padding_mask).sum(1, keepdim=True).clamp(min=1)
        return annotations.sum(1) / lengths.to(annotations.dtype)

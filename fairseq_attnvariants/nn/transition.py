"""One step of the decoder: the order of attention and cells.

The architectures differ in the order of a few components, so they share one step::

    rnnsearch            attend, cell              query h_{i-1}
    char2char            attend, cells             query h_{i-1} of the highest cell and y_{i-1}; all cells read c_i
    dl4mt, rnnsearch*    cell, attend, cell        query s'
    attention via a.     cell, attend              query r_{i-1}, the new state; the cell reads y_{i-1} and c_{i-1}
    GNMT v2              cell, attend              query s', the new state; the layers above read c_i
    input feeding        the first cell also reads c_{i-1}
    RNNAtt               the query is q_{i-1}, the state of the query cell
    CondDec              a condition is added to the last cell's state
    context gate         the cell that reads c_i weighs it against its other inputs
    deep transition      cells that read only the state follow; all are one cell
    target-side bridge   the cell that reads c_i also reads x_{t*}, the embedding of the most attended word
    features             the first cell also reads f_i, a context of the source's features for the query h_{i-1}

Shapes as in :mod:`.state`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .attention import Attention, AttentionViaAttention
from .bridging import most_attended
from .cells import Cell, ContextGatedCell, DeepCell
from .layers import over_steps
from .state import Memory, State, by_steps, each, grouped

AnyAttention = Attention | AttentionViaAttention
AnyCell = Cell | ContextGatedCell | DeepCell


class Condition(nn.Module):
    """CondDec's condition (Feng et al. 2016 §5): the part of the source that is still to be translated.

    ``d_i = σ(W^d y_{i-1} + U^d h_{i-1} + V^d c_i + b)``, ``sd_i = d_i ∘ sd_{i-1}``; ``tanh(V^h sd_i)`` is added
    to the cell's new state.  ``sd_0`` is the encoder's final states ``[→s_S; ←s_1]``.

    Args:
        target_dim, hidden_dim, context_dim: widths of ``y``, ``h`` and ``c``.
        condition_dim: width of ``sd``.
    """

    def __init__(self, target_dim: int, hidden_dim: int, context_dim: int, condition_dim: int):
        super().__init__()
        self.target = nn.Linear(target_dim, condition_dim)
        self.hidden = nn.Linear(hidden_dim, condition_dim, bias=False)
        self.context = nn.Linear(context_dim, condition_dim, bias=False)
        self.output = nn.Linear(condition_dim, hidden_dim, bias=False)

    def decay(self, target: Tensor, hidden: Tensor, context: Tensor, condition: Tensor) -> Tensor:
        """``sd_i``, ``N x 2n``; ``target`` is already projected, ``W^d y_{i-1} + b``."""
        gate = target + self.hidden(hidden) + self.context(context)  # N x 2n
        return torch.sigmoid(gate.to(condition.dtype)) * condition

    def forward(self, condition: Tensor) -> Tensor:
        """``tanh(V^h sd_i)``, ``N x n``."""
        return torch.tanh(self.output(condition).to(condition.dtype))


class Words(NamedTuple):
    """Projections of the target words, made before the loop."""

    cell: Tensor
    """``W y + b`` of the cell that reads the words, ``N x gates·n``; for ``T`` steps ``N x T x gates·n``.

    With a context gate it is ``W y``, and one gate wider.
    """
    condition: Tensor | None
    """``W^d y + b`` of the condition's gate, ``N x 2n`` or ``N x T x 2n``."""
    query: Tensor | None
    """``W^y y`` of attention's query, ``N x A`` or ``N x T x A``."""


class Transition(nn.Module):
    """One decoder step composed of components.

    Args:
        before: cell before attention, or None (``rnnsearch``).
        attention: the attention.
        after: cell after attention, which reads the context, or None (attention via attention).
        query_cell: the cell whose state is the query (RNNAtt), or None.
        condition: CondDec's condition, or None.
        query_word: the map from the target word into attention's query, or None.
        features: attention to the source's features, a set of embeddings, or None.
    """

    def __init__(
        self,
        before: AnyCell | None,
        attention: AnyAttention,
        after: AnyCell | None,
        query_cell: Cell | None = None,
        condition: Condition | None = None,
        query_word: nn.Linear | None = None,
        features: Attention | None = None,
    ):
        super().__init__()
        self.before = before
        self.attention = attention
        self.after = after
        self.query_cell = query_cell
        self.condition = condition
        self.query_word = query_word
        self.features = features
        self.feeds_input = "previous_context" in self.first.inputs
        self.bridges = "attended" in self.last.inputs  # the target side (Kuang et al. 2018 §2.2)

    @property
    def first(self) -> AnyCell:
        """The cell that reads the target word (and the previous context, with input feeding)."""
        return self.before or self.last

    @property
    def last(self) -> Any:
        """The cell whose state the step returns."""
        return self.after or self.before

    @property
    def independent(self) -> bool:
        """Whether no step reads the result of an earlier step's attention, so that all steps may attend at once."""
        reads = self.after or self.feeds_input or self.query_cell or self.condition or self.features
        return not reads and self.attention.independent

    def project(self, target: Tensor) -> Words:
        """Project target embeddings ``N x T x m`` of all steps at once."""
        condition = None if self.condition is None else self.condition.target(target)
        query = None if self.query_word is None else self.query_word(target)
        return Words(self.first.project("target", target), condition, query)

    def at_once(self, target: Tensor, memory: Memory, state: State) -> tuple[list[Tensor], State, State]:
        """Run ``T`` steps of an :attr:`independent` transition: layer by layer, and then all attention at once.

        Args:
            target: embeddings ``N x T x m``.
            memory, state: as for :meth:`forward`.

        Returns:
            the outputs of the layers, from the lowest to the highest, each ``N x T x n``; the states of all steps in
            tensors ``N x T x ...``, without the cells' states; and the last state.
        """
        rows, steps = target.size(0), target.size(1)
        outputs, hidden = over_steps(self.before, "target", by_steps(target), state.hidden)
        outputs = [output.unflatten(0, (steps, rows)).transpose(0, 1) for output in outputs]  # N x T x n
        number = state.step.unsqueeze(1) + torch.arange(steps, device=target.device)  # N x T
        word = None if self.query_word is None else self.query_word(target).flatten(0, 1)
        # windows read the number of earlier steps
        attended = self.attention(outputs[-1].flatten(0, 1), memory, state._replace(step=number.flatten()), word)
        found = each(lambda value: value.unflatten(0, (rows, steps)), attended)
        made = state._replace(**found._asdict())
        last = each(lambda value: value[:, -1], found)
        return outputs, made, state._replace(**last._asdict(), hidden=hidden, step=number[:, -1] + 1)

    def forward(self, words: Words, memory: Memory, state: State) -> State:
        """Run one step.

        Args:
            words: this step's words, projected.
            memory: of the sentences.
            state: of the previous step.

        Returns:
            the next state; its ``context`` and ``weights`` are this step's.
        """
        before, after, attention = self.before, self.after, self.attention
        first, last = self.first, self.last
        previous = hidden = state.hidden  # N x state width
        word: Tensor | None = words.cell  # N x gates·n
        inputs = {"previous_context": state.context} if self.feeds_input else {}  # InputFeed (Feng et al. 2016 §6.1)
        terms: dict[str, Tensor] = {}
        if self.features is not None:
            described: Any = memory.tags
            found = self.features(last.output(previous), described, state)
            inputs["features"], terms["feature_attn"] = found.context, found.weights  # N x m, N x S

        if before is not None:
            hidden = before(hidden, word, **inputs)
            word, inputs = None, {}
        query = first.output(hidden) if state.query is None else state.query  # N x n
        attended = attention(query, memory, state, words.query)
        context, weights = attended.context, attended.weights  # N x a, N x S
        if after is not None:
            inputs["context"] = context
            if self.bridges:
                mask = memory.padding_mask
                chosen = most_attended(memory.embeddings, grouped(weights, mask), mask)  # x_{t*}, B x k x m
                inputs["attended"] = chosen.flatten(0, 1)  # Kuang et al. 2018 eq. 1
            hidden = after(hidden, word, **inputs)

        own: Any = state.query
        if self.query_cell is not None:
            own = self.query_cell(own, hidden=last.output(previous), context=context)  # q_i (Feng et al. 2016 §4.2)
        gate: Any = words.condition
        condition: Any = state.condition
        if self.condition is not None:
            condition = self.condition.decay(gate, previous, context, condition)  # sd_i
            hidden = hidden + self.condition(condition)
        carried = state.histories
        if carried:
            carried = attention.next(memory, state, query, weights, last.output(previous), last.output(hidden))
        return State(  # not _replace, because the compiler of torch 2.11 makes an empty state of it
            hidden=hidden,
            context=context,
            weights=weights,
            step=state.step + 1,
            query=own,
            condition=condition,
            upper_weights=attended.upper_weights,
            head_weights=attended.head_weights,
            above=state.above,
            histories=carried,
            readout=state.readout,
            terms={**attended.terms, **terms},
        )

"""The decoder: a transition in a time loop, and everything that does not need to be in it around it.

Shapes: ``B`` batch, ``T`` target length, ``S`` source length, ``m`` embedding width, ``n`` hidden width,
``a`` annotation width, ``k`` readout width.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from .context import ContextLinear, context_of, project, put_beside
from .layers import recurrent_layers
from .loop import Record, time_loop
from .readout import Readout
from .state import Encoded, Memory, State
from .transition import InitialState, Transition

PIECE = 32  # steps that are projected and read out at once: many enough to be quick, and not a whole text of characters
RECORDED = ("hidden", "context", "weights", "upper_weights", "condition")  # of a state, what is read after the loop


class Decoded(NamedTuple):
    """What a run over ``T`` steps leaves."""

    features: Tensor
    """what the vocabulary layer reads, ``B x T x k``."""
    weights: Tensor
    """attention ``w_tj``, ``B x T x S``, float32."""
    upper_weights: Optional[Tensor]
    """of the higher level, where there are two, ``B x T x W``, float32."""
    conditions: Optional[Tensor]
    """CondDec's ``sd_0 .. sd_T``, ``B x (T+1) x 2n``."""
    state: State
    """after the last step."""


class UpperLayers(nn.Module):
    """Layers above the transition.  They feed nothing back to it, so they run fused, over all steps at once."""

    def __init__(self, kind: str, hidden: int, layers: int, dropout: float):
        super().__init__()
        self.kind = kind
        self.layers = layers
        self.rnn = recurrent_layers(kind, hidden, hidden, layers, dropout)

    def forward(self, outputs: Tensor, state: Tensor) -> Tuple[Tensor, Tensor]:
        """``B x T x n`` and ``B x layers x state width`` to the same shapes."""
        parts = [part.contiguous() for part in state.transpose(0, 1).chunk(2 if self.kind == "lstm" else 1, dim=-1)]
        outputs, final = self.rnn(outputs, tuple(parts) if self.kind == "lstm" else parts[0])
        if isinstance(final, tuple):
            final = torch.cat(final, dim=-1)
        return outputs, final.transpose(0, 1)


class Decoder(nn.Module):
    """An attentional decoder composed of parts.

    Args:
        transition: the step.
        initial: makes ``h_0``, which every layer starts from.
        readout: makes the features.
        initial_query: makes ``q_0`` (RNNAtt), with weights of its own.
        upper: layers above the transition.
    """

    def __init__(
        self,
        transition: Transition,
        initial: InitialState,
        readout: Readout,
        initial_query: Optional[InitialState] = None,
        upper: Optional[UpperLayers] = None,
    ):
        super().__init__()
        self.transition = transition
        self.initial = initial
        self.readout = readout
        self.initial_query = initial_query
        self.upper = upper
        self.context_readers = [module for module in self.modules() if isinstance(module, ContextLinear)]
        put_beside(self.context_readers)

    def start(self, encoded: Encoded, shared: bool = False) -> Tuple[Memory, State]:
        """The memory of a sentence, which several hypotheses may share, and the state before the first step."""
        memory = self.transition.attention.memory(encoded)
        if shared:
            memory = project(memory, self.context_readers)
        if self.transition.after is not None and "attended" in self.transition.after.inputs:
            memory = memory._replace(embeddings=encoded.embeddings)
        hidden = self.initial(encoded)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        batch, length = encoded.padding_mask.shape
        width = memory.values.size(2)
        upper = encoded.upper_annotations
        state = State(
            hidden=hidden,
            context=hidden.new_zeros(batch, width if upper is None else width + upper.size(2)),
            weights=hidden.new_zeros(batch, length, dtype=exact),
            upper_weights=None if upper is None else hidden.new_zeros(batch, upper.size(1), dtype=exact),
            query=None if self.initial_query is None else self.initial_query(encoded),
            condition=None if self.transition.condition is None else encoded.final,
            upper=None if self.upper is None else hidden.unsqueeze(1).expand(-1, self.upper.layers, -1),
        )
        return memory, state

    def forward(self, target: Tensor, memory: Memory, state: State) -> Decoded:
        """Run over ``T`` known previous words.

        Args:
            target: embeddings ``y_0 .. y_{T-1}``, ``B x T x m``.
            memory, state: from :meth:`start`, or the state that an earlier run left.
        """
        pieces: List[Decoded] = []
        with time_loop():
            for several in target.split(PIECE, dim=1):
                pieces.append(self._several(several, memory, pieces[-1].state if pieces else state))
        features, weights, upper_weights, conditions, states = zip(*pieces)
        if state.condition is not None:
            conditions = (state.condition.unsqueeze(1), *conditions)
        return Decoded(_joined(features), _joined(weights), _joined(upper_weights), _joined(conditions), states[-1])

    def _several(self, target: Tensor, memory: Memory, state: State) -> Decoded:
        """As :meth:`forward`, at once; the conditions are without ``sd_0``."""
        record = Record(target.size(1), RECORDED)
        projected = self.transition.project(target)
        gates = None if projected.condition is None else projected.condition.unbind(1)
        for t, cell in enumerate(projected.cell.unbind(1)):
            state = record.add(self.transition(cell, gates and gates[t], memory, state))
        hidden = self.transition.last.output(record.read("hidden"))
        if self.upper is not None and state.upper is not None:
            hidden, above = self.upper(hidden, state.upper)
            state = state._replace(upper=above)
        features = self.readout(hidden, target, context_of(memory, record.read("context")))
        return Decoded(features, record.read("weights"), record.read("upper_weights"), record.read("condition"), state)


def _joined(pieces: Sequence[Optional[Tensor]]) -> Any:
    """Pieces of all steps after one another; None if there are none."""
    return pieces[0] if len(pieces) == 1 or pieces[0] is None else torch.cat(pieces, dim=1)  # type: ignore[arg-type]

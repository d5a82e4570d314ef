"""Recurrent cells that are stepped inside the decoder's time loop.

A cell reads several named inputs.  Each has a matrix of its own, so that an input known for the whole
sentence (the target embeddings) is projected once, before the loop, and only what depends on the previous
step is projected inside it.  A cell's state is one tensor ``B x state_dim``.

Shapes: ``B`` batch, ``n`` hidden width.
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .context import Context, ContextLinear
from .init import gates_, recurrent_
from .loop import LoopLinear, to_keep

CONTEXTS = ("context", "previous_context")  # inputs that are one
Gradients = Tuple[Tensor, Tensor, Tensor]  # of inputs, recurrent and previous


class GRUGates:
    """The elementwise half of a GRU's step and its derivative.

    Written out, because autograd would keep and add a dozen ``B x 3n`` temporaries for each step.  ``forward`` fills
    ``kept``, ``B x keeps·n``, with what ``backward`` needs beside the previous state.
    """

    keeps = 4  # reset and update gate, U h of the candidate, candidate

    @staticmethod
    def forward(inputs: Tensor, recurrent: Tensor, previous: Tensor, kept: Tensor) -> Tensor:
        n = previous.size(1)
        inputs, recurrent = inputs.to(previous.dtype), recurrent.to(previous.dtype)
        gates, projected, candidate = kept.split([2 * n, n, n], dim=1)
        torch.add(inputs[:, : 2 * n], recurrent[:, : 2 * n], out=gates).sigmoid_()
        reset, update = gates.chunk(2, dim=1)
        projected.copy_(recurrent[:, 2 * n :])
        torch.addcmul(inputs[:, 2 * n :], reset, projected, out=candidate).tanh_()
        return torch.lerp(candidate, previous, update)

    @staticmethod
    def backward(grad: Tensor, previous: Tensor, kept: Tensor) -> Gradients:
        n = previous.size(1)
        gates, projected, candidate = kept.split([2 * n, n, n], dim=1)
        reset, update = gates.chunk(2, dim=1)
        grad_previous = grad * update
        grad_inputs = grad.new_empty(grad.size(0), 3 * n)
        grad_reset, grad_update, grad_candidate = grad_inputs.split(n, dim=1)
        torch.mul(grad - grad_previous, 1 - candidate * candidate, out=grad_candidate)
        torch.mul(grad_candidate, projected, out=grad_reset)
        torch.mul(grad, previous - candidate, out=grad_update)
        grad_inputs[:, : 2 * n] *= gates * (1 - gates)
        grad_recurrent = grad_inputs.clone()
        grad_recurrent[:, 2 * n :] *= reset
        return grad_inputs, grad_recurrent, grad_previous


class AdaptiveGates:
    """The elementwise half of an adaptively weighted GRU's step and its derivative, as :class:`GRUGates`.

    The sums inside the sigmoids and the tanh, ``(1-g) ∘ input + g ∘ recurrent``, are ``input + g ∘ pull``.
    """

    keeps = 8  # g, reset and update gate, the three pulls, U h of the candidate, candidate

    @staticmethod
    def forward(inputs: Tensor, recurrent: Tensor, previous: Tensor, kept: Tensor) -> Tensor:
        n = previous.size(1)
        inputs, recurrent = inputs.to(previous.dtype), recurrent.to(previous.dtype)
        share, gates, pulls, projected, candidate = kept.split([n, 2 * n, 3 * n, n, n], dim=1)
        torch.add(inputs[:, 3 * n :], recurrent[:, 3 * n :], out=share).sigmoid_()
        torch.sub(recurrent[:, : 2 * n], inputs[:, : 2 * n], out=pulls[:, : 2 * n])
        torch.addcmul(inputs[:, : 2 * n], share.repeat(1, 2), pulls[:, : 2 * n], out=gates).sigmoid_()
        reset, update = gates.chunk(2, dim=1)
        projected.copy_(recurrent[:, 2 * n : 3 * n])
        torch.mul(reset, projected, out=pulls[:, 2 * n :]).sub_(inputs[:, 2 * n : 3 * n])
        torch.addcmul(inputs[:, 2 * n : 3 * n], share, pulls[:, 2 * n :], out=candidate).tanh_()
        return torch.lerp(candidate, share * previous, update)

    @staticmethod
    def backward(grad: Tensor, previous: Tensor, kept: Tensor) -> Gradients:
        n = previous.size(1)
        share, gates, pulls, projected, candidate = kept.split([n, 2 * n, 3 * n, n, n], dim=1)
        reset, update = gates.chunk(2, dim=1)
        grad_kept = grad * update
        sums = grad.new_empty(grad.size(0), 3 * n)
        sum_reset, sum_update, sum_candidate = sums.split(n, dim=1)
        torch.mul(grad - grad_kept, 1 - candidate * candidate, out=sum_candidate)
        torch.mul(sum_candidate * share, projected, out=sum_reset)
        torch.mul(grad, share * previous - candidate, out=sum_update)
        sums[:, : 2 * n] *= gates * (1 - gates)
        grad_share = (sums * pulls).view(-1, 3, n).sum(1).addcmul_(grad_kept, previous).mul_(share * (1 - share))
        grad_recurrent = torch.cat([sums * share.repeat(1, 3), grad_share], dim=1)
        grad_inputs = torch.cat([sums - grad_recurrent[:, : 3 * n], grad_share], dim=1)
        grad_recurrent[:, 2 * n : 3 * n] *= reset
        return grad_inputs, grad_recurrent, grad_kept * share


class LSTMGates:
    """The elementwise half of an LSTM's step and its derivative, as :class:`GRUGates`.

    The state is ``[h; c]``, ``B x 2n``.
    """

    keeps = 5  # input and forget gate, candidate, output gate, tanh of the cell

    @staticmethod
    def forward(inputs: Tensor, recurrent: Tensor, previous: Tensor, kept: Tensor) -> Tensor:
        n = previous.size(1) // 2
        gates, squashed = kept.split([4 * n, n], dim=1)
        torch.add(inputs.to(gates.dtype), recurrent.to(gates.dtype), out=gates)
        write, forget, candidate, read = gates.chunk(4, dim=1)
        gates[:, : 2 * n].sigmoid_()
        candidate.tanh_()
        read.sigmoid_()
        cell = torch.addcmul(forget * previous[:, n:], write, candidate)
        torch.tanh(cell, out=squashed)
        return torch.cat([read * squashed, cell], dim=1)

    @staticmethod
    def backward(grad: Tensor, previous: Tensor, kept: Tensor) -> Gradients:
        n = previous.size(1) // 2
        gates, squashed = kept.split([4 * n, n], dim=1)
        write, forget, candidate, read = gates.chunk(4, dim=1)
        grad_hidden, grad_cell = grad.chunk(2, dim=1)
        grad_cell = torch.addcmul(grad_cell, grad_hidden * read, 1 - squashed * squashed)
        grad_sums = torch.cat(
            [grad_cell * candidate, grad_cell * previous[:, n:], grad_cell * write, grad_hidden * squashed], dim=1
        )
        slopes = gates * (1 - gates)
        slopes[:, 2 * n : 3 * n] = 1 - candidate * candidate
        grad_sums *= slopes
        return grad_sums, grad_sums, torch.cat([torch.zeros_like(grad_cell), grad_cell * forget], dim=1)


class Step(Function):
    """One step's gates, differentiable: ``Step.apply(arithmetic, inputs, recurrent, previous, kept)``."""

    @staticmethod
    def forward(ctx, arithmetic, inputs: Tensor, recurrent: Tensor, previous: Tensor, kept: Tensor) -> Tensor:
        ctx.arithmetic = arithmetic
        ctx.save_for_backward(previous, kept)
        return arithmetic.forward(inputs, recurrent, previous, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        return None, *ctx.arithmetic.backward(grad, *ctx.saved_tensors), None


class Cell(nn.Module):
    """What the cells share: one matrix an input, one recurrent matrix, one bias.

    Args:
        inputs: width of each named input; the first one's matrix carries the bias.
        hidden: hidden width ``n``.
    """

    gates: int
    arithmetic: Any

    def __init__(self, inputs: Dict[str, int], hidden: int):
        super().__init__()
        self.hidden = hidden
        self.inputs = nn.ModuleDict(
            {
                name: (ContextLinear if name in CONTEXTS else LoopLinear)(width, self.gates * hidden, bias=i == 0)
                for i, (name, width) in enumerate(inputs.items())
            }
        )
        self.recurrent = LoopLinear(hidden, self.gates * hidden, bias=False)
        self.reset_parameters()

    @property
    def state_dim(self) -> int:
        """Width of the state tensor."""
        return self.hidden

    def reset_parameters(self) -> None:
        """Initial values, see :mod:`.init`."""
        for linear in self._input_layers():
            gates_(linear.weight, self.hidden)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        recurrent_(self.recurrent.weight)

    def _input_layers(self) -> Iterator[nn.Linear]:
        return (layer for layer in self.inputs.values() if isinstance(layer, nn.Linear))

    def project(self, name: str, value: Tensor) -> Tensor:
        """``W x`` (and the bias, for the first input) of one input, ``... x width`` to ``... x gates·n``."""
        return self.inputs[name](value)

    def add(self, projected: Optional[Tensor], name: str, value: Optional[Context]) -> Optional[Tensor]:
        """``projected`` plus the projection of one more input; inputs that this cell does not read add nothing.

        Both ``B x gates·n``; ``projected`` is None before the first input.
        """
        if value is None or name not in self.inputs:
            return projected
        return self.inputs[name](value, projected)

    def output(self, state: Tensor) -> Tensor:
        """The hidden state ``... x n`` that other parts read, of a state ``... x state_dim``."""
        return state

    def forward(self, projected: Tensor, state: Tensor) -> Tensor:
        """One step.

        Args:
            projected: sum of the projected inputs, ``B x gates·n``.
            state: previous state, ``B x state_dim``.

        Returns:
            the next state, ``B x state_dim``.
        """
        kept = to_keep((state.size(0), self.arithmetic.keeps * self.hidden), state)
        return Step.apply(self.arithmetic, projected, self.recurrent(self.output(state)), state, kept)


class GRUCell(Cell):
    """Gated recurrent unit (001 §3.1, 002 eq. 9-12; the reset gate follows the recurrent product).

    ``r = σ(W_r x + U_r h)``, ``z = σ(W_z x + U_z h)``, ``h~ = tanh(W x + r ∘ (U h))``,
    ``h' = z ∘ h + (1 - z) ∘ h~``.
    """

    gates = 3
    arithmetic: Any = GRUGates


class AdaptiveGRUCell(GRUCell):
    """A GRU that weighs its input against its history (002 eq. 13-17).

    ``g = σ(W_g x + U_g h + b)``; ``r``, ``z`` and ``h~`` read ``(1-g) ∘ (W x + b)`` and ``g ∘ (U h)``;
    ``h' = g ∘ z ∘ h + (1 - z) ∘ h~``.
    """

    gates = 4
    arithmetic = AdaptiveGates


class LSTMCell(Cell):
    """Long short-term memory; the state is ``[h; c]``, ``B x 2n``, and the forget gate's bias starts at 1."""

    gates = 4
    arithmetic = LSTMGates

    @property
    def state_dim(self) -> int:
        return 2 * self.hidden

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for linear in self._input_layers():
            if linear.bias is not None:
                nn.init.ones_(linear.bias[self.hidden : 2 * self.hidden])

    def output(self, state: Tensor) -> Tensor:
        return state[..., : self.hidden]


class StackedCell(nn.Module):
    """Cells one above the other as a single cell: each reads the output of the one below.

    Its state is all their states, ``B x (layers · state width)``; its inputs are the lowest cell's, its output is the
    highest one's.

    Args:
        cells: from the lowest to the highest; all but the lowest have one input, ``below``.
        dropout: between the cells.
    """

    def __init__(self, cells: Sequence[Cell], dropout: float = 0.0):
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.dropout = nn.Dropout(dropout)

    @property
    def state_dim(self) -> int:
        """Width of the state tensor."""
        return sum(cell.state_dim for cell in self.cells)  # type: ignore[misc]

    @property
    def inputs(self) -> nn.ModuleDict:
        """The lowest cell's."""
        return self.cells[0].inputs  # type: ignore[return-value]

    def project(self, name: str, value: Tensor) -> Tensor:
        """As the lowest cell's."""
        return self.cells[0].project(name, value)  # type: ignore[operator]

    def add(self, projected: Optional[Tensor], name: str, value: Optional[Context]) -> Optional[Tensor]:
        """As the lowest cell's."""
        return self.cells[0].add(projected, name, value)  # type: ignore[operator]

    def output(self, state: Tensor) -> Tensor:
        """The highest cell's."""
        *_, (cell, own) = self._parts(state)
        return cell.output(own)

    def forward(self, projected: Tensor, state: Tensor) -> Tensor:
        """One step of every cell."""
        states: List[Tensor] = []
        below = None
        for cell, own in self._parts(state):
            if below is not None:
                projected = cell.project("below", self.dropout(below))
            states.append(cell(projected, own))
            below = cell.output(states[-1])
        return torch.cat(states, dim=1)

    def _parts(self, state: Tensor) -> Iterator[Tuple[Any, Tensor]]:
        return zip(self.cells, state.chunk(len(self.cells), dim=-1))


CELLS = {"gru": GRUCell, "adaptive_gru": AdaptiveGRUCell, "lstm": LSTMCell}

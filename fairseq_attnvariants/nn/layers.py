"""Recurrent layers over whole sequences.

PyTorch's fused layers serve on CUDA.  A sweep of our own serves the cell that PyTorch does not have, and every cell
on a CPU, where the backward pass of PyTorch's layers takes time in the square of the length.

Shapes: ``N`` all real tokens of a batch, ``B`` batch, ``n`` hidden width, ``k`` gates of the cell.
"""

from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import AdaptiveGRUCell, GRUGates, LSTMGates
from .init import gates_, recurrent_
from .packed import prepared


class Sweep(Function):
    """A cell over packed sequences, in one direction.

    ``Sweep.apply(arithmetic, batch_sizes, reverse, projected, weight, bias, initial, training)`` with ``projected`` ``N
    x k·n``, ``weight`` ``k·n x n``, ``bias`` ``k·n`` or None, and ``initial`` ``B x state width`` returns the outputs
    ``N x n`` and the final states ``B x state width``; there is no gradient unless ``training``.

    Only the recurrent product and the gates are in the loop; the gradient of the weights is one product after it.  A
    sequence that has ended (or, in reverse, not begun) is no row of a step, so padding cannot touch a state.
    """

    @staticmethod
    def forward(
        ctx,
        arithmetic,
        batch_sizes: Sequence[int],
        reverse: bool,
        projected: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        initial: Tensor,
        training: bool = True,
    ) -> Tuple[Tensor, Tensor]:
        steps = list(zip(accumulate(batch_sizes, initial=0), batch_sizes))
        if reverse:
            steps.reverse()
        dtype = projected.dtype
        matrix = weight.to(dtype)
        product = prepared(matrix, batch_sizes[0])
        offset = None if bias is None else bias.to(dtype)
        n = weight.size(1)  # of a state, the first n are its output
        outputs = initial.new_empty(len(projected), n)
        kept = initial.new_empty(len(projected), arithmetic.keeps * n)
        state, befores = initial, []
        for begin, rows in steps:
            here, previous = slice(begin, begin + rows), state[:rows]
            recurrent = product(previous[:, :n].to(dtype), offset)
            following = arithmetic.forward(projected[here], recurrent, previous, kept[here])
            outputs[here] = following[:, :n]
            state = following if rows == len(state) else torch.cat([following, state[rows:]])
            if training:
                befores.append(previous)
        ctx.arithmetic, ctx.steps, ctx.biased, ctx.dtype = arithmetic, steps, bias is not None, dtype
        ctx.save_for_backward(weight, kept, *befores)
        return outputs, state

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs: Tensor, grad_final: Tensor):
        weight, kept, *states = ctx.saved_tensors
        matrix, n = weight.to(ctx.dtype), weight.size(1)
        grad_projected = grad_outputs.new_empty(len(grad_outputs), len(weight), dtype=ctx.dtype)
        grad_recurrent = torch.empty_like(grad_projected)
        befores = torch.empty_like(grad_outputs)  # the outputs before the steps
        grad_state = grad_final.clone()
        product = prepared(matrix.t(), len(grad_state))
        for i in reversed(range(len(ctx.steps))):
            begin, rows = ctx.steps[i]
            here, grad = slice(begin, begin + rows), grad_state[:rows]
            grad[:, :n] += grad_outputs[here]
            gradients = ctx.arithmetic.backward(grad, states[i], kept[here])
            grad_projected[here], grad_recurrent[here], grad_state[:rows] = gradients
            grad_state[:rows, :n] += product(grad_recurrent[here])
            befores[here] = states[i][:, :n]
        grad_weight = (grad_recurrent.t() @ befores.to(ctx.dtype)).to(weight.dtype)
        grad_bias = grad_recurrent.sum(0).to(weight.dtype) if ctx.biased else None
        return None, None, None, grad_projected, grad_weight, grad_bias, grad_state, None


class Direction(NamedTuple):
    """One direction of a layer."""

    arithmetic: Any
    input: Tensor
    """``k·n x input width``"""
    input_bias: Tensor
    recurrent: Tensor
    """``k·n x n``"""
    recurrent_bias: Optional[Tensor] = None


def sweep_layers(
    layers: Sequence[Sequence[Direction]], inputs: Any, initial: Tensor, dropout: float
) -> Tuple[Any, Tensor]:
    """Run layers of one or two directions, with the interface of PyTorch's (batch first).

    Args:
        layers: the forward direction of each layer and, where there is one, the backward direction.
        inputs: a packed sequence, or ``B x T x input width`` without padding.
        initial: ``layers·directions x B x state width``, ``B`` in the packed order.
        dropout: between layers.

    Returns:
        what came in, with the outputs of the top layer, and every last state, shaped as ``initial``.
    """
    packed = isinstance(inputs, PackedSequence)
    if packed:
        data, sizes = inputs.data, inputs.batch_sizes.tolist()
    else:
        data, sizes = inputs.transpose(0, 1).flatten(0, 1), [inputs.size(0)] * inputs.size(1)
    finals: List[Tensor] = []
    for depth, directions in enumerate(layers):
        data = F.dropout(data, dropout) if depth and dropout else data
        outputs = []
        for reverse, direction in enumerate(directions):
            projected = F.linear(data, direction.input, direction.input_bias)
            start = initial[len(finals)]
            recurrent = direction.recurrent, direction.recurrent_bias
            states, final = Sweep.apply(
                direction.arithmetic, sizes, reverse == 1, projected, *recurrent, start, torch.is_grad_enabled()
            )
            outputs.append(states)
            finals.append(final)
        data = torch.cat(outputs, dim=1)
    final = torch.stack(finals)
    if not packed:
        return data.view(inputs.size(1), inputs.size(0), -1).transpose(0, 1), final
    if inputs.unsorted_indices is not None:
        final = final.index_select(1, inputs.unsorted_indices)
    return inputs._replace(data=data), final


def directions(rnn: nn.RNNBase, arithmetic: Any) -> List[List[Direction]]:
    """The parameters of PyTorch's layers."""
    suffixes = ("", "_reverse") if rnn.bidirectional else ("",)
    kinds = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    return [
        [Direction(arithmetic, *(getattr(rnn, f"{kind}_l{layer}{suffix}") for kind in kinds)) for suffix in suffixes]
        for layer in range(rnn.num_layers)
    ]


def zeros(layers: int, inputs: Any, width: int) -> Tensor:
    """The states before the first step, ``layers x B x width``."""
    if isinstance(inputs, PackedSequence):
        return inputs.data.new_zeros(layers, int(inputs.batch_sizes[0]), width)
    return inputs.new_zeros(layers, inputs.size(0), width)


@contextmanager
def exactly(rnn: nn.RNNBase, inputs: Any, initial: Any) -> Iterator[Tuple[Any, Any]]:
    """Without autocast, which would run cuDNN's layers in float16 whatever the type asked for; yields the arguments."""
    dtype = rnn.weight_ih_l0.dtype
    packed = isinstance(inputs, PackedSequence)
    inputs = inputs._replace(data=inputs.data.to(dtype)) if packed else inputs.to(dtype)
    if initial is not None:
        initial = tuple(part.to(dtype) for part in initial) if isinstance(initial, tuple) else initial.to(dtype)
    with torch.autocast("cuda", enabled=False):
        yield inputs, initial


class GRU(nn.GRU):
    """PyTorch's GRU layers: fused on CUDA, swept on a CPU."""

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        if self.weight_ih_l0.is_cuda:
            with exactly(self, inputs, initial) as fused:
                return super().forward(*fused)
        layers = directions(self, GRUGates)
        if initial is None:
            initial = zeros(self.num_layers * len(layers[0]), inputs, self.hidden_size)
        return sweep_layers(layers, inputs, initial, self.dropout if self.training else 0.0)


class LSTM(nn.LSTM):
    """PyTorch's LSTM layers: fused on CUDA, swept on a CPU."""

    def forward(self, inputs: Any, initial: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Any, Any]:
        if self.weight_ih_l0.is_cuda:
            with exactly(self, inputs, initial) as fused:
                return super().forward(*fused)
        layers = directions(self, LSTMGates)
        if initial is None:
            state = zeros(self.num_layers * len(layers[0]), inputs, 2 * self.hidden_size)
        else:
            state = torch.cat(initial, dim=-1)
        outputs, final = sweep_layers(layers, inputs, state, self.dropout if self.training else 0.0)
        return outputs, tuple(final.chunk(2, dim=-1))


class AdaptiveGRU(nn.Module):
    """Layers of :class:`~.cells.AdaptiveGRUCell` (002 eq. 13-17) with the interface of ``nn.GRU``.

    Args:
        input_dim: width of the input.
        hidden: width ``n`` of each direction.
        layers: number of layers; each reads all directions of the one below.
        dropout: between layers.
        bidirectional: whether there is a backward direction.
    """

    def __init__(self, input_dim: int, hidden: int, layers: int = 1, dropout: float = 0.0, bidirectional: bool = False):
        super().__init__()
        self.hidden = hidden
        self.dropout = dropout
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(
            nn.ModuleList(
                AdaptiveGRUCell({"input": directions * hidden if layer else input_dim}, hidden)
                for _ in range(directions)
            )
            for layer in range(layers)
        )

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        layers = [[self.direction(cell) for cell in cells] for cells in self.cells]  # type: ignore[attr-defined]
        if initial is None:
            initial = zeros(len(layers) * len(layers[0]), inputs, self.hidden)
        return sweep_layers(layers, inputs, initial, self.dropout if self.training else 0.0)

    def shares(self, inputs: Tensor) -> Tensor:
        """``g_t`` (002 eq. 13) of the forward and the backward direction of each layer, from the lowest.

        Args:
            inputs: ``B x T x input width``, without padding.

        Returns:
            ``layers·directions x B x T x n``.
        """
        found = []
        for cells in self.cells:
            layer = [self.direction(cell) for cell in cells]  # type: ignore[attr-defined]
            outputs, _ = sweep_layers([layer], inputs, zeros(len(layer), inputs, self.hidden), 0.0)
            for reverse, states in enumerate(outputs.chunk(len(layer), dim=-1)):
                # zero before the first step, which in reverse is the last column
                before = F.pad(states[:, 1:], (0, 0, 0, 1)) if reverse else F.pad(states[:, :-1], (0, 0, 1, 0))
                cell: Any = cells[reverse]  # type: ignore[index]
                sums = cell.project("input", inputs) + cell.recurrent(before)
                found.append(torch.sigmoid(sums[..., 3 * self.hidden :]))
            inputs = outputs
        return torch.stack(found)

    @staticmethod
    def direction(cell: Any) -> Direction:
        """The parameters of one cell."""
        layer = cell.inputs["input"]
        return Direction(cell.arithmetic, layer.weight, layer.bias, cell.recurrent.weight)


FUSED = {"gru": GRU, "lstm": LSTM}


def recurrent_layers(
    kind: str, input_dim: int, hidden: int, layers: int, dropout: float = 0.0, bidirectional: bool = False
) -> nn.Module:
    """Batch-first recurrent layers with this package's initial values (see :mod:`.init`)."""
    between = dropout if layers > 1 else 0.0
    if kind == "adaptive_gru":
        return AdaptiveGRU(input_dim, hidden, layers, between, bidirectional)
    rnn = FUSED[kind](input_dim, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional)
    for name, parameter in rnn.named_parameters():
        if name.startswith("weight_hh"):
            recurrent_(parameter)
        elif name.startswith("weight_ih"):
            gates_(parameter, hidden)
        else:
            nn.init.zeros_(parameter)
            if kind == "lstm" and name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[hidden : 2 * hidden])  # the forget gate's
    return rnn

"""Recurrent layers over whole sequences.

PyTorch's fused layers serve where they are fast; a sweep of our own serves the cell that PyTorch does not have, and
the GRU on a CPU, where the fused layers' backward pass takes time in the square of the length.

Shapes: ``N`` all real tokens of a batch, ``B`` batch, ``n`` hidden width, ``k`` gates of the cell.
"""

from itertools import accumulate
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import AdaptiveGates, AdaptiveGRUCell, GRUGates
from .init import normal_tensor_, orthogonal_blocks_


class Sweep(Function):
    """A GRU-like cell over packed sequences, in one direction.

    ``Sweep.apply(arithmetic, batch_sizes, reverse, projected, weight, bias, initial)`` with ``projected`` ``N x k·n``,
    ``weight`` ``k·n x n``, ``bias`` ``k·n`` or None, and ``initial`` ``B x n`` returns the states ``N x n`` and the
    final ones ``B x n``.

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
    ) -> Tuple[Tensor, Tensor]:
        steps = list(zip(accumulate(batch_sizes, initial=0), batch_sizes))
        if reverse:
            steps.reverse()
        dtype = projected.dtype
        matrix = weight.to(dtype)
        offset = None if bias is None else bias.to(dtype)
        outputs = initial.new_empty(projected.size(0), initial.size(1))
        state, saved = initial, []
        for begin, rows in steps:
            here, previous = slice(begin, begin + rows), state[:rows]
            recurrent = F.linear(previous.to(dtype), matrix, offset)
            following, kept = arithmetic.forward(projected[here], recurrent, previous)
            outputs[here] = following
            state = following if rows == len(state) else torch.cat([following, state[rows:]])
            saved.append(kept)
        ctx.arithmetic, ctx.steps, ctx.biased, ctx.dtype = arithmetic, steps, bias is not None, dtype
        ctx.save_for_backward(weight, *(tensor for kept in saved for tensor in kept))
        return outputs, state

    @staticmethod
    def backward(ctx, grad_outputs: Tensor, grad_final: Tensor):
        weight, *saved = ctx.saved_tensors
        count = len(saved) // len(ctx.steps)
        matrix = weight.to(ctx.dtype)
        grad_projected = grad_outputs.new_empty(len(grad_outputs), len(weight), dtype=ctx.dtype)
        grad_recurrent = torch.empty_like(grad_projected)
        befores = torch.empty_like(grad_outputs)  # the states before the steps
        grad_state = grad_final.clone()
        for i in reversed(range(len(ctx.steps))):
            begin, rows = ctx.steps[i]
            here, kept = slice(begin, begin + rows), saved[count * i : count * (i + 1)]
            grad = grad_outputs[here] + grad_state[:rows]
            grad_projected[here], grad_recurrent[here], grad_state[:rows] = ctx.arithmetic.backward(grad, *kept)
            grad_state[:rows] += grad_recurrent[here] @ matrix
            befores[here] = kept[-1]  # every arithmetic keeps the previous state last
        grad_weight = (grad_recurrent.t() @ befores.to(ctx.dtype)).to(weight.dtype)
        grad_bias = grad_recurrent.sum(0).to(weight.dtype) if ctx.biased else None
        return None, None, None, grad_projected, grad_weight, grad_bias, grad_state


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
    layers: Sequence[Sequence[Direction]], inputs: Any, initial: Optional[Tensor], dropout: float
) -> Tuple[Any, Tensor]:
    """Run layers of one or two directions, with the interface of PyTorch's (batch first).

    Args:
        layers: the forward direction of each layer and, where there is one, the backward direction.
        inputs: a packed sequence, or ``B x T x input width`` without padding.
        initial: ``layers·directions x B x n``, ``B`` in the packed order; None for zeros.
        dropout: between layers.

    Returns:
        what came in, with the states of the top layer, and every last state, ``layers·directions x B x n``.
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
            hidden = direction.recurrent.size(1)
            start = data.new_zeros(sizes[0], hidden) if initial is None else initial[len(finals)]
            states, final = Sweep.apply(
                direction.arithmetic,
                sizes,
                reverse == 1,
                projected,
                direction.recurrent,
                direction.recurrent_bias,
                start,
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


class GRU(nn.GRU):
    """PyTorch's GRU layers: fused on CUDA, swept on a CPU."""

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        if self.weight_ih_l0.is_cuda:
            return super().forward(inputs, initial)
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        kinds = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        layers = [
            [Direction(GRUGates, *(getattr(self, f"{kind}_l{layer}{suffix}") for kind in kinds)) for suffix in suffixes]
            for layer in range(self.num_layers)
        ]
        return sweep_layers(layers, inputs, initial, self.dropout if self.training else 0.0)


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
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(
            nn.ModuleList(
                AdaptiveGRUCell({"input": directions * hidden if layer else input_dim}, hidden)
                for _ in range(directions)
            )
            for layer in range(layers)
        )
        self.dropout = dropout

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        layers = [[self.direction(cell) for cell in cells] for cells in self.cells]  # type: ignore[attr-defined]
        return sweep_layers(layers, inputs, initial, self.dropout if self.training else 0.0)

    @staticmethod
    def direction(cell: Any) -> Direction:
        """The parameters of one cell."""
        layer = cell.inputs["input"]
        return Direction(AdaptiveGates, layer.weight, layer.bias, cell.recurrent.weight)


FUSED = {"gru": GRU, "lstm": nn.LSTM}


def recurrent_layers(
    kind: str, input_dim: int, hidden: int, layers: int, dropout: float = 0.0, bidirectional: bool = False
) -> nn.Module:
    """Batch-first recurrent layers with this package's initial values.

    Recurrent blocks are orthogonal, input matrices N(0, 0.01²), biases 0 (1 for an LSTM's forget gate).
    """
    between = dropout if layers > 1 else 0.0
    if kind == "adaptive_gru":
        return AdaptiveGRU(input_dim, hidden, layers, between, bidirectional)
    rnn = FUSED[kind](input_dim, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional)
    for name, parameter in rnn.named_parameters():
        if name.startswith("weight_hh"):
            orthogonal_blocks_(parameter)
        elif name.startswith("weight_ih"):
            normal_tensor_(parameter)
        else:
            nn.init.zeros_(parameter)
            if kind == "lstm" and name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[hidden : 2 * hidden])
    return rnn

"""Recurrent layers over whole sequences: PyTorch's fused ones, and ours for a cell that it does not have.

Shapes: ``N`` all real tokens of a batch, ``B`` batch, ``n`` hidden width, ``k`` gates of the cell.
"""

from itertools import accumulate
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.utils.rnn import PackedSequence

from .cells import AdaptiveGRUCell
from .init import normal_tensor_, orthogonal_blocks_


class Sweep(Function):
    """A GRU-like cell over packed sequences, in one direction.

    ``Sweep.apply(arithmetic, batch_sizes, reverse, projected, weight, initial)`` with ``projected`` ``N x k·n``,
    ``weight`` ``k·n x n`` and ``initial`` ``B x n`` returns the states ``N x n`` and the final ones ``B x n``.

    Only the recurrent product and the gates are in the loop; the gradient of the weights is one product after it.  A
    sequence that has ended (or, in reverse, not begun) is no row of a step, so padding cannot touch a state.
    """

    @staticmethod
    def forward(
        ctx, arithmetic, batch_sizes: List[int], reverse: bool, projected: Tensor, weight: Tensor, initial: Tensor
    ) -> Tuple[Tensor, Tensor]:
        steps = list(zip(accumulate(batch_sizes, initial=0), batch_sizes))
        if reverse:
            steps.reverse()
        transposed = weight.to(projected.dtype).t()
        outputs = initial.new_empty(projected.size(0), initial.size(1))
        state, saved = initial, []
        for begin, rows in steps:
            here = slice(begin, begin + rows)
            previous = state[:rows]
            following, kept = arithmetic.forward(projected[here], previous.to(projected.dtype) @ transposed, previous)
            outputs[here] = following
            state = following if rows == len(state) else torch.cat([following, state[rows:]])
            saved.append(kept)
        ctx.arithmetic, ctx.steps = arithmetic, steps
        ctx.save_for_backward(projected, weight, *(tensor for kept in saved for tensor in kept))
        return outputs, state

    @staticmethod
    def backward(ctx, grad_outputs: Tensor, grad_final: Tensor):
        projected, weight, *saved = ctx.saved_tensors
        count = len(saved) // len(ctx.steps)
        matrix = weight.to(projected.dtype)
        grad_projected, grad_recurrent = torch.empty_like(projected), torch.empty_like(projected)
        befores = torch.empty_like(grad_outputs)  # the states before the steps
        grad_state = grad_final.clone()
        for i in reversed(range(len(ctx.steps))):
            begin, rows = ctx.steps[i]
            here = slice(begin, begin + rows)
            kept = saved[count * i : count * (i + 1)]
            grad = grad_outputs[here] + grad_state[:rows]
            grad_projected[here], grad_recurrent[here], grad_state[:rows] = ctx.arithmetic.backward(grad, *kept)
            grad_state[:rows] += grad_recurrent[here] @ matrix
            befores[here] = kept[-1]  # both kinds of gates keep it last
        grad_weight = grad_recurrent.t() @ befores.to(projected.dtype)
        return None, None, None, grad_projected, grad_weight.to(weight.dtype), grad_state


class AdaptiveGRU(nn.Module):
    """Layers of :class:`~.cells.AdaptiveGRUCell` with the interface of ``nn.GRU`` (batch first).

    Args:
        input_dim: width of the input.
        hidden: width ``n`` of each direction.
        layers: number of layers; each reads all directions of the one below.
        dropout: between layers.
        bidirectional: whether there is a backward direction.
    """

    cell: Any = AdaptiveGRUCell

    def __init__(self, input_dim: int, hidden: int, layers: int = 1, dropout: float = 0.0, bidirectional: bool = False):
        super().__init__()
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(
            nn.ModuleList(
                self.cell({"input": directions * hidden if layer else input_dim}, hidden) for _ in range(directions)
            )
            for layer in range(layers)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        """States of the top layer and the last states of every layer and direction.

        Args:
            inputs: a packed sequence, or ``B x T x input_dim`` without padding.
            initial: ``layers·directions x B x n``, of ``B`` in the packed order; None for zeros.

        Returns:
            what came in, with width ``directions·n``, and ``layers·directions x B x n``.
        """
        packed = isinstance(inputs, PackedSequence)
        if packed:
            data, sizes = inputs.data, inputs.batch_sizes.tolist()
        else:
            data, sizes = inputs.transpose(0, 1).flatten(0, 1), [inputs.size(0)] * inputs.size(1)
        finals: List[Tensor] = []
        for depth, cells in enumerate(self.cells):
            data = self.dropout(data) if depth else data
            outputs = []
            for reverse, cell in enumerate(cells):  # type: ignore[arg-type, var-annotated]
                start = data.new_zeros(sizes[0], cell.hidden) if initial is None else initial[len(finals)]
                projected = cell.project("input", data)
                states, final = Sweep.apply(
                    cell.arithmetic, sizes, bool(reverse), projected, cell.recurrent.weight, start
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


FUSED = {"gru": nn.GRU, "lstm": nn.LSTM}


def recurrent_layers(
    kind: str, input_dim: int, hidden: int, layers: int, dropout: float = 0.0, bidirectional: bool = False
) -> nn.Module:
    """Batch-first recurrent layers with this package's initial values, fused where PyTorch can.

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

"""Recurrent layers over whole sequences.

PyTorch's fused layers serve on CUDA.  On a CPU, where the backward pass of those takes time in the square of the
length, and for cells that PyTorch does not have, the equations of :mod:`.cells` are swept over the sequence.

Shapes as in :mod:`.state`; ``d`` is the number of directions of all layers.
"""

from functools import cached_property
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import Cell, GRUCell, LSTMCell, MakeCell, deepened, with_residual
from .fast.deferred import deferred
from .init import Scheme
from .twins import linear_of, twin


def sweep(cell: Any, projected: Tensor, sizes: Sequence[int], state: Tensor, reverse: bool) -> Tuple[Tensor, Tensor]:
    """One direction of a layer over packed sequences.

    A sequence that has ended (or, in reverse, not begun) is no row of a step, so padding cannot touch a state.

    Args:
        cell: what steps.
        projected: its inputs at all steps after one another, ``sum(sizes) x gates·n``.
        sizes: how many sequences have each step; they are sorted by length.
        state: before the first step, ``B x state width``.
        reverse: from the last step to the first.

    Returns:
        the outputs ``sum(sizes) x n`` and the last states ``B x state width``.
    """
    steps = projected.split(sizes)
    outputs: List[Tensor] = []
    for inputs in reversed(steps) if reverse else steps:
        running, resting = state.split([inputs.size(0), state.size(0) - inputs.size(0)])
        running = cell(running, inputs)
        outputs.append(cell.output(running))
        state = torch.cat([running, resting]) if resting.size(0) else running
    return torch.cat(outputs[::-1] if reverse else outputs), state


class Layer(nn.Module):
    """A layer of one kind of cell, with a forward direction and perhaps a backward one."""

    cells: Any
    """that of the forward direction and, where there is one, that of the backward direction"""

    def forward(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> Tuple[Tensor, Tensor]:
        """Run over sequences.

        Args:
            data: the inputs of all steps after one another, ``sum(sizes) x input width``.
            sizes: as :func:`sweep`'s.
            initial: the states before the first step, ``d x B x state width``.

        Returns:
            the outputs ``sum(sizes) x d·n``, and the last states, ``d x B x state width``.
        """
        swept = [
            sweep(deferred(cell), cell.project("input", data), sizes, start, reverse == 1)
            for reverse, (cell, start) in enumerate(zip(self.cells, initial))
        ]
        outputs, finals = zip(*swept)
        return torch.cat(outputs, dim=1), torch.stack(finals)


class SteppedLayer(Layer):
    """A layer of any cells, swept over on any device."""

    def __init__(self, cells: Iterable[Any]):
        super().__init__()
        self.cells = nn.ModuleList(cells)


class FusedLayer(Layer, nn.RNNBase):
    """A layer with PyTorch's parameters, and its kernels on CUDA."""

    kind: Type[Cell]
    """of the cells whose equations they are"""
    kernels: Any
    """PyTorch's class"""
    swept = False
    """whether it is swept over on CUDA as well"""

    def initialise(self, scheme: Scheme) -> None:
        """As :meth:`~.cells.Cell.initialise`."""
        for cell in self.cells:
            cell.initialise(scheme)

    @cached_property
    def templates(self) -> List[Any]:
        """A cell for each direction, without values; no submodules, as the parameters are the layer's."""
        with torch.device("meta"):
            return [self.kind({"input": self.input_size}, self.hidden_size) for _ in range(1 + self.bidirectional)]

    @property
    def cells(self) -> List[Any]:
        """Cells of the layer's weights as they are now: parameters, or what PyTorch's tools have made of them."""
        return [self._filled(cell, *weights) for cell, weights in zip(self.templates, self.all_weights)]

    @staticmethod
    def _filled(cell: Any, inputs: Tensor, recurrent: Tensor, bias: Tensor, recurrent_bias: Tensor) -> Any:
        read, recalled = (part for part in cell.modules() if isinstance(part, nn.Linear))
        maps: Dict[nn.Module, nn.Module] = {
            read: linear_of(read, inputs, bias),
            recalled: linear_of(recalled, recurrent, recurrent_bias),
        }
        return twin(cell, maps.get)

    def forward(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> Tuple[Tensor, Tensor]:
        on_cuda = self.weight_ih_l0.device.type == "cuda"
        return self.fused(data, sizes, initial) if on_cuda and not self.swept else super().forward(data, sizes, initial)

    def fused(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> Tuple[Tensor, Tensor]:
        """As :meth:`forward`, by PyTorch's kernels."""
        weight: Any = self.weight_ih_l0
        start = tuple(part.contiguous() for part in initial.to(weight.dtype).chunk(self.kind.vectors, dim=-1))
        packed = PackedSequence(data.to(weight.dtype), torch.tensor(sizes))
        # autocast would run them in float16 whatever type they were given
        with torch.autocast(weight.device.type, enabled=False):
            outputs, final = self.kernels.forward(self, packed, start if len(start) > 1 else start[0])
        return outputs.data, torch.cat(final, dim=-1) if len(start) > 1 else final


class GRU(FusedLayer, nn.GRU):  # type: ignore[misc]
    """A layer of :class:`~.cells.GRUCell`; PyTorch's has a second bias, on the recurrent product."""

    kind, kernels = GRUCell, nn.GRU


class LSTM(FusedLayer, nn.LSTM):  # type: ignore[misc]
    """A layer of :class:`~.cells.LSTMCell`."""

    kind, kernels = LSTMCell, nn.LSTM


FUSED: Any = {GRUCell: GRU, LSTMCell: LSTM}


class Layers(nn.Module):
    """Layers one above the other: each reads all directions of the one below.

    Args:
        cell: the kind of cell.
        input_dim: width of the input.
        hidden_dim: width ``n`` of each direction.
        layers: number of layers.
        dropout: between layers; what a residual adds is whole.
        bidirectional: how many of the lowest layers have both directions.
        residuals: the layer, from 1, from which on a layer's input is added to its output (Wu et al. 2016), or 0.
        beside: width of what every layer reads beside the outputs of the one below.
        depth: cells of a step, see :class:`~.cells.DeepCell`.
        on_layers: what they read are outputs of a layer, too, so that dropout comes before the lowest one as well.
    """

    def __init__(
        self,
        cell: MakeCell,
        input_dim: int,
        hidden_dim: int,
        layers: int,
        dropout: float = 0.0,
        bidirectional: int = 0,
        residuals: int = 0,
        beside: int = 0,
        depth: int = 1,
        on_layers: bool = False,
    ):
        super().__init__()
        self.dropout = dropout
        self.residuals = residuals
        self.beside = beside
        self.on_layers = on_layers
        self.directions = [1 + (number < bidirectional) for number in range(layers)]
        self.layers = nn.ModuleList()
        for directions in self.directions:
            if cell in FUSED and depth == 1:
                layer = FUSED[cell](input_dim + beside, hidden_dim, bidirectional=directions == 2)
            else:
                lowest = (cell({"input": input_dim + beside}, hidden_dim) for _ in range(directions))
                layer = SteppedLayer(deepened(one, cell, hidden_dim, depth - 1) for one in lowest)
            self.layers.append(layer)
            input_dim = hidden_dim * directions

    @property
    def cell(self) -> Any:
        """What tells the output of a state."""
        return self.layers[0].cells[0]  # type: ignore[index]

    def start(self, data: Tensor, sequences: int) -> Tensor:
        """States of zero, ``d x B x state width``."""
        return data.new_zeros(sum(self.directions), sequences, self.cell.state_dim)

    def forward(
        self, data: Tensor, sizes: Sequence[int], initial: Tensor, beside: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor]:
        """Run over sequences.

        Args:
            data, sizes, initial: as :meth:`Layer.forward`'s.
            beside: what every layer reads beside, ``sum(sizes) x ...``, if there is anything.

        Returns:
            the outputs of the top layer, ``sum(sizes) x its width``, and every last state, ``d x B x state width``.
        """
        finals: List[Tensor] = []
        for number, (layer, start) in enumerate(zip(self.layers, initial.split(self.directions)), start=1):
            below = data
            data = F.dropout(below, self.dropout, self.training) if number > 1 or self.on_layers else below
            data = data if beside is None else torch.cat([data, beside], dim=1)
            data, final = layer(data, sizes, start)
            data = with_residual(self.residuals, number, data, below)
            finals.append(final)
        return data, torch.cat(finals)

"""Recurrent layers over whole sequences.

PyTorch's fused layers serve on CUDA.  On a CPU, where the backward pass of those takes time in the square of the
length, and for cells that PyTorch does not have, the equations of :mod:`.cells` are swept over the sequence.

Shapes as in :mod:`.state`; ``d`` is the number of layers times directions.
"""

from functools import cached_property
from typing import Any, List, Optional, Sequence, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import Cell, GRUCell, LSTMCell, MakeCell, deepened, with_residual
from .init import Scheme
from .twins import Loop


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
        running, resting = state.split([len(inputs), len(state) - len(inputs)])
        running = cell(running, inputs)
        outputs.append(cell.output(running))
        state = torch.cat([running, resting]) if len(resting) else running
    return torch.cat(outputs[::-1] if reverse else outputs), state


class Layer(Loop):
    """A layer of one kind of cell, with a forward direction and perhaps a backward one."""

    def directions(self) -> Sequence[Any]:
        """The cell of the forward direction and, where there is one, that of the backward direction."""
        raise NotImplementedError

    def start(self, data: Tensor, sequences: int) -> Tensor:
        """States of zero, ``d x B x state width``."""
        cells = self.directions()
        return data.new_zeros(len(cells), sequences, cells[0].state_dim)

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
            sweep(self.in_loop(cell), cell.project("input", data), sizes, start, reverse == 1)
            for reverse, (cell, start) in enumerate(zip(self.directions(), initial))
        ]
        outputs, finals = zip(*swept)
        return torch.cat(outputs, dim=1), torch.stack(finals)


class CellLayer(Layer):
    """A layer of any cell.

    Args:
        cell: the kind of cell.
        input_dim: width of the input.
        hidden_dim: width ``n`` of each direction.
        directions: 1 or 2.
        norm: layer normalisation.
        depth: cells of a step, see :class:`~.cells.DeepCell`.
    """

    def __init__(
        self, cell: MakeCell, input_dim: int, hidden_dim: int, directions: int, norm: bool = False, depth: int = 1
    ):
        super().__init__()
        lowest = [cell({"input": input_dim}, hidden_dim, norm=norm) for _ in range(directions)]
        self.cells = nn.ModuleList(deepened(one, cell, hidden_dim, depth - 1, norm) for one in lowest)

    def directions(self) -> Sequence[Any]:
        return self.cells  # type: ignore[return-value]


class FusedLayer(Layer, nn.RNNBase):
    """A layer with PyTorch's parameters, and its kernels on CUDA."""

    kind: Type[Cell]
    """of the cells whose equations they are"""
    kernels: Any
    """PyTorch's class"""

    def initialise(self, scheme: Scheme) -> None:
        """As :meth:`~.cells.Cell.initialise`."""
        for cell in self.directions():
            cell.initialise(scheme)

    @cached_property
    def _cells(self) -> List[Any]:
        """Made once, and no submodules: they have no parameters of their own."""
        with torch.device("meta"):
            return [self.kind({"input": self.input_size}, self.hidden_size) for _ in range(1 + self.bidirectional)]

    def directions(self) -> Sequence[Any]:
        """Cells that share the layer's parameters, which may be others than at the last call."""
        for cell, suffix in zip(self._cells, ("_l0", "_l0_reverse")):
            for maps, names in ((cell.inputs["input"], "ih"), (cell.recurrent, "hh")):
                maps.weight, maps.bias = (getattr(self, f"{each}_{names}{suffix}") for each in ("weight", "bias"))
        return self._cells

    def forward(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> Tuple[Tensor, Tensor]:
        weight: Any = self.weight_ih_l0
        if weight.device.type != "cuda":
            return super().forward(data, sizes, initial)
        parts = initial.to(weight.dtype).chunk(self.kind.parts, dim=-1)
        start = tuple(part.contiguous() for part in parts)
        packed = PackedSequence(data.to(weight.dtype), torch.tensor(sizes))
        with torch.autocast("cuda", enabled=False):  # it would run them in float16 whatever type it was given
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
    """Layers one above the other, batch first: each reads all directions of the one below.

    Args:
        cell: the kind of cell.
        input_dim: width of the input.
        hidden_dim: width ``n`` of each direction.
        layers: number of layers.
        dropout: between layers; what a residual adds is whole.
        bidirectional: how many of the lowest layers have both directions.
        residuals: the layer, from 1, from which on a layer's input is added to its output (Wu et al. 2016), or 0.
        beside: width of what every layer reads beside the outputs of the one below.
        norm, depth: as :class:`CellLayer`'s.
        hidden_dropout: rate of :func:`~.dropout.drop_hidden`, of which whoever runs the layers makes use.
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
        norm: bool = False,
        depth: int = 1,
        hidden_dropout: float = 0.0,
    ):
        super().__init__()
        self.dropout = dropout
        self.residuals = residuals
        self.beside = beside
        self.hidden_dropout = hidden_dropout
        fused = None if norm or hidden_dropout or depth > 1 else FUSED.get(cell)
        self.layers = nn.ModuleList()
        for number in range(layers):
            width, both = input_dim + beside, number < bidirectional
            made = fused(width, hidden_dim, bidirectional=both) if fused else None
            self.layers.append(made or CellLayer(cell, width, hidden_dim, 1 + both, norm, depth))
            input_dim = hidden_dim * (1 + both)

    @property
    def cell(self) -> Any:
        """What tells the output of a state."""
        return self.layers[0].directions()[0]  # type: ignore[operator]

    def forward(
        self, inputs: Any, initial: Optional[Tensor] = None, beside: Optional[Tensor] = None
    ) -> Tuple[Any, Tensor]:
        """Run over sequences.

        Args:
            inputs: a packed sequence, or ``B x T x input width`` without padding.
            initial: the states before the first step, ``d x B x state width`` with ``B`` in the packed order; zero if
                not given.
            beside: ``B x T x ...``; not read where nothing is to be read beside.

        Returns:
            what came in, with the outputs of the top layer, and every last state, ``d x B x state width``.
        """
        packed = isinstance(inputs, PackedSequence)
        data = inputs.data if packed else inputs.transpose(0, 1).flatten(0, 1)
        sizes = inputs.batch_sizes.tolist() if packed else [inputs.size(0)] * inputs.size(1)
        others = beside.transpose(0, 1).flatten(0, 1) if self.beside and beside is not None else None
        finals: List[Tensor] = []
        layers: Any = self.layers
        for number, layer in enumerate(layers, start=1):
            below = data
            data = F.dropout(below, self.dropout, self.training) if number > 1 else below
            data = data if others is None else torch.cat([data, others], dim=1)
            start, done = layer.start(data, sizes[0]), sum(map(len, finals))
            start = start if initial is None else initial[done : done + len(start)]
            data, final = layer(data, sizes, start)
            data = with_residual(self.residuals, number, data, below)
            finals.append(final)
        states = torch.cat(finals)
        if not packed:
            return data.view(inputs.size(1), inputs.size(0), -1).transpose(0, 1), states
        if inputs.unsorted_indices is not None:
            states = states.index_select(1, inputs.unsorted_indices)
        return inputs._replace(data=data), states

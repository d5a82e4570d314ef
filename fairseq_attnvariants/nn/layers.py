"""Recurrent layers over complete sequences.

On CUDA, PyTorch's fused layers run.  Their backward pass on a CPU takes time quadratic in the length.  So on a CPU, and
for cells that PyTorch does not have, :func:`sweep` applies the equations of :mod:`.cells` step by step.

Shapes as in :mod:`.state`; ``d`` is the number of directions of all layers.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import Cell, GRUCell, LSTMCell, MakeCell, StackedCell, deepened, with_residual
from .device import on_gpu
from .fast.cells import fits, over_all
from .fast.deferred import deferred
from .init import Scheme
from .twins import linear_of, twin


def sweep(cell: Any, projected: Tensor, sizes: Sequence[int], state: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    """Run one direction of a layer over packed sequences.

    A sequence that has ended (or, in reverse, not begun) has no row in a step.

    Args:
        cell, projected: the cell, and its inputs at all steps, step after step, ``sum(sizes) x gates·n``.
        sizes: the number of sequences at each step; sequences are sorted by length.
        state: the state before the first step, ``B x state width``.
        reverse: run from the last step to the first.

    Returns:
        the outputs ``sum(sizes) x n`` and the last states ``B x state width``.
    """
    steps = projected.split(sizes)
    outputs: list[Tensor] = []
    for inputs in steps[:: -1 if reverse else 1]:
        running, resting = state.split([inputs.size(0), state.size(0) - inputs.size(0)])
        running = cell(running, inputs)
        outputs.append(cell.output(running))
        state = torch.cat([running, resting]) if resting.size(0) else running
    return torch.cat(outputs[::-1] if reverse else outputs), state


def over_steps(cell: Any, name: str, rows: Tensor, state: Tensor) -> tuple[list[Tensor], Tensor]:
    """Run a cell, or layers of cells, over steps with one input that is known in advance.

    Args:
        cell, name: the cell, and the name of its input.
        rows: the input at all steps, step after step, ``T·N x width``.
        state: the state before the first step, ``N x state width``.

    Returns:
        the outputs of every layer, from the lowest to the highest, ``T·N x n``, and the last state.
    """
    if not isinstance(cell, StackedCell):
        steps = rows.size(0) // state.size(0)
        if fits(cell, cell.inputs[name], rows):
            output, state = over_all(cell, cell.inputs[name], rows.unflatten(0, (steps, -1)), state)
        else:
            output, state = sweep(cell, cell.project(name, rows), [state.size(0)] * steps, state, False)
        return [output], state
    outputs: list[Tensor] = []
    states: list[Tensor] = []
    for number, (layer, own) in enumerate(zip(cell.cells, state.chunk(len(cell.cells), dim=-1)), start=1):
        [output], state = over_steps(layer, name, rows, own)
        outputs.append(with_residual(cell.residuals, number, output, outputs[-1]) if outputs else output)
        states.append(state)
        name, rows = "below", cell.dropout(outputs[-1])
    return outputs, torch.cat(states, dim=-1)


class Layer(nn.Module):
    """A layer of one kind of cell, with a forward direction and perhaps a backward one."""

    cells: Any
    """the cell of the forward direction and, if there is one, of the backward direction"""

    def forward(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> tuple[Tensor, Tensor]:
        """Run over sequences.

        Args:
            data: the inputs of all steps, step after step, ``sum(sizes) x input width``.
            sizes: as for :func:`sweep`.
            initial: the states before the first step, ``d x B x state width``.

        Returns:
            the outputs ``sum(sizes) x d·n``, and the last states, ``d x B x state width``.
        """
        swept = [
            sweep(deferred(cell), cell.project("input", read), sizes, start, reverse == 1)
            for reverse, (cell, read, start) in enumerate(zip(self.cells, self.inputs(data), initial))
        ]
        outputs, finals = zip(*swept)
        return torch.cat(outputs, dim=1), torch.stack(finals)

    def inputs(self, data: Tensor) -> Sequence[Tensor]:
        """The input of each direction."""
        return [data] * 2

    def kept(self, data: Tensor) -> Tensor:
        """Return the input as a residual connection adds it to the outputs."""
        return data


class SteppedLayer(Layer):
    """A layer of any cells, which :func:`sweep` runs on every device.

    A direction reads both directions of the layer below, its ``own`` or the ``other`` one.
    """

    def __init__(self, cells: Iterable[Any], reads: str = "both"):
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.reads = reads

    def inputs(self, data: Tensor) -> Sequence[Tensor]:
        if self.reads == "both":
            return super().inputs(data)
        halves = data.chunk(2, dim=-1)
        return halves if self.reads == "own" else halves[::-1]

    def kept(self, data: Tensor) -> Tensor:
        """Return the inputs that the directions read, side by side."""
        return data if self.reads == "both" else torch.cat([*self.inputs(data)], dim=-1)


class FusedLayer(Layer, nn.RNNBase):
    """A layer with PyTorch's parameters, and its kernels on CUDA."""

    kind: type[Cell]
    """the class of the cells with these equations"""
    kernels: Any
    """PyTorch's class"""
    swept = False
    """whether :func:`sweep` runs it on CUDA as well, as it runs a layer without kernels"""

    def initialise(self, scheme: Scheme) -> None:
        """Fill the parameters of each direction, see :meth:`~.cells.Cell.initialise`."""
        for cell in self.cells:
            cell.initialise(scheme)

    @cached_property
    def templates(self) -> list[Any]:
        """A cell for each direction, without values; not a submodule, because the layer has the parameters."""
        with torch.device("meta"):
            return [self.kind({"input": self.input_size}, self.hidden_size) for _ in range(1 + self.bidirectional)]

    @property
    def cells(self) -> list[Any]:
        """Cells with the layer's current weights: parameters, or tensors that PyTorch's tools computed from them."""
        return [self._filled(cell, *weights) for cell, weights in zip(self.templates, self.all_weights)]

    @staticmethod
    def _filled(cell: Any, inputs: Tensor, recurrent: Tensor, bias: Tensor, recurrent_bias: Tensor) -> Any:
        read, recalled = (part for part in cell.modules() if isinstance(part, nn.Linear))
        maps: dict[nn.Module, nn.Module] = {
            read: linear_of(read, inputs, bias),
            recalled: linear_of(recalled, recurrent, recurrent_bias),
        }
        return twin(cell, maps.get)

    def forward(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> tuple[Tensor, Tensor]:
        swept = self.swept or not on_gpu(data)
        return super().forward(data, sizes, initial) if swept else self.fused(data, sizes, initial)

    def fused(self, data: Tensor, sizes: Sequence[int], initial: Tensor) -> tuple[Tensor, Tensor]:
        """Run over sequences by PyTorch's kernels, as :meth:`forward` does."""
        weight: Any = self.weight_ih_l0
        start = tuple(part.contiguous() for part in initial.to(weight.dtype).chunk(self.kind.vectors, dim=-1))
        data = data.to(weight.dtype)
        even = sizes[0] == sizes[-1]  # then packing is not needed
        steps: Any = data.unflatten(0, (len(sizes), -1)) if even else PackedSequence(data, torch.tensor(sizes))
        # autocast would run them in float16, whatever their type
        with torch.autocast(weight.device.type, enabled=False):
            outputs, final = self.kernels.forward(self, steps, start if len(start) > 1 else start[0])
        rows = outputs.flatten(0, 1) if even else outputs.data
        return rows, torch.cat(final, dim=-1) if len(start) > 1 else final


class GRU(FusedLayer, nn.GRU):  # type: ignore[misc]
    """A layer of :class:`~.cells.GRUCell`; PyTorch's layer has a second bias, on the recurrent product."""

    kind, kernels = GRUCell, nn.GRU


class LSTM(FusedLayer, nn.LSTM):  # type: ignore[misc]
    """A layer of :class:`~.cells.LSTMCell`."""

    kind, kernels = LSTMCell, nn.LSTM


FUSED: Any = {GRUCell: GRU, LSTMCell: LSTM}


def fused(cell: MakeCell) -> Any:
    """Return the class of layers with PyTorch's kernels for a cell, or None; such a layer always has a second bias."""
    if isinstance(cell, partial) and cell.keywords.keys() == {"recurrent_bias"}:
        cell = cell.func
    return FUSED.get(cell)


class Layers(nn.Module):
    """Layers one above the other: each reads all directions of the layer below.

    Args:
        cell: the kind of cell.
        input_dim: width of the input.
        hidden_dim: width ``n`` of each direction.
        layers: number of layers.
        dropout: between layers, but not on residuals.
        bidirectional: the number of lowest layers with both directions.
        residuals: the number of the layer, from 1, from which on a layer's input is added to its output (Wu et al.
            2016), or 0.
        context_dim: width of a context that every layer reads as well (Wu et al. 2016), or 0.
        depth: number of cells in a step, see :class:`~.cells.DeepCell`.
        on_layers: the input is the output of another layer, so the lowest layer has dropout before it as well.
        reads: the directions of a bidirectional layer below that a direction reads: ``both``, its ``own`` or the
            ``other`` one; its residuals add the same directions.
    """

    layers: Any
    """each a :class:`Layer`"""

    def __init__(
        self,
        cell: MakeCell,
        input_dim: int,
        hidden_dim: int,
        layers: int,
        dropout: float = 0.0,
        bidirectional: int = 0,
        residuals: int = 0,
        context_dim: int = 0,
        depth: int = 1,
        on_layers: bool = False,
        reads: str = "both",
    ):
        super().__init__()
        self.dropout = dropout
        self.residuals = residuals
        self.context_dim = context_dim
        self.on_layers = on_layers
        self.directions = [1 + (number < bidirectional) for number in range(layers)]
        self.layers = nn.ModuleList()
        for directions in self.directions:
            halved = reads != "both" and directions == 2 and (on_layers or len(self.layers) > 0)
            kernels = None if halved or depth > 1 else fused(cell)
            if kernels is not None:
                layer = kernels(input_dim + context_dim, hidden_dim, bidirectional=directions == 2)
            else:
                width = input_dim // 2 if halved else input_dim + context_dim
                lowest = (cell({"input": width}, hidden_dim) for _ in range(directions))
                cells = (deepened(one, cell, hidden_dim, depth - 1) for one in lowest)
                layer = SteppedLayer(cells, reads if halved else "both")
            self.layers.append(layer)
            input_dim = hidden_dim * directions

    @property
    def cell(self) -> Any:
        """A cell of the lowest layer, for the output of a state."""
        return self.layers[0].cells[0]

    def start(self, data: Tensor, sequences: int) -> Tensor:
        """Return states of zero, ``d x B x state width``."""
        return data.new_zeros(sum(self.directions), sequences, self.cell.state_dim)

    def forward(
        self,
        data: Tensor,
        sizes: Sequence[int],
        initial: Tensor,
        context: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run over sequences.

        Args:
            data, sizes, initial: as for :meth:`Layer.forward`.
            context: is read by every layer as well, ``sum(sizes) x context_dim``; or None.

        Returns:
            the outputs of the top layer, ``sum(sizes) x its width``, and all last states, ``d x B x state width``.
        """
        finals: list[Tensor] = []
        for number, (layer, start) in enumerate(zip(self.layers, initial.split(self.directions)), start=1):
            below = data
            data = F.dropout(below, self.dropout, self.training) if number > 1 or self.on_layers else below
            data = data if context is None else torch.cat([data, context], dim=1)
            data, final = layer(data, sizes, start)
            data = with_residual(self.residuals, number, data, layer.kept(below))
            finals.append(final)
        return data, torch.cat(finals)

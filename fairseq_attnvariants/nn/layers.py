"""Recurrent layers over whole sequences.

PyTorch's fused layers serve on CUDA.  On a CPU, where the backward pass of those takes time in the square of the
length, and for the cell that PyTorch does not have, the equations of :mod:`.cells` are swept over the sequence.

Shapes as in :mod:`.state`; ``d`` is the number of layers times directions.
"""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import AdaptiveGRUCell, Cell, DeepCell, GRUCell, LSTMCell, MakeCell, deepened, with_residual
from .fast.deferred import product
from .fast.loop import in_loop
from .init import Scheme, by_gate


class Direction(NamedTuple):
    """One direction of a layer."""

    project: Callable[[Tensor], Tensor]
    """the inputs of all steps, ``... x input width`` to ``... x gates·n``"""
    step: Callable[[Tensor, Tensor], Tensor]
    """from a state, ``N x state width``, and a projected input, ``N x gates·n``, to the next state"""


def fused_direction(
    cell: Any, weight: Tensor, bias: Tensor, recurrent: Tensor, recurrent_bias: Optional[Tensor] = None
) -> Direction:
    """Of parameters as PyTorch has them: ``gates·n x input width`` and ``gates·n x n``, a bias each."""
    recall = product(recurrent, recurrent_bias)

    def step(state: Tensor, inputs: Tensor) -> Tensor:
        return cell.step(inputs.to(state.dtype), recall(cell.output(state)).to(state.dtype), state)

    return Direction(partial(F.linear, weight=weight, bias=bias), step)


def sweep(
    cell: Type[Cell], direction: Direction, data: Tensor, sizes: Sequence[int], state: Tensor, reverse: bool
) -> Tuple[Tensor, Tensor]:
    """One direction of a layer over packed sequences.

    A sequence that has ended (or, in reverse, not begun) is no row of a step, so padding cannot touch a state.

    Args:
        cell: the kind of cell, which tells the output from the state.
        direction: what is done.
        data: the inputs of all steps after one another, ``sum(sizes) x input width``.
        sizes: how many sequences have each step; they are sorted by length.
        state: before the first step, ``B x state width``.
        reverse: from the last step to the first.

    Returns:
        the outputs ``sum(sizes) x n`` and the last states ``B x state width``.
    """
    steps = direction.project(data).split(sizes)
    outputs: List[Tensor] = []
    for inputs in reversed(steps) if reverse else steps:
        running, resting = state.split([len(inputs), len(state) - len(inputs)])
        running = direction.step(running, inputs)
        outputs.append(cell.output(running))
        state = torch.cat([running, resting]) if len(resting) else running
    return torch.cat(outputs[::-1] if reverse else outputs), state


class Layers(nn.Module):
    """Layers of one cell, batch first: each reads all directions of the one below."""

    hidden_size: int
    dropout: float

    cell: Any
    """what tells the output of a state"""
    state_dim: int
    """width of a layer's state"""

    def directions(self) -> List[List[Direction]]:
        """For each layer the forward direction and, where there is one, the backward direction."""
        raise NotImplementedError

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        """Run over sequences.

        Args:
            inputs: a packed sequence, or ``B x T x input width`` without padding.
            initial: the states before the first step, ``d x B x state width`` with ``B`` in the packed order; zero if
                not given.

        Returns:
            what came in, with the outputs of the top layer, and every last state, ``d x B x state width``.
        """
        packed = isinstance(inputs, PackedSequence)
        if packed:
            data, sizes = inputs.data, inputs.batch_sizes.tolist()
        else:
            data, sizes = inputs.transpose(0, 1).flatten(0, 1), [inputs.size(0)] * inputs.size(1)
        layers = self.directions()
        if initial is None:
            initial = data.new_zeros(len(layers) * len(layers[0]), sizes[0], self.state_dim)
        finals: List[Tensor] = []
        for depth, directions in enumerate(layers):
            data = F.dropout(data, self.dropout, self.training) if depth else data
            outputs = []
            for reverse, direction in enumerate(directions):
                output, final = sweep(self.cell, direction, data, sizes, initial[len(finals)], reverse == 1)
                outputs.append(output)
                finals.append(final)
            data = torch.cat(outputs, dim=1)
        states = torch.stack(finals)
        if not packed:
            return data.view(inputs.size(1), inputs.size(0), -1).transpose(0, 1), states
        if inputs.unsorted_indices is not None:
            states = states.index_select(1, inputs.unsorted_indices)
        return inputs._replace(data=data), states


class FusedLayers(Layers, nn.RNNBase):
    """Layers with PyTorch's parameters, and its kernels on CUDA."""

    cell: Type[Cell]

    @property
    def state_dim(self) -> int:  # type: ignore[override]
        """Width of a layer's state."""
        return self.cell.parts * self.hidden_size

    def initialise(self, scheme: Scheme) -> None:
        """Gate by gate, and recurrent matrices orthogonal; see :mod:`.init`."""
        for name, parameter in self.named_parameters():
            if name.startswith("weight_hh"):
                by_gate(nn.init.orthogonal_, parameter, self.hidden_size)
            elif name.startswith("weight_ih"):
                by_gate(scheme.square_, parameter, self.hidden_size)
            elif name.startswith("bias_ih"):
                self.cell.initialise_bias(parameter, self.hidden_size, scheme)

    def directions(self) -> List[List[Direction]]:
        kinds = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        return [
            [
                fused_direction(self.cell, *(getattr(self, f"{kind}_l{layer}{suffix}") for kind in kinds))
                for suffix in suffixes
            ]
            for layer in range(self.num_layers)
        ]

    def forward(self, inputs: Any, initial: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        weight: Any = self.weight_ih_l0
        if weight.device.type != "cuda":
            return super().forward(inputs, initial)
        start: Any = None if initial is None else initial.to(weight.dtype).contiguous()
        lstm = self.cell is LSTMCell
        if lstm and start is not None:
            start = tuple(part.contiguous() for part in start.chunk(2, dim=-1))
        with torch.autocast("cuda", enabled=False):  # it would run them in float16 whatever type it was given
            outputs, final = super(Layers, self).forward(inputs.to(weight.dtype), start)
        return outputs, torch.cat(final, dim=-1) if lstm else final


class GRU(FusedLayers, nn.GRU):
    """Layers of :class:`~.cells.GRUCell`; PyTorch's has a second bias, on the recurrent product."""

    cell = GRUCell


class LSTM(FusedLayers, nn.LSTM):  # type: ignore[misc]
    """Layers of :class:`~.cells.LSTMCell`."""

    cell = LSTMCell


class CellLayers(Layers):
    """Layers of cells that PyTorch has no kernels for.

    Args:
        cell: the kind of cell.
        input_dim: width of the input.
        hidden_dim: width ``n`` of each direction.
        layers: number of layers.
        dropout: between layers.
        bidirectional: whether there is a backward direction.
        norm: layer normalisation.
        depth: cells of a step, see :class:`~.cells.DeepCell`.
    """

    def __init__(
        self,
        cell: MakeCell,
        input_dim: int,
        hidden_dim: int,
        layers: int,
        dropout: float = 0.0,
        bidirectional: bool = False,
        norm: bool = False,
        depth: int = 1,
    ):
        super().__init__()
        self.hidden_size = hidden_dim
        self.dropout = dropout
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(
            nn.ModuleList(
                deepened(
                    cell({"input": directions * hidden_dim if layer else input_dim}, hidden_dim, norm=norm),
                    cell,
                    hidden_dim,
                    depth - 1,
                    norm,
                )
                for _ in range(directions)
            )
            for layer in range(layers)
        )

    @property
    def cell(self) -> Any:
        """One of the cells, which are all alike."""
        return self.cells[0][0]  # type: ignore[index]

    @property
    def state_dim(self) -> int:  # type: ignore[override]
        """Width of a layer's state."""
        return self.cell.state_dim

    def directions(self) -> List[List[Direction]]:
        layers: Any = self.cells
        return [[Direction(partial(cell.project, "input"), in_loop(cell)) for cell in cells] for cells in layers]


class AdaptiveGRU(CellLayers):
    """Layers of :class:`~.cells.AdaptiveGRUCell` (Li et al. 2018 eq. 13-17), or of a control for it."""

    def adaptive_gates(self, inputs: Tensor) -> Tensor:
        """``g_t`` (Li et al. 2018 eq. 13) of the forward and the backward direction of each layer, from the lowest.

        Args:
            inputs: ``B x T x input width``, without padding.

        Returns:
            ``d x B x T x n``.
        """
        found = []
        layers: Any = self.cells
        for cells, directions in zip(layers, self.directions()):
            data, sizes = inputs.transpose(0, 1), [len(inputs)] * inputs.size(1)  # T x B x width
            start, outputs = inputs.new_zeros(len(inputs), self.hidden_size), []
            for reverse, (cell, direction) in enumerate(zip(cells, directions)):
                states, _ = sweep(self.cell, direction, data.flatten(0, 1), sizes, start, reverse == 1)
                states = states.view(*data.shape[:2], -1).transpose(0, 1)  # B x T x n
                # zero before the first step, which in reverse is the last column
                before = F.pad(states[:, 1:], (0, 0, 0, 1)) if reverse else F.pad(states[:, :-1], (0, 0, 1, 0))
                first: Any = cell.cells[0] if isinstance(cell, DeepCell) else cell
                read, known = first.project("input", inputs), first.recall(before)
                found.append(torch.sigmoid((read + known).chunk(4, dim=-1)[3]))
                outputs.append(states)
            inputs = torch.cat(outputs, dim=-1)
        return torch.stack(found)


class LayerStack(nn.Module):
    """Layers with modules of their own, for what differs among them (Wu et al. 2016): as :class:`Layers`.

    Args:
        cell: the kind of cell.
        input_dim: width of the input.
        hidden_dim: width ``n`` of each direction.
        layers: number of layers.
        dropout: between layers; what a residual adds is whole.
        bidirectional: how many of the lowest layers have both directions.
        residuals: the layer, from 1, from which on a layer's input is added to its output, or 0.
        beside: width of what every layer reads beside the outputs of the one below.
        options: ``norm``, ``depth`` and ``masked`` of :func:`recurrent_layers`.
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
        **options: Any,
    ):
        super().__init__()
        self.dropout = dropout
        self.residuals = residuals
        widths = [input_dim] + [hidden_dim * (2 if layer < bidirectional else 1) for layer in range(layers - 1)]
        self.layers = nn.ModuleList(
            recurrent_layers(cell, width + beside, hidden_dim, 1, bidirectional=int(layer < bidirectional), **options)
            for layer, width in enumerate(widths)
        )

    @property
    def cell(self) -> Any:
        """As :attr:`Layers.cell`."""
        return self.layers[0].cell

    def forward(
        self, inputs: Any, initial: Optional[Tensor] = None, beside: Optional[Tensor] = None
    ) -> Tuple[Any, Tensor]:
        """As :meth:`Layers.forward`, where initial states are of layers that have one direction."""
        packed, finals = isinstance(inputs, PackedSequence), []
        data = inputs.data if packed else inputs
        for number, layer in enumerate(self.layers, start=1):
            below = data
            data = F.dropout(below, self.dropout, self.training) if number > 1 else below
            data = data if beside is None else torch.cat([data, beside], dim=-1)
            start = None if initial is None else initial[number - 1 : number]
            outputs, final = layer(inputs._replace(data=data) if packed else data, start)
            data = with_residual(self.residuals, number, outputs.data if packed else outputs, below)
            finals.append(final)
        return inputs._replace(data=data) if packed else data, torch.cat(finals)


def recurrent_layers(
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
    masked: bool = False,
) -> Union[Layers, LayerStack]:
    """Batch-first recurrent layers of a kind of cell.

    Args as :class:`CellLayers` and :class:`LayerStack`; ``masked`` if they are to have masks of :mod:`.dropout`.
    """
    between = dropout if layers > 1 else 0.0
    options: Dict[str, Any] = dict(norm=norm, depth=depth, masked=masked)
    if beside or 0 < residuals <= layers or 0 < bidirectional < layers:
        return LayerStack(cell, input_dim, hidden_dim, layers, between, bidirectional, residuals, beside, **options)
    sizes = input_dim, hidden_dim, layers, between, bidirectional > 0, norm, depth
    kind: Any = cell
    if isinstance(kind, type) and issubclass(kind, AdaptiveGRUCell):
        return AdaptiveGRU(cell, *sizes)
    fused: Any = {GRUCell: GRU, LSTMCell: LSTM}.get(cell)  # type: ignore[arg-type]
    if fused is None or norm or masked or depth > 1:
        return CellLayers(cell, *sizes)
    return fused(input_dim, hidden_dim, layers, batch_first=True, dropout=between, bidirectional=bidirectional > 0)

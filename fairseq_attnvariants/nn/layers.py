"""Recurrent layers over whole sequences.

PyTorch's fused layers serve on CUDA.  On a CPU, where the backward pass of those takes time in the square of the
length, and for the cell that PyTorch does not have, the equations of :mod:`.cells` are swept over the sequence.

Shapes as in :mod:`.state`; ``d`` is the number of layers times directions.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .cells import CELLS, AdaptiveGRUCell, Cell, GRUCell, LSTMCell
from .fast.deferred import product
from .init import Scheme, by_gate


class Direction(NamedTuple):
    """The parameters of one direction of a layer, and what normalises."""

    input: Tensor
    """``gates·n x input width``"""
    input_bias: Tensor
    recurrent: Tensor
    """``gates·n x n``"""
    recurrent_bias: Optional[Tensor] = None
    input_norm: Callable[[Tensor], Tensor] = nn.Identity()
    recurrent_norm: Callable[[Tensor], Tensor] = nn.Identity()


def sweep(
    cell: Type[Cell], direction: Direction, data: Tensor, sizes: Sequence[int], state: Tensor, reverse: bool
) -> Tuple[Tensor, Tensor]:
    """One direction of a layer over packed sequences.

    A sequence that has ended (or, in reverse, not begun) is no row of a step, so padding cannot touch a state.

    Args:
        cell: whose equations.
        direction: parameters.
        data: the inputs of all steps after one another, ``sum(sizes) x input width``.
        sizes: how many sequences have each step; they are sorted by length.
        state: before the first step, ``B x state width``.
        reverse: from the last step to the first.

    Returns:
        the outputs ``sum(sizes) x n`` and the last states ``B x state width``.
    """
    steps = direction.input_norm(F.linear(data, direction.input, direction.input_bias)).split(sizes)
    recurrent = product(direction.recurrent, direction.recurrent_bias)
    outputs: List[Tensor] = []
    for inputs in reversed(steps) if reverse else steps:
        running, resting = state.split([len(inputs), len(state) - len(inputs)])
        term = direction.recurrent_norm(recurrent(cell.output(running)))
        running = cell.step(inputs.to(state.dtype), term.to(state.dtype), running)
        outputs.append(cell.output(running))
        state = torch.cat([running, resting]) if len(resting) else running
    return torch.cat(outputs[::-1] if reverse else outputs), state


class Layers(nn.Module):
    """Layers of one cell, batch first: each reads all directions of the one below."""

    cell: Type[Cell]
    hidden_size: int
    dropout: float

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
            initial = data.new_zeros(len(layers) * len(layers[0]), sizes[0], self.cell.parts * self.hidden_size)
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
            [Direction(*(getattr(self, f"{kind}_l{layer}{suffix}") for kind in kinds)) for suffix in suffixes]
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
        hidden: width ``n`` of each direction.
        layers: number of layers.
        dropout: between layers.
        bidirectional: whether there is a backward direction.
        norm: layer normalisation.
    """

    def __init__(
        self,
        cell: Type[Cell],
        input_dim: int,
        hidden: int,
        layers: int,
        dropout: float = 0.0,
        bidirectional: bool = False,
        norm: bool = False,
    ):
        super().__init__()
        self.cell = cell
        self.hidden_size = hidden
        self.dropout = dropout
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(
            nn.ModuleList(
                cell({"input": directions * hidden if layer else input_dim}, hidden, norm) for _ in range(directions)
            )
            for layer in range(layers)
        )

    def directions(self) -> List[List[Direction]]:
        return [[self.direction(cell) for cell in cells] for cells in self.cells]  # type: ignore[attr-defined]

    @staticmethod
    def direction(cell: Any) -> Direction:
        """The parameters of one cell."""
        layer, norms = cell.inputs["input"], (cell.input_norm, cell.recurrent_norm)
        return Direction(layer.weight, layer.bias, cell.recurrent.weight, None, *norms)


class AdaptiveGRU(CellLayers):
    """Layers of :class:`~.cells.AdaptiveGRUCell` (002 eq. 13-17)."""

    def __init__(self, *sizes: Any, **options: Any):
        super().__init__(AdaptiveGRUCell, *sizes, **options)

    def shares(self, inputs: Tensor) -> Tensor:
        """``g_t`` (002 eq. 13) of the forward and the backward direction of each layer, from the lowest.

        Args:
            inputs: ``B x T x input width``, without padding.

        Returns:
            ``d x B x T x n``.
        """
        found = []
        for directions in self.directions():
            data, sizes = inputs.transpose(0, 1), [len(inputs)] * inputs.size(1)  # T x B x width
            start, outputs = inputs.new_zeros(len(inputs), self.hidden_size), []
            for reverse, direction in enumerate(directions):
                states, _ = sweep(self.cell, direction, data.flatten(0, 1), sizes, start, reverse == 1)
                states = states.view(*data.shape[:2], -1).transpose(0, 1)  # B x T x n
                # zero before the first step, which in reverse is the last column
                before = F.pad(states[:, 1:], (0, 0, 0, 1)) if reverse else F.pad(states[:, :-1], (0, 0, 1, 0))
                read = direction.input_norm(F.linear(inputs, direction.input, direction.input_bias))
                known = direction.recurrent_norm(F.linear(before, direction.recurrent))
                found.append(torch.sigmoid((read + known).chunk(4, dim=-1)[3]))
                outputs.append(states)
            inputs = torch.cat(outputs, dim=-1)
        return torch.stack(found)


def recurrent_layers(
    kind: str,
    input_dim: int,
    hidden: int,
    layers: int,
    dropout: float = 0.0,
    bidirectional: bool = False,
    norm: bool = False,
) -> Layers:
    """Batch-first recurrent layers of a kind of cell, ``gru``, ``adaptive_gru`` or ``lstm``."""
    between = dropout if layers > 1 else 0.0
    if kind == "adaptive_gru":
        return AdaptiveGRU(input_dim, hidden, layers, between, bidirectional, norm)
    if norm:
        return CellLayers(CELLS[kind], input_dim, hidden, layers, between, bidirectional, norm)
    fused = {"gru": GRU, "lstm": LSTM}[kind]
    return fused(input_dim, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional)

"""Recurrent cells: the equations of a step, and the modules that hold a cell's matrices.

A cell reads several named inputs.  Each has a separate matrix.  So an input known for all of the sentence (the target
embeddings) is projected once, before the loop.  Only inputs that depend on the previous step are projected inside it.
A cell's state is one tensor ``N x state width``.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..registry import ConfigurationError, Part, Registry
from .fast.cells import stepped
from .init import Scheme, by_gate
from .layer_norm import LayerNorm, layer_norm


class RecurrentLinear(nn.Linear):
    """``U h``, an ordinary linear map.  The class marks maps of a cell's state, for :mod:`.dropout`."""


READ_NOW = ("context", "attended")  # inputs that come from this step's attention


def input_maps(widths: dict[str, int], out: int, bias: bool) -> nn.ModuleDict:
    """Return a matrix for each named input of these widths; the first one carries the bias, if there is one."""
    numbered = enumerate(widths.items())
    return nn.ModuleDict({name: nn.Linear(width, out, bias=bias and number == 0) for number, (name, width) in numbered})


def plus(*terms: Tensor | None) -> Any:
    """Return the sum of the terms that are not None; None if all are None."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None


def add_inputs(maps: nn.ModuleDict, total: Tensor | None, values: dict[str, Tensor]) -> Any:
    """``Σ W x`` over named inputs, plus a total so far, ``N x out``; None if there is neither."""
    return plus(total, *(maps[name](value) for name, value in values.items()))


class Cell(Part, nn.Module):
    """A gated recurrent cell: one matrix per input, one recurrent matrix (see :attr:`recalls`), one bias.

    Args:
        inputs: width of each named input; the first one's matrix carries the bias.  A cell without inputs reads only
            the state, and has a separate bias.
        hidden_dim: hidden width ``n``.
        norm: layer normalisation of the inputs' sum and of the recurrent product.
        recurrent_bias: a second bias, on the recurrent product, before its normalisation.
    """

    gates: int
    normalised: tuple[int, ...]  # numbers of adjoining gates that are normalised together
    vectors = 1  # vectors of width n in a state; the first is the output
    recalls = True  # has a recurrent product; if not, step gets None for it
    kernel: ClassVar[str | None] = None  # the kernel in :mod:`.fast.cells` with the equations of this class
    shown: tuple[str, ...] = ("share",)  # modules whose outputs are gates, for hooks

    def __init__(self, inputs: dict[str, int], hidden_dim: int, norm: bool = False, recurrent_bias: bool = False):
        super().__init__()
        if not (inputs or self.recalls):
            raise ConfigurationError(
                f"{type(self).__name__} has no recurrent product, so it needs an input: leave out --context-gate, and "
                "what adds cells that read the state alone, --encoder-transition-depth and --decoder-transition-depth"
            )
        self.hidden_dim = hidden_dim
        self.state_dim = self.vectors * hidden_dim
        size = self.gates * hidden_dim
        self.inputs = input_maps(inputs, size, bias=True)
        self.bias = None if inputs else nn.Parameter(torch.empty(size))
        self.recurrent = RecurrentLinear(hidden_dim, size, bias=recurrent_bias) if self.recalls else None
        parts = [gates * hidden_dim for gates in self.normalised]
        self.input_norm = layer_norm(norm and len(inputs) > 0, *parts)
        self.recurrent_norm = layer_norm(norm and self.recalls, *parts)

    @classmethod
    def check_declaration(cls, what: str) -> None:
        super().check_declaration(what)
        gates, normalised = getattr(cls, "gates", None), getattr(cls, "normalised", None)
        if not (isinstance(normalised, tuple) and sum(normalised) == gates):
            raise ConfigurationError(
                f"{what} must say gates, a number, and normalised, a tuple that adds up to it, such as 3 and (2, 1); "
                f"it has {gates} and {normalised}"
            )

    def initialise(self, scheme: Scheme) -> None:
        """Fill matrices gate by gate, recurrent ones orthogonally; see :mod:`.init`."""
        for layer in self.inputs.values():
            by_gate(scheme.square_, layer.weight, self.hidden_dim)  # type: ignore[arg-type]
        if self.recurrent is not None:
            by_gate(nn.init.orthogonal_, self.recurrent.weight, self.hidden_dim)
        normalised = isinstance(self.input_norm, LayerNorm)  # which removes a bias that all units of a gate share
        carrier: Any = self.input_norm if normalised else self if self.bias is not None else [*self.inputs.values()][0]
        self.initialise_bias(carrier.bias, scheme)

    def initialise_bias(self, bias: Tensor, scheme: Scheme) -> None:
        """Fill the bias of all gates, ``gates·n``; it is zero before."""

    def step(self, inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
        """The cell's equations.

        Args:
            inputs: ``W x + b``, ``N x gates·n``; for a cell without inputs ``b``, ``gates·n``.
            recurrent: ``U h``, ``N x gates·n``; None for a cell without it.
            previous: the state before, ``N x state width``.

        Returns:
            the next state, ``N x state width``.
        """
        raise self.lacks("a cell defines step(inputs, recurrent, previous)")

    def output(self, state: Tensor) -> Tensor:
        """The output of a state, which other components read: ``h``, ``... x n``."""
        return state if self.vectors == 1 else state.chunk(self.vectors, dim=-1)[0]

    def project(self, name: str, value: Tensor) -> Tensor:
        """Project an input that is known before the loop, ``... x gates·n``; normalised if it is the only input."""
        term: Tensor = self.inputs[name](value)
        if len(self.inputs) == 1:
            term = self.input_norm(term)
        return term

    def forward(self, state: Tensor, projected: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Run one step.

        Args:
            state: previous state, ``N x state width``.
            projected: from :meth:`project`, ``N x gates·n``.
            inputs: the other inputs, by name, ``N x width``.

        Returns:
            the next state, ``N x state width``.
        """
        total: Any = add_inputs(self.inputs, projected, inputs)
        total = self.bias if total is None else self.input_norm(total) if inputs else total
        return stepped(self, total.to(state.dtype), self.recall(state), state)

    def recall(self, state: Tensor) -> Any:
        """``U h``, ``N x gates·n``; None if there is no ``U``."""
        if self.recurrent is None:
            return None
        return self.recurrent_norm(self.recurrent(self.output(state))).to(state.dtype)


MakeCell = Callable[..., Cell]  # a class, or a class with its options; called with inputs, hidden width and norm

CELLS: Registry[type[Cell]] = Registry("cell", Cell)
register_cell = CELLS.register


@register_cell("gru")
class GRUCell(Cell):
    """Gated recurrent unit, whose reset gate follows the recurrent product.

    (Feng et al. 2016 §3.1, Li et al. 2018 eq. 9-12. Li et al. print ``U (r ∘ h)``; their code is as here.)

    ``r = σ(W_r x + U_r h)``, ``z = σ(W_z x + U_z h)``, ``h~ = tanh(W x + r ∘ (U h))``, ``h' = z ∘ h + (1 - z) ∘ h~``.

    Args:
        inputs, hidden_dim, norm: as :class:`Cell`'s.
        recurrent_bias: give every GRU but attention's own a second bias, in the product that the reset gate scales
            (Nematus, PyTorch).
        joint_norm: with --layer-norm, normalise the gates and the candidate of a GRU together, not apart (Marian).
    """

    gates = 3
    normalised: tuple[int, ...] = 2, 1
    kernel = "gru"

    def __init__(
        self,
        inputs: dict[str, int],
        hidden_dim: int,
        norm: bool = False,
        *,
        recurrent_bias: bool = False,
        joint_norm: bool = False,
    ):
        if joint_norm:
            self.normalised = (self.gates,)
        super().__init__(inputs, hidden_dim, norm, recurrent_bias)

    def initialise_bias(self, bias: Tensor, scheme: Scheme) -> None:
        nn.init.constant_(bias[: 2 * self.hidden_dim], scheme.gate_bias)  # reset and update gate

    def step(self, inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
        parts = [2 * self.hidden_dim, self.hidden_dim]
        gates_x, candidate_x = inputs.split(parts, dim=-1)  # N x 2n and N x n
        gates_h, candidate_h = recurrent.split(parts, dim=-1)
        reset, update = (gates_x + gates_h).sigmoid_().chunk(2, dim=-1)  # N x n
        # a copy of the slice, so that the backward pass does not keep all of the tensor
        candidate = torch.addcmul(candidate_x, reset, candidate_h.contiguous()).tanh_()
        return torch.lerp(candidate, previous, update)


@register_cell("adaptive_gru")
class AdaptiveGRUCell(GRUCell):
    """A GRU that weighs its input against its history (Li et al. 2018 eq. 13-17, for the form of :class:`GRUCell`).

    ``g = σ(W_g x + U_g h + b)``; ``r``, ``z`` and ``h~`` read ``(1-g) ∘ (W x + b)`` and ``g ∘ (U h)``;
    ``h' = g ∘ z ∘ h + (1 - z) ∘ h~``.
    """

    gates = 4
    normalised = 2, 1, 1

    def __init__(self, inputs: dict[str, int], hidden_dim: int, norm: bool = False):
        super().__init__(inputs, hidden_dim, norm)
        self.share = nn.Sigmoid()  # the share of the history, ``g``; a module, so that a hook can read it

    def step(self, inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
        reset_x, update_x, candidate_x, gate_x = inputs.chunk(4, dim=-1)  # N x n
        reset_h, update_h, candidate_h, gate_h = recurrent.chunk(4, dim=-1)  # N x n
        gate = self.share(gate_x + gate_h)
        reset = torch.sigmoid(torch.lerp(reset_x, reset_h, gate))  # lerp: (1-g) ∘ x + g ∘ h
        update = torch.sigmoid(torch.lerp(update_x, update_h, gate))
        candidate = torch.tanh(torch.lerp(candidate_x, reset * candidate_h, gate))
        return torch.lerp(candidate, self.kept(gate, previous), update)

    def kept(self, gate: Tensor, previous: Tensor) -> Tensor:
        """``g ∘ h``, which the update gate keeps in part, ``N x n``."""
        return gate * previous


class ReleasedAdaptiveGRUCell(AdaptiveGRUCell):
    """An adaptive GRU as in the second cell of the authors' released code, which departs from Li et al. 2018 eq. 16.

    ``g = σ(W_g x + U_g h + b_g)``, ``r = σ((1-g) ∘ W_r x + g ∘ U_r h + b_r)``, ``z`` likewise,
    ``h~ = (1-g) ∘ tanh(W x + g ∘ r ∘ (U h + b))``, ``h' = g ∘ z ∘ h + (1 - z) ∘ h~``.

    Args:
        inputs, hidden_dim: as :class:`Cell`; no input carries the bias.
    """

    def __init__(self, inputs: dict[str, int], hidden_dim: int):
        super().__init__(inputs, hidden_dim)
        self.inputs = input_maps(inputs, self.gates * hidden_dim, bias=False)
        self.bias = nn.Parameter(torch.empty(self.gates * hidden_dim))

    def step(self, inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
        reset_x, update_x, candidate_x, gate_x = inputs.chunk(4, dim=-1)  # N x n
        reset_h, update_h, candidate_h, gate_h = recurrent.chunk(4, dim=-1)  # N x n
        reset_b, update_b, candidate_b, gate_b = self.bias.to(previous.dtype).chunk(4)  # type: ignore[union-attr]  # n
        gate = self.share(gate_x + gate_h + gate_b)
        reset = torch.sigmoid(torch.lerp(reset_x, reset_h, gate) + reset_b)
        update = torch.sigmoid(torch.lerp(update_x, update_h, gate) + update_b)
        candidate = (1 - gate) * torch.tanh(candidate_x + gate * reset * (candidate_h + candidate_b))
        return torch.lerp(candidate, self.kept(gate, previous), update)


@register_cell("lstm")
class LSTMCell(Cell):
    """Long short-term memory; the state is ``[h; c]``, ``N x 2n``, and the forget gate's bias starts at 1."""

    gates = 4
    normalised = (4,)
    vectors = 2
    kernel = "lstm"

    def initialise_bias(self, bias: Tensor, scheme: Scheme) -> None:
        nn.init.ones_(bias[self.hidden_dim : 2 * self.hidden_dim])

    def step(self, inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
        input_gate, forget_gate, candidate, output_gate = (inputs + recurrent).chunk(4, dim=-1)  # N x n
        cell = torch.sigmoid(forget_gate) * previous.chunk(2, dim=-1)[1]
        cell = cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
        return torch.cat([torch.sigmoid(output_gate) * torch.tanh(cell), cell], dim=-1)  # N x 2n


class ContextGatedCell(nn.Module):
    """A GRU with a context gate, which weighs its source input against its target input (Tu et al. 2017).

    ``z = σ(W_z y + U_z h + C_z c + b_z)``; in every gate and in the candidate it scales ``C c`` (``source``) or ``W y``
    and ``U h`` (``target``), or ``z`` scales the first and ``1 - z`` the others (``both``).  If a cell before it has
    read the word, ``h`` itself is scaled wherever it is read, as in the authors' code.  Biases are not scaled.  ``c``
    is every input from this step's attention: the context, and ``x_{t*}`` with a target-side bridge.  ``y`` is every
    other input: the word, ``c_{i-1}`` with input feeding, and the attended features.

    Args:
        cell: the kind of GRU.
        kind: ``source``, ``target`` or ``both``.
        inputs: width of each named input.
        hidden_dim: hidden width ``n``.
        norm: layer normalisation of the source's sum, of the target's sum, and of the recurrent product.
    """

    def __init__(self, cell: MakeCell, kind: str, inputs: dict[str, int], hidden_dim: int, norm: bool = False):
        super().__init__()
        self.cell = cell({}, hidden_dim, norm=norm)
        self.state_dim = self.cell.state_dim
        self.kind = kind
        self.widths = [self.cell.gates * hidden_dim, hidden_dim]  # widths of the cell's input and of z
        source = {name: width for name, width in inputs.items() if name in READ_NOW}
        target = {name: width for name, width in inputs.items() if name not in READ_NOW}
        self.source, self.target = (input_maps(widths, sum(self.widths), bias=False) for widths in (source, target))
        self.gate = RecurrentLinear(hidden_dim, hidden_dim)
        self.share = nn.Sigmoid()  # ``z``; a module, as in :class:`AdaptiveGRUCell`
        parts = [gates * hidden_dim for gates in (*self.cell.normalised, 1)]
        self.source_norm, self.target_norm = layer_norm(norm, *parts), layer_norm(norm and len(target) > 0, *parts)

    def initialise(self, scheme: Scheme) -> None:
        """Fill matrices gate by gate, as :meth:`Cell.initialise` does."""
        for layer in (*self.source.values(), *self.target.values()):
            by_gate(scheme.square_, layer.weight, self.cell.hidden_dim)  # type: ignore[arg-type]

    @property
    def inputs(self) -> dict[str, nn.Module]:
        """The maps of the source's and of the target's inputs."""
        return {**self.source, **self.target}

    def project(self, name: str, value: Tensor) -> Tensor:
        """Project an input, as :meth:`Cell.project` does, ``... x (gates + 1)·n``."""
        term: Tensor = self.target[name](value)
        if len(self.target) == 1:
            term = self.target_norm(term)
        return term

    def output(self, state: Tensor) -> Tensor:
        """``h``, ``... x n``."""
        return self.cell.output(state)

    def forward(self, state: Tensor, projected: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Run one step, as :meth:`Cell.forward` does."""
        known = {name: inputs.pop(name) for name in [*inputs] if name in self.target}
        target = add_inputs(self.target, projected, known)  # N x (gates + 1)·n
        source = add_inputs(self.source, None, inputs)
        source, gate = self.source_norm(source).to(state.dtype).split(self.widths, dim=1)
        gate = gate + self.gate(state)  # N x n
        if target is not None:
            target = self.target_norm(target) if known else target
            target, term = target.to(state.dtype).split(self.widths, dim=1)
            gate = gate + term
        gate = self.share(gate.to(state.dtype))
        scales = SCALES[self.kind](gate.repeat(1, self.cell.gates))  # for C c, and for W y and U h, N x gates·n or 1
        total = self.cell.bias + scales[0] * source
        if target is None:
            state = SCALES[self.kind](gate)[1] * state
            return stepped(self.cell, total, self.cell.recall(state), state)
        return stepped(self.cell, total + scales[1] * target, scales[1] * self.cell.recall(state), state)


SCALES: dict[str, Callable[[Tensor], Any]] = {
    "source": lambda z: (z, 1),
    "target": lambda z: (1, z),
    "both": lambda z: (z, 1 - z),
}
"""A context gate's scales of the source's terms and of the target's terms."""


class DeepCell(nn.Module):
    """A deep transition: cells one after another within a step (Pascanu et al. 2014, Miceli Barone et al. 2017).

    ``h^1 = cell_1(x, h^d)`` with the previous step's ``h^d``, and ``h^k = cell_k(h^{k-1})`` reads only the state.

    Args:
        cells: the first cell has the inputs, the others have none.
    """

    cells: Any

    def __init__(self, cells: Sequence[Any]):
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.state_dim = cells[-1].state_dim

    @property
    def inputs(self) -> Any:
        """The inputs of the first cell."""
        return self.cells[0].inputs

    def project(self, name: str, value: Tensor) -> Tensor:
        """Project an input of the first cell."""
        projected: Tensor = self.cells[0].project(name, value)
        return projected

    def output(self, state: Tensor) -> Tensor:
        """Return the last cell's output."""
        output: Tensor = self.cells[-1].output(state)
        return output

    def forward(self, state: Tensor, projected: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Run one step, as :meth:`Cell.forward` does."""
        first, *others = self.cells
        state = first(state, projected, **inputs)
        for cell in others:
            state = cell(state)
        return state


class StackedCell(DeepCell):
    """Cells one above the other as a single cell: each reads the output of the cell below.

    Its state is all their states, ``N x (layers · state width)``.  Its inputs are those of the lowest cell, and its
    output is that of the highest cell.

    Args:
        cells: from the lowest to the highest; all except the lowest have the input ``below``, and either all of these
            or none have ``context``.
        dropout: between the cells.
        residuals: the number of the cell, from 1, from which on the input from below is added to the output, or 0.
    """

    def __init__(self, cells: Sequence[Any], dropout: float = 0.0, residuals: int = 0):
        super().__init__(cells)
        self.state_dim = sum(cell.state_dim for cell in cells)
        self.dropout = nn.Dropout(dropout)
        self.residuals = residuals
        self.shares_context = "context" in cells[-1].inputs  # with all cells except the lowest, or with none

    def outputs(self, state: Tensor) -> list[Tensor]:
        """Return the outputs of all cells, with residuals, ``... x n``."""
        found = [state]  # the lowest cell has no residual
        for number, (cell, own) in enumerate(zip(self.cells, state.chunk(len(self.cells), dim=-1)), start=1):
            found.append(with_residual(self.residuals, number, cell.output(own), found[-1]))
        return found[1:]

    def output(self, state: Tensor) -> Tensor:
        """Return the output of the highest cell, with residuals."""
        return self.outputs(state)[-1]

    def forward(self, state: Tensor, projected: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Run one step of every cell, as :meth:`Cell.forward` does."""
        lowest, *above = self.cells
        own, *others = state.chunk(len(self.cells), dim=-1)
        states: list[Tensor] = [lowest(own, projected, **inputs)]
        below = lowest.output(states[0])
        shared = {"context": inputs["context"]} if self.shares_context else {}
        for number, (cell, own) in enumerate(zip(above, others), start=2):
            states.append(cell(own, below=self.dropout(below), **shared))
            below = with_residual(self.residuals, number, cell.output(states[-1]), below)
        return torch.cat(states, dim=-1)


def with_residual(residuals: int, number: int, output: Tensor, below: Tensor) -> Tensor:
    """Return the output of layer ``number``, from 1, plus its input if the layer has a residual (Wu et al. 2016)."""
    return output + below if 0 < residuals <= number else output


def deepened(cell: Any, kind: MakeCell, hidden_dim: int, further: int) -> Any:
    """Return the cell, followed within a step by ``further`` cells of a kind, which read only the state."""
    return DeepCell([cell, *(kind({}, hidden_dim) for _ in range(further))]) if further else cell

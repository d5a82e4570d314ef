"""Triton kernels for what a step does elementwise, so that a GPU is not kept waiting by launches.

The equations are those of :mod:`.cells` and :mod:`.attention`: each class here has the interface of the plain
arithmetic that it names as ``plain``, and keeps the same numbers, so that either can read what the other has kept.
Gates take one launch each way.  Energies take one, and their derivative one and a sum; no ``N x S x A`` tensor is made.

Inside, numbers are float32, or float64 where the tensors are.  On a CPU the plain arithmetic does the work, except
under Triton's interpreter (``TRITON_INTERPRET=1``).  Nothing imports this module, and with it Triton, unless its
kernels are asked for.

Shapes: ``B`` batch, ``N`` rows of states, ``S`` source length, ``A`` attention width, ``n`` hidden width.
"""

from typing import Any, Dict, Sequence, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from .attention import Energies, energy_dtype
from .cells import AdaptiveGates, Gradients, GRUGates, LSTMGates
from .state import grouped

BLOCK = 256  # hidden units of a program
LENGTH, WIDTH = 16, 64  # source positions and attention units that a program holds at once


def use_triton(model: nn.Module) -> None:
    """Let every part of ``model`` that has plain arithmetic launch kernels instead."""
    for module in model.modules():
        if hasattr(module, "arithmetic"):
            module.arithmetic = KERNELS[module.arithmetic]


@triton.jit
def read(place, mask, dtype: tl.constexpr):
    """Numbers of one type; zero outside the mask."""
    return tl.load(place, mask=mask, other=0.0).to(dtype)


@triton.jit
def tanh(x):
    """By the sigmoid, which the interpreter has too; exact to the last digits of 1, not of ``x``."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def gru_forward(
    inputs, recurrent, previous, kept, following,
    inputs_row, recurrent_row, previous_row, kept_row, following_row,
    n, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """:meth:`.cells.GRUGates.forward`."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = unit < n
    inputs += row * inputs_row + unit
    recurrent += row * recurrent_row + unit
    kept += row * kept_row + unit
    reset = tl.sigmoid(read(inputs, mask, dtype) + read(recurrent, mask, dtype))
    update = tl.sigmoid(read(inputs + n, mask, dtype) + read(recurrent + n, mask, dtype))
    projected = read(recurrent + 2 * n, mask, dtype)
    candidate = tanh(read(inputs + 2 * n, mask, dtype) + reset * projected)
    before = read(previous + row * previous_row + unit, mask, dtype)
    tl.store(following + row * following_row + unit, candidate + update * (before - candidate), mask)
    tl.store(kept, reset, mask)
    tl.store(kept + n, update, mask)
    tl.store(kept + 2 * n, projected, mask)
    tl.store(kept + 3 * n, candidate, mask)


@triton.jit
def gru_backward(
    grad, previous, kept, grad_inputs, grad_recurrent, grad_previous,
    grad_row, previous_row, kept_row, grad_inputs_row, grad_recurrent_row, grad_previous_row,
    n, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """:meth:`.cells.GRUGates.backward`."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = unit < n
    kept += row * kept_row + unit
    grad_inputs += row * grad_inputs_row + unit
    grad_recurrent += row * grad_recurrent_row + unit
    reset, update = read(kept, mask, dtype), read(kept + n, mask, dtype)
    projected, candidate = read(kept + 2 * n, mask, dtype), read(kept + 3 * n, mask, dtype)
    before = read(previous + row * previous_row + unit, mask, dtype)
    outer = read(grad + row * grad_row + unit, mask, dtype)
    grad_candidate = outer * (1 - update) * (1 - candidate * candidate)
    grad_reset = grad_candidate * projected * reset * (1 - reset)
    grad_update = outer * (before - candidate) * update * (1 - update)
    tl.store(grad_previous + row * grad_previous_row + unit, outer * update, mask)
    tl.store(grad_inputs, grad_reset, mask)
    tl.store(grad_inputs + n, grad_update, mask)
    tl.store(grad_inputs + 2 * n, grad_candidate, mask)
    tl.store(grad_recurrent, grad_reset, mask)
    tl.store(grad_recurrent + n, grad_update, mask)
    tl.store(grad_recurrent + 2 * n, grad_candidate * reset, mask)


@triton.jit
def adaptive_forward(
    inputs, recurrent, previous, kept, following,
    inputs_row, recurrent_row, previous_row, kept_row, following_row,
    n, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """:meth:`.cells.AdaptiveGates.forward`."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = unit < n
    inputs += row * inputs_row + unit
    recurrent += row * recurrent_row + unit
    kept += row * kept_row + unit
    share = tl.sigmoid(read(inputs + 3 * n, mask, dtype) + read(recurrent + 3 * n, mask, dtype))
    input_reset, input_update = read(inputs, mask, dtype), read(inputs + n, mask, dtype)
    pull_reset = read(recurrent, mask, dtype) - input_reset
    pull_update = read(recurrent + n, mask, dtype) - input_update
    reset = tl.sigmoid(input_reset + share * pull_reset)
    update = tl.sigmoid(input_update + share * pull_update)
    projected = read(recurrent + 2 * n, mask, dtype)
    input_candidate = read(inputs + 2 * n, mask, dtype)
    pull_candidate = reset * projected - input_candidate
    candidate = tanh(input_candidate + share * pull_candidate)
    before = share * read(previous + row * previous_row + unit, mask, dtype)
    tl.store(following + row * following_row + unit, candidate + update * (before - candidate), mask)
    tl.store(kept, share, mask)
    tl.store(kept + n, reset, mask)
    tl.store(kept + 2 * n, update, mask)
    tl.store(kept + 3 * n, pull_reset, mask)
    tl.store(kept + 4 * n, pull_update, mask)
    tl.store(kept + 5 * n, pull_candidate, mask)
    tl.store(kept + 6 * n, projected, mask)
    tl.store(kept + 7 * n, candidate, mask)


@triton.jit
def adaptive_backward(
    grad, previous, kept, grad_inputs, grad_recurrent, grad_previous,
    grad_row, previous_row, kept_row, grad_inputs_row, grad_recurrent_row, grad_previous_row,
    n, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """:meth:`.cells.AdaptiveGates.backward`."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = unit < n
    kept += row * kept_row + unit
    grad_inputs += row * grad_inputs_row + unit
    grad_recurrent += row * grad_recurrent_row + unit
    share, reset, update = read(kept, mask, dtype), read(kept + n, mask, dtype), read(kept + 2 * n, mask, dtype)
    projected, candidate = read(kept + 6 * n, mask, dtype), read(kept + 7 * n, mask, dtype)
    before = read(previous + row * previous_row + unit, mask, dtype)
    outer = read(grad + row * grad_row + unit, mask, dtype)
    grad_kept = outer * update
    sum_candidate = (outer - grad_kept) * (1 - candidate * candidate)
    sum_reset = sum_candidate * share * projected * reset * (1 - reset)
    sum_update = outer * (share * before - candidate) * update * (1 - update)
    grad_share = grad_kept * before + sum_reset * read(kept + 3 * n, mask, dtype)
    grad_share += sum_update * read(kept + 4 * n, mask, dtype) + sum_candidate * read(kept + 5 * n, mask, dtype)
    grad_share *= share * (1 - share)
    tl.store(grad_previous + row * grad_previous_row + unit, grad_kept * share, mask)
    tl.store(grad_inputs, sum_reset * (1 - share), mask)
    tl.store(grad_inputs + n, sum_update * (1 - share), mask)
    tl.store(grad_inputs + 2 * n, sum_candidate * (1 - share), mask)
    tl.store(grad_inputs + 3 * n, grad_share, mask)
    tl.store(grad_recurrent, sum_reset * share, mask)
    tl.store(grad_recurrent + n, sum_update * share, mask)
    tl.store(grad_recurrent + 2 * n, sum_candidate * share * reset, mask)
    tl.store(grad_recurrent + 3 * n, grad_share, mask)


@triton.jit
def lstm_forward(
    inputs, recurrent, previous, kept, following,
    inputs_row, recurrent_row, previous_row, kept_row, following_row,
    n, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """:meth:`.cells.LSTMGates.forward`."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = unit < n
    inputs += row * inputs_row + unit
    recurrent += row * recurrent_row + unit
    kept += row * kept_row + unit
    following += row * following_row + unit
    write = tl.sigmoid(read(inputs, mask, dtype) + read(recurrent, mask, dtype))
    forget = tl.sigmoid(read(inputs + n, mask, dtype) + read(recurrent + n, mask, dtype))
    candidate = tanh(read(inputs + 2 * n, mask, dtype) + read(recurrent + 2 * n, mask, dtype))
    output = tl.sigmoid(read(inputs + 3 * n, mask, dtype) + read(recurrent + 3 * n, mask, dtype))
    cell = forget * read(previous + row * previous_row + n + unit, mask, dtype) + write * candidate
    squashed = tanh(cell)
    tl.store(following, output * squashed, mask)
    tl.store(following + n, cell, mask)
    tl.store(kept, write, mask)
    tl.store(kept + n, forget, mask)
    tl.store(kept + 2 * n, candidate, mask)
    tl.store(kept + 3 * n, output, mask)
    tl.store(kept + 4 * n, squashed, mask)


@triton.jit
def lstm_backward(
    grad, previous, kept, grad_inputs, grad_recurrent, grad_previous,
    grad_row, previous_row, kept_row, grad_inputs_row, grad_recurrent_row, grad_previous_row,
    n, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """:meth:`.cells.LSTMGates.backward`."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = unit < n
    kept += row * kept_row + unit
    grad += row * grad_row + unit
    grad_inputs += row * grad_inputs_row + unit
    grad_recurrent += row * grad_recurrent_row + unit
    grad_previous += row * grad_previous_row + unit
    write, forget = read(kept, mask, dtype), read(kept + n, mask, dtype)
    candidate, output = read(kept + 2 * n, mask, dtype), read(kept + 3 * n, mask, dtype)
    squashed = read(kept + 4 * n, mask, dtype)
    grad_hidden = read(grad, mask, dtype)
    grad_cell = read(grad + n, mask, dtype) + grad_hidden * output * (1 - squashed * squashed)
    before = read(previous + row * previous_row + n + unit, mask, dtype)
    sum_write = grad_cell * candidate * write * (1 - write)
    sum_forget = grad_cell * before * forget * (1 - forget)
    sum_candidate = grad_cell * write * (1 - candidate * candidate)
    sum_output = grad_hidden * squashed * output * (1 - output)
    tl.store(grad_previous, tl.zeros_like(grad_cell), mask)
    tl.store(grad_previous + n, grad_cell * forget, mask)
    tl.store(grad_inputs, sum_write, mask)
    tl.store(grad_inputs + n, sum_forget, mask)
    tl.store(grad_inputs + 2 * n, sum_candidate, mask)
    tl.store(grad_inputs + 3 * n, sum_output, mask)
    tl.store(grad_recurrent, sum_write, mask)
    tl.store(grad_recurrent + n, sum_forget, mask)
    tl.store(grad_recurrent + 2 * n, sum_candidate, mask)
    tl.store(grad_recurrent + 3 * n, sum_output, mask)


@triton.jit
def energies_forward(
    query, keys, vector, energies, query_row, keys_row, keys_position, energies_row,
    served, length, width, dtype: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """:meth:`.attention.Energies.forward`: a program has some positions of a row, and goes through the width."""
    row, position = tl.program_id(0).to(tl.int64), tl.program_id(1) * LENGTH + tl.arange(0, LENGTH)
    keys += row // served * keys_row + position[:, None] * keys_position
    energy = tl.zeros([LENGTH], dtype)
    for begin in range(0, width, WIDTH):
        unit = begin + tl.arange(0, WIDTH)
        mask = unit < width
        asked = read(query + row * query_row + unit, mask, dtype)[None, :]
        hidden = tanh(asked + read(keys + unit[None, :], (position < length)[:, None] & mask[None, :], dtype))
        energy += tl.sum(hidden * read(vector + unit, mask, dtype)[None, :], axis=1)
    tl.store(energies + row * energies_row + position, energy, position < length)


@triton.jit
def energies_backward(
    grad, query, keys, vector, grad_keys, grad_query, grad_vector,
    grad_row, query_row, keys_row, keys_position, grad_keys_row, grad_keys_position, grad_query_row, grad_vector_row,
    length, width, dtype: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """:meth:`.attention.Energies.backward` of one row a sentence; ``grad_vector`` is each row's.

    A program has some units of a sentence, and goes through the positions: nobody else writes where it does.
    """
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    mask = unit < width
    asked = read(query + row * query_row + unit, mask, dtype)[None, :]
    scale = read(vector + unit, mask, dtype)
    slopes = tl.zeros([LENGTH, WIDTH], dtype)
    shares = tl.zeros([LENGTH, WIDTH], dtype)
    for begin in range(0, length, LENGTH):
        position = begin + tl.arange(0, LENGTH)
        both = (position < length)[:, None] & mask[None, :]
        here = keys + row * keys_row + position[:, None] * keys_position + unit[None, :]
        there = grad_keys + row * grad_keys_row + position[:, None] * grad_keys_position + unit[None, :]
        outer = read(grad + row * grad_row + position, position < length, dtype)[:, None]
        hidden = tanh(asked + read(here, both, dtype))
        slope = outer * (1 - hidden * hidden)
        tl.store(there, read(there, both, dtype) + slope * scale[None, :], both)
        slopes += slope
        shares += outer * hidden
    tl.store(grad_query + row * grad_query_row + unit, tl.sum(slopes, axis=0) * scale, mask)
    tl.store(grad_vector + row * grad_vector_row + unit, tl.sum(shares, axis=0), mask)


INTERPRETED = not isinstance(read, triton.JITFunction)


def runs_on(tensor: Tensor) -> bool:
    """Whether kernels can run on it."""
    return tensor.is_cuda or INTERPRETED


def launch(
    kernel: Any, grid: Tuple[int, int], reads: Sequence[Tensor], writes: Sequence[Tensor], *sizes: int, **blocks: int
) -> None:
    """Run a kernel whose arguments are tensors, the strides of all their dimensions but the last, and sizes."""
    tensors = [*(tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in reads), *writes]
    strides = [stride for tensor in tensors for stride in tensor.stride()[:-1]]
    dtype = tl.float64 if writes[0].dtype == torch.float64 else tl.float32
    with torch.cuda.device_of(tensors[0]):
        kernel[grid](*tensors, *strides, *sizes, dtype=dtype, **blocks)


class TritonGates:
    """The elementwise half of a cell's step and its derivative, ``plain``'s, one launch each."""

    plain: Any
    keeps: int
    gates: int  # in the inputs, each n wide
    kernels: Tuple[Any, Any]  # forward, backward

    @classmethod
    def forward(cls, inputs: Tensor, recurrent: Tensor, previous: Tensor, kept: Tensor) -> Tensor:
        if not runs_on(previous):
            return cls.plain.forward(inputs, recurrent, previous, kept)
        following = previous.new_empty(previous.shape)
        cls.launch(cls.kernels[0], [inputs, recurrent, previous], [kept, following], kept)
        return following

    @classmethod
    def backward(cls, grad: Tensor, previous: Tensor, kept: Tensor) -> Gradients:
        if not runs_on(previous):
            return cls.plain.backward(grad, previous, kept)
        width = cls.gates * (kept.size(1) // cls.keeps)
        gradients = grad.new_empty(len(grad), width), grad.new_empty(len(grad), width), grad.new_empty(grad.shape)
        cls.launch(cls.kernels[1], [grad, previous, kept], gradients, kept)
        return gradients

    @classmethod
    def launch(cls, kernel: Any, reads: Sequence[Tensor], writes: Sequence[Tensor], kept: Tensor) -> None:
        """A program for each row and block of units."""
        n = kept.size(1) // cls.keeps
        launch(kernel, (len(kept), triton.cdiv(n, BLOCK)), reads, writes, n, BLOCK=BLOCK)


class TritonGRUGates(TritonGates):
    """A GRU's."""

    plain, keeps, gates = GRUGates, GRUGates.keeps, 3
    kernels = gru_forward, gru_backward


class TritonAdaptiveGates(TritonGates):
    """An adaptively weighted GRU's."""

    plain, keeps, gates = AdaptiveGates, AdaptiveGates.keeps, 4
    kernels = adaptive_forward, adaptive_backward


class TritonLSTMGates(TritonGates):
    """An LSTM's."""

    plain, keeps, gates = LSTMGates, LSTMGates.keeps, 4
    kernels = lstm_forward, lstm_backward


class TritonEnergies:
    """The energies and their derivative; those with features are left to ``plain``."""

    plain = Energies

    @staticmethod
    def fits(keys: Tensor, features: Any) -> bool:
        """Whether kernels can serve."""
        return features is None and keys.stride(-1) == 1 and runs_on(keys)

    @classmethod
    def forward(cls, query: Tensor, keys: Tensor, vector: Tensor, features: Any, matrix: Any) -> Tensor:
        if not cls.fits(keys, features):
            return cls.plain.forward(query, keys, vector, features, matrix)
        rows, (sentences, length, width) = len(query), keys.shape
        energies = keys.new_empty(rows, length, dtype=energy_dtype(vector))
        grid, sizes = (rows, triton.cdiv(length, LENGTH)), (rows // sentences, length, width)
        launch(energies_forward, grid, [query, keys, vector], [energies], *sizes, LENGTH=LENGTH, WIDTH=WIDTH)
        return energies

    @classmethod
    def backward(
        cls,
        grad: Tensor,
        query: Tensor,
        keys: Tensor,
        vector: Tensor,
        features: Any,
        matrix: Any,
        grad_keys: Tensor,
    ) -> Tuple[Any, Any, Any, Any]:
        if not cls.fits(keys, features):
            return cls.plain.backward(grad, query, keys, vector, features, matrix, grad_keys)
        sentences, length, width = keys.shape
        grad_query = query.new_empty(query.shape)
        grad_vector = query.new_empty(query.shape, dtype=grad.dtype)
        grid = sentences, triton.cdiv(width, WIDTH)
        places = zip(*(grouped(rows, keys).unbind(1) for rows in (grad, query, grad_query, grad_vector)))
        for grad_, query_, grad_query_, grad_vector_ in places:  # one, except in a beam
            reads, writes = [grad_, query_, keys, vector], [grad_keys, grad_query_, grad_vector_]
            launch(energies_backward, grid, reads, writes, length, width, LENGTH=LENGTH, WIDTH=WIDTH)
        return grad_query, grad_vector.sum(0), None, None


KERNELS: Dict[Any, Any] = {
    GRUGates: TritonGRUGates,
    AdaptiveGates: TritonAdaptiveGates,
    LSTMGates: TritonLSTMGates,
    Energies: TritonEnergies,
}

"""Products with what stays the same in a time loop: their gradients are formed once, after the loop.

Autograd would form the gradient of a weight at every step, as a thin product, and add it to the sum of the others.
Within :func:`time_loop` each step only notes its two factors; when the backward pass has gone through all steps (or
through many), one product of the notes is the gradient.

What the steps make and others read after the loop stands in a :class:`Record`, once, and what they keep for the
backward pass in large pieces (:func:`to_keep`): many small ones would leave holes that nothing else fits in.

Shapes: ``B`` batch, ``N`` rows of states (``B``, or in beam search all hypotheses), ``S`` source length, ``T`` steps.
"""

from collections import defaultdict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .packed import affine, prepared
from .state import grouped

Entries = TypeVar("Entries", bound=Any)  # a named tuple
Kind = TypeVar("Kind", bound="Notes")

MANY = 32  # notes are turned into a gradient whenever there are so many, which bounds the memory that they hold


class Notes:
    """What the steps of a backward pass note of a constant, and the gradient that it makes.

    Passes are told apart, so that one that stops before the constant leaves nothing to another.

    Args:
        constant: as the steps use it.
    """

    def __init__(self, constant: Tensor):
        self.constant = constant.detach()
        self.noted: Dict[int, Tuple[int, Tensor, Tensor]] = {}
        self.sums: Dict[int, Tensor] = {}

    def add(self, value: Tensor, grad: Tensor) -> None:
        """Note a step's input and the gradient of its output."""
        number = torch._C._current_graph_task_id()
        if number not in self.noted:
            # copied to where products read them, so that the steps' own memory is free at once
            self.noted[number] = 0, value.new_empty(MANY, *value.shape), grad.new_empty(MANY, *grad.shape)
        count, values, grads = self.noted[number]
        values[count], grads[count] = value, grad
        self.noted[number] = count + 1, values, grads
        if count + 1 == MANY:
            self._sum_up(number)

    def add_up(self, total: Tensor, inputs: Tensor, grads: Tensor) -> None:
        """Add to the gradient what inputs and gradients of outputs, both ``steps x ...``, make of it."""
        raise NotImplementedError

    def sum(self) -> Tensor:
        """The gradient so far, zero at first; steps that note nothing add to it themselves."""
        number = torch._C._current_graph_task_id()
        if number not in self.sums:
            self.sums[number] = torch.zeros_like(self.constant)
        return self.sums[number]

    def gradient(self) -> Optional[Tensor]:
        """The constant's gradient; nothing stays noted."""
        number = torch._C._current_graph_task_id()
        if number in self.noted:
            self._sum_up(number)
            del self.noted[number]
        return self.sums.pop(number, None)

    def _sum_up(self, number: int) -> None:
        count, values, grads = self.noted[number]
        if count:
            self.add_up(self.sum(), values[:count], grads[:count])
        self.noted[number] = 0, values, grads


class Weight(Notes):
    """Notes of a weight ``out x in``, and the products with it, by whether it is transposed."""

    def __init__(self, constant: Tensor):
        super().__init__(constant)
        self.prepared: Dict[bool, Callable[..., Tensor]] = {}

    def product(self, value: Tensor, plus: Optional[Tensor] = None, transposed: bool = False) -> Tensor:
        """``value @ weight.T + plus``, or ``value @ weight + plus``, for values of as many rows every time."""
        if transposed not in self.prepared:
            self.prepared[transposed] = prepared(self.constant.t() if transposed else self.constant, len(value))
        return self.prepared[transposed](value, plus)

    def add_up(self, total: Tensor, inputs: Tensor, grads: Tensor) -> None:
        total.addmm_(grads.flatten(0, 1).t(), inputs.flatten(0, 1))


class Values(Notes):
    """Notes of values ``B x S x a`` of which steps form weighted sums."""

    def add_up(self, total: Tensor, inputs: Tensor, grads: Tensor) -> None:
        weights, grads = (noted.transpose(0, 1).flatten(1, 2) for noted in (inputs, grads))
        total.baddbmm_(weights.transpose(1, 2), grads)


class _Constant(Function):
    """Hands a tensor to all steps; its gradient is what they noted."""

    @staticmethod
    def forward(ctx, constant: Tensor, notes: Notes) -> Tensor:
        ctx.notes = notes
        ctx.set_materialize_grads(False)
        return constant.view_as(constant)

    @staticmethod
    def backward(ctx, _):
        return ctx.notes.gradient(), None


class _Linear(Function):
    """``value @ weight.T + plus``, which notes what the gradient of ``weight`` needs."""

    @staticmethod
    def forward(ctx, value: Tensor, weight: Tensor, plus: Optional[Tensor], notes: Weight) -> Tensor:
        value = value.to(weight.dtype)
        ctx.save_for_backward(value, weight)
        ctx.notes, ctx.plus = notes, 0 if plus is None else plus.dim()
        return notes.product(value, None if plus is None else plus.to(weight.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        value, _ = ctx.saved_tensors  # the weight, so that autograd notices if it has been changed since
        ctx.notes.add(value, grad)
        grad_plus = grad.sum(0) if ctx.plus == 1 else grad if ctx.plus else None
        return ctx.notes.product(grad, transposed=True), None, grad_plus, None


class _WeightedSum(Function):
    """``Σ_j w_j v_j``, which notes what the gradient of the values needs."""

    @staticmethod
    def forward(ctx, weights: Tensor, values: Tensor, notes: Notes) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.notes = notes
        return torch.bmm(weights, values)

    @staticmethod
    def backward(ctx, grad: Tensor):
        weights, values = ctx.saved_tensors
        ctx.notes.add(weights, grad)
        return torch.bmm(values, grad.transpose(1, 2)).transpose(1, 2), None, None


class Loop:
    """The constants of one run of the time loop."""

    def __init__(self) -> None:
        self.constants: Dict[int, Tuple[Tensor, Any, Tensor]] = {}
        self.places: Dict[Tuple, List[Tensor]] = defaultdict(list)

    def to_keep(self, shape: Tuple[int, ...], like: Tensor) -> Tensor:
        """Memory for what a step keeps; the system is asked for that of :data:`MANY` steps at once."""
        places = self.places[shape, like.dtype]
        if not places:
            # .data, so that to autograd the writing of one place is no change of the others
            places.extend(place.data for place in like.new_empty(MANY, *shape).unbind())
        return places.pop()

    def constant(self, tensor: Tensor, kind: Type[Kind]) -> Tuple[Tensor, Kind]:
        """The tensor as products use it, and where the steps note; the same for all steps."""
        if id(tensor) not in self.constants:
            used = _as_products_are(tensor)
            notes = kind(used)
            # the tensor itself is kept, so that no other takes its id
            self.constants[id(tensor)] = _Constant.apply(used, notes), notes, tensor
        return self.constants[id(tensor)][:2]


_LOOP: ContextVar[Optional[Loop]] = ContextVar("loop", default=None)


def current_loop() -> Optional[Loop]:
    """The loop that is being run, if any."""
    return _LOOP.get()


def to_keep(shape: Tuple[int, ...], like: Tensor) -> Tensor:
    """Uninitialised memory for what a step keeps for its backward pass."""
    loop = _LOOP.get()
    return like.new_empty(shape) if loop is None else loop.to_keep(shape, like)


@contextmanager
def time_loop() -> Iterator[None]:
    """The steps of one loop run inside; without gradients it changes nothing."""
    token = _LOOP.set(Loop() if torch.is_grad_enabled() else None)
    try:
        yield
    finally:
        _LOOP.reset(token)


class _Write(Function):
    """Moves a step's value to its place in the record."""

    @staticmethod
    def forward(ctx, value: Tensor, place: Tensor) -> Tensor:
        return place.copy_(value)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return grad, None


class _Read(Function):
    """The record as one tensor that has its gradient from the steps' values."""

    @staticmethod
    def forward(ctx, record: Tensor, *values: Tensor) -> Tensor:
        return record

    @staticmethod
    def backward(ctx, grad: Tensor):
        return None, *grad.unbind(1)


class Record:
    """Values of every step, held once: what a step leaves is a place in the whole.

    ``torch.stack`` would copy what autograd keeps for the steps anyway.

    Args:
        steps: ``T``.
        names: fields of the named tuples that :meth:`add` is given.
    """

    def __init__(self, steps: int, names: Sequence[str]):
        self.steps = steps
        self.names = names
        self.values: Dict[str, List[Tensor]] = defaultdict(list)
        self.records: Dict[str, Tensor] = {}

    def add(self, entries: Entries) -> Entries:
        """The next step's entries ``N x d``, those that are recorded in their places."""
        return entries._replace(**{name: self._placed(name, getattr(entries, name)) for name in self.names})

    def _placed(self, name: str, value: Optional[Tensor]) -> Optional[Tensor]:
        if value is None:
            return None
        if name not in self.records:
            self.records[name] = value.new_empty(value.size(0), self.steps, value.size(1))
        values = self.values[name]
        # .data, as in Loop.to_keep
        values.append(_Write.apply(value, self.records[name][:, len(values)].data))
        return values[-1]

    def read(self, name: str) -> Any:
        """``N x T x d``; None where the steps have none."""
        return _Read.apply(self.records[name], *self.values[name]) if name in self.records else None


class LoopLinear(nn.Linear):
    """``W x + b``, inside a time loop or outside it."""

    def forward(self, value: Tensor, plus: Optional[Tensor] = None) -> Tensor:
        """``plus + W x + b``, ``B x out``; ``plus`` is ``B x out`` or None."""
        loop = _LOOP.get()
        if plus is None:
            plus = self.bias
        elif self.bias is not None:
            plus = plus + self.bias
        if loop is None or value.dim() > 2:
            return affine(value, plus, matrix=self.weight)
        weight, notes = loop.constant(self.weight, Weight)
        return _Linear.apply(value, weight, plus, notes)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """``Σ_j w_j v_j``, ``N x a``, of weights ``N x S`` and values ``B x S x a``."""
    loop = _LOOP.get()
    if loop is None:
        return torch.bmm(grouped(weights.to(values.dtype), values), values).flatten(0, 1)
    values, notes = loop.constant(values, Values)
    return _WeightedSum.apply(grouped(weights.to(values.dtype), values), values, notes).flatten(0, 1)


def _as_products_are(tensor: Tensor) -> Tensor:
    """``tensor`` in the number type that autocast, if it is on, would give to a product with it."""
    with torch.no_grad():
        row = tensor.reshape(-1, tensor.size(-1))[:1]
        dtype = (row @ row.t()).dtype
    return tensor.to(dtype)

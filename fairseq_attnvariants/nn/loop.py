"""Products with what stays the same in a time loop: their gradients are formed once, after the loop.

Autograd would form the gradient of a weight at every step, as a thin product, and add it to the sum of the others.
Within :func:`time_loop` each step only notes its two factors; when the backward pass has gone through all steps (or
through many), one product of the notes is the gradient.

Shapes: ``B`` batch, ``S`` source length, ``T`` steps.
"""

from collections import defaultdict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

MANY = 32  # notes are turned into a gradient whenever there are so many, which bounds the memory that they hold


class Notes:
    """What the steps of a backward pass note of a constant, and the gradient that it makes.

    Passes are told apart, so that one that stops before the constant leaves nothing to another.

    Args:
        form: makes a gradient of inputs and gradients of outputs.
    """

    def __init__(self, form: Callable[[Tuple[Tensor, ...], Tuple[Tensor, ...]], Tensor]):
        self.form = form
        self.noted: Dict[int, List[Tuple[Tensor, Tensor]]] = defaultdict(list)
        self.sums: Dict[int, Tensor] = {}

    def add(self, value: Tensor, grad: Tensor) -> None:
        """Note a step's input and the gradient of its output."""
        number = torch._C._current_graph_task_id()
        self.noted[number].append((value, grad))
        if len(self.noted[number]) == MANY:
            self._sum_up(number)

    def gradient(self) -> Optional[Tensor]:
        """The constant's gradient; nothing stays noted."""
        number = torch._C._current_graph_task_id()
        if self.noted[number]:
            self._sum_up(number)
        del self.noted[number]
        return self.sums.pop(number, None)

    def _sum_up(self, number: int) -> None:
        gradient = self.form(*zip(*self.noted[number]))
        self.sums[number] = self.sums[number].add_(gradient) if number in self.sums else gradient
        self.noted[number].clear()


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
    def forward(ctx, value: Tensor, weight: Tensor, plus: Optional[Tensor], notes: Notes) -> Tensor:
        value = value.to(weight.dtype)
        ctx.save_for_backward(value, weight)
        ctx.notes, ctx.plus = notes, 0 if plus is None else plus.dim()
        return F.linear(value, weight) if plus is None else torch.addmm(plus.to(weight.dtype), value, weight.t())

    @staticmethod
    def backward(ctx, grad: Tensor):
        value, weight = ctx.saved_tensors
        ctx.notes.add(value, grad)
        grad_plus = grad.sum(0) if ctx.plus == 1 else grad if ctx.plus else None
        return grad @ weight, None, grad_plus, None


class _WeightedSum(Function):
    """``Σ_j w_j v_j``, which notes what the gradient of the values needs."""

    @staticmethod
    def forward(ctx, weights: Tensor, values: Tensor, notes: Notes) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.notes = notes
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1)

    @staticmethod
    def backward(ctx, grad: Tensor):
        weights, values = ctx.saved_tensors
        ctx.notes.add(weights, grad)
        return torch.bmm(values, grad.unsqueeze(2)).squeeze(2), None, None


def _gradient_of_weight(inputs: Tuple[Tensor, ...], grads: Tuple[Tensor, ...]) -> Tensor:
    return torch.cat(grads).t() @ torch.cat(inputs)


def _gradient_of_values(weights: Tuple[Tensor, ...], grads: Tuple[Tensor, ...]) -> Tensor:
    return torch.bmm(torch.stack(weights, dim=2), torch.stack(grads, dim=1))


class Loop:
    """The constants of one run of the time loop."""

    def __init__(self) -> None:
        self.constants: Dict[int, Tuple[Tensor, Notes, Tensor]] = {}

    def constant(self, tensor: Tensor, form: Callable) -> Tuple[Tensor, Notes]:
        """The tensor as products use it, and where the steps note; the same for all steps."""
        if id(tensor) not in self.constants:
            notes = Notes(form)
            # the tensor itself is kept, so that no other takes its id
            self.constants[id(tensor)] = _Constant.apply(_as_products_are(tensor), notes), notes, tensor
        return self.constants[id(tensor)][:2]


_LOOP: ContextVar[Optional[Loop]] = ContextVar("loop", default=None)


@contextmanager
def time_loop() -> Iterator[None]:
    """The steps of one loop run inside; without gradients it changes nothing."""
    token = _LOOP.set(Loop() if torch.is_grad_enabled() else None)
    try:
        yield
    finally:
        _LOOP.reset(token)


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
            if plus is None or plus is self.bias:
                return F.linear(value, self.weight, plus)
            return torch.addmm(plus, value, self.weight.t())
        weight, notes = loop.constant(self.weight, _gradient_of_weight)
        return _Linear.apply(value, weight, plus, notes)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """``Σ_j w_j v_j``, ``B x a``, of weights ``B x S`` and values ``B x S x a``."""
    loop = _LOOP.get()
    if loop is None:
        return torch.bmm(weights.to(values.dtype).unsqueeze(1), values).squeeze(1)
    values, notes = loop.constant(values, _gradient_of_values)
    return _WeightedSum.apply(weights.to(values.dtype), values, notes)


def _as_products_are(tensor: Tensor) -> Tensor:
    """``tensor`` in the number type that autocast, if it is on, would give to a product with it."""
    with torch.no_grad():
        row = tensor.reshape(-1, tensor.size(-1))[:1]
        dtype = (row @ row.t()).dtype
    return tensor.to(dtype)

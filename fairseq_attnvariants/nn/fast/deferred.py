"""Gradients of a loop's matrices, formed once after its backward pass.

Autograd forms the gradient of a matrix at every step, as a thin product, and adds it to the sum of the others; in
bfloat16 that sum loses what is small beside it.  Here each step only notes the two factors, and one product of many
notes is the gradient.
"""

from functools import partial
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .twins import twin

AVAILABLE = hasattr(torch, "get_autocast_dtype")  # torch 2.4 and later
MANY = 32  # notes that are made a gradient of at once, which bounds the memory that they hold


class Notes:
    """What the steps of a backward pass note of a matrix: their numbers, inputs, and gradients of outputs.

    Steps are differentiated from the last to the first; so a number that is not below the one before it begins another
    backward pass, and what an unfinished one has left is dropped.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.lowest = 0
        self.noted: List[Tuple[Tensor, Tensor]] = []
        self.total: Optional[Tensor] = None

    def add(self, step: int, value: Tensor, grad: Tensor) -> None:
        """Note an input ``N x in`` and the gradient of its output, ``N x out``."""
        if step >= self.lowest:
            self.noted, self.total = [], None
        self.lowest = step
        self.noted.append((value, grad))
        if len(self.noted) == MANY:
            self.total, self.noted = self.sum(), []

    def sum(self) -> Optional[Tensor]:
        """The gradient so far, ``out x in``; None before the first note."""
        if not self.noted:
            return self.total
        values, grads = map(torch.cat, zip(*self.noted))
        product = grads.t() @ values
        return product if self.total is None else product.add_(self.total)

    def gradient(self) -> Optional[Tensor]:
        """The gradient of a finished backward pass; nothing stays noted."""
        total = self.sum()
        self.lowest, self.noted, self.total = 0, [], None
        return total


class _Constant(Function):
    """Hands a matrix to all steps; its gradient is what they noted."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, notes: Notes) -> Tensor:
        ctx.notes = notes
        ctx.set_materialize_grads(False)
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> Any:
        return ctx.notes.gradient(), None


class _Product(Function):
    """``W x``, which notes what the gradient of ``W`` needs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, notes: Notes) -> Tensor:
        value = value.to(weight.dtype)
        ctx.save_for_backward(value, weight)
        ctx.notes, ctx.step = notes, notes.steps
        notes.steps += 1
        return value @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        value, weight = ctx.saved_tensors
        ctx.notes.add(ctx.step, value, grad)
        return grad @ weight, None, None


class Deferred(nn.Module):
    """``W x + b`` in one run of a loop over an unchanged ``W``."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None):
        super().__init__()
        self.notes = Notes()
        self.weight = weight
        self.bias = bias
        self.constant: Optional[Tensor] = None  # made at the first step: not every matrix of a part is read in the loop

    def forward(self, value: Tensor) -> Tensor:
        """``N x out``, of ``N x in``."""
        if self.constant is None:
            weight, device = self.weight, self.weight.device.type
            if torch.is_autocast_enabled(device):
                weight = weight.to(torch.get_autocast_dtype(device))
            self.constant = _Constant.apply(weight, self.notes)
        product = _Product.apply(value, self.constant, self.notes)
        return product if self.bias is None else product + self.bias


def product(weight: Tensor, bias: Optional[Tensor] = None) -> Callable[[Tensor], Tensor]:
    """``x -> W x + b`` for the steps of one loop."""
    return Deferred(weight, bias) if pays(weight) else partial(F.linear, weight=weight, bias=bias)


def in_loop(module: Any) -> Any:
    """The module, or where it pays a copy for the steps of one loop that shares the parameters."""
    return twin(module, _replacement) if pays(next(module.parameters())) else module


def _replacement(part: nn.Module) -> Optional[nn.Module]:
    return Deferred(part.weight, part.bias) if isinstance(part, nn.Linear) else None


def pays(weight: Tensor) -> bool:
    """Whether gradients are deferred: in training, on a CPU."""
    return AVAILABLE and torch.is_grad_enabled() and weight.device.type == "cpu" and not torch.compiler.is_compiling()

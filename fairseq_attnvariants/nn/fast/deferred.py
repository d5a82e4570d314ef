"""Gradients of what all steps of a loop read, formed once after its backward pass.

Autograd forms the gradient of a matrix, or of the values that attention sums up, at every step, as a thin product, and
adds it to the sum of the others; in bfloat16 that sum loses what is small beside it.  Here each step only notes the two
factors, and one product of many notes is the gradient.
"""

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..attention import weighted_sum
from ..state import grouped

AVAILABLE = hasattr(torch, "get_autocast_dtype")  # torch 2.4 and later
MANY = 32  # notes that are made a gradient of at once, which bounds the memory that they hold


class Notes:
    """What the steps of a backward pass note of a constant: their numbers, and the factors of its gradient.

    Steps are differentiated from the last to the first; so a number that is not below the one before it begins another
    backward pass, and what an unfinished one has left is dropped.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.lowest = 0
        self.noted: List[Tuple[Tensor, Tensor]] = []
        self.total: Optional[Tensor] = None

    def number(self) -> int:
        """The next step's number."""
        self.steps += 1
        return self.steps - 1

    def turn_to(self, step: int) -> None:
        """A step is about to note something."""
        if step >= self.lowest:
            self.noted, self.total = [], None
        self.lowest = step

    def add(self, step: int, left: Tensor, right: Tensor) -> None:
        """Note factors ``... x N x out`` and ``... x N x in``: the gradient is the sum of ``left.T @ right``."""
        self.turn_to(step)
        self.noted.append((left, right))
        if len(self.noted) == MANY:
            self.total, self.noted = self.sum(), []

    def sum(self) -> Optional[Tensor]:
        """The gradient so far, ``... x out x in``; None before the first note."""
        if not self.noted:
            return self.total
        left, right = (torch.cat(factors, dim=-2) for factors in zip(*self.noted))
        product = left.transpose(-1, -2) @ right
        return product if self.total is None else product.add_(self.total)

    def place(self, step: int, like: Tensor) -> Tensor:
        """The gradient so far, zero at first, to which a step adds itself."""
        self.turn_to(step)
        if self.total is None:
            self.total = torch.zeros_like(like)
        return self.total

    def gradient(self) -> Optional[Tensor]:
        """The gradient of a finished backward pass; nothing stays noted."""
        total = self.sum()
        self.lowest, self.noted, self.total = 0, [], None
        return total


class Constant(Function):
    """Hands a tensor to all steps; its gradient is what they noted."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, notes: Notes) -> Tensor:
        ctx.notes = notes
        ctx.set_materialize_grads(False)
        return tensor.view_as(tensor)

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
        ctx.notes, ctx.step = notes, notes.number()
        return value @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        value, weight = ctx.saved_tensors
        ctx.notes.add(ctx.step, grad.flatten(0, -2), value.flatten(0, -2))
        return grad @ weight, None, None


class _Sum(Function):
    """``Σ_j w_j v_j``, which notes what the gradient of the values needs."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, notes: Notes) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.notes, ctx.step = notes, notes.number()
        return torch.bmm(weights, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weights, values = ctx.saved_tensors
        ctx.notes.add(ctx.step, weights, grad)
        return torch.bmm(grad, values.transpose(1, 2)), None, None


def constant(tensor: Tensor, notes: Notes) -> Tensor:
    """The tensor as products take it, with its gradient from the notes."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device):
        tensor = tensor.to(torch.get_autocast_dtype(device))
    return Constant.apply(tensor, notes)


class Deferred(nn.Module):
    """``W x + b`` in one run of a loop over an unchanged ``W``."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None):
        super().__init__()
        self.notes = Notes()
        self.weight = weight
        self.bias = bias
        self.constant: Optional[Tensor] = None  # made at the first step: not every matrix of a part is read in the loop

    def forward(self, value: Tensor) -> Tensor:
        """``... x out``, of ``... x in``."""
        if self.constant is None:
            self.constant = constant(self.weight, self.notes)
        product = _Product.apply(value, self.constant, self.notes)
        return product if self.bias is None else product + self.bias


class DeferredSum(nn.Module):
    """``Σ_j w_j v_j`` in one run of a loop, of the values that its first step has."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = Notes()
        self.values: Optional[Tensor] = None
        self.constant: Optional[Tensor] = None

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """``N x a``, of weights ``N x S`` and values ``B x S x a``."""
        if self.constant is None:
            self.values, self.constant = values, constant(values, self.notes)
        if values is not self.values:
            return weighted_sum(weights, values)
        rows = grouped(weights, values).to(self.constant.dtype)
        return _Sum.apply(rows, self.constant, self.notes).flatten(0, 1)


def pays(weight: Tensor) -> bool:
    """Whether gradients are deferred: in training, on a CPU."""
    return AVAILABLE and torch.is_grad_enabled() and weight.device.type == "cpu" and not torch.compiler.is_compiling()

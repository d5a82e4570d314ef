"""Gradients of matrices that all steps of a loop read, formed once after the loop's backward pass.

Autograd forms the gradient of a matrix at every step, as a thin product, and adds it to a sum.  In bfloat16 that sum
loses small terms.  Here each step only notes the two factors, and one product of many notes forms the gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from ..device import capturing, on_gpu
from ..twins import plain_linear, twin
from . import compiling, transforming

AVAILABLE = hasattr(torch, "get_autocast_dtype")  # torch 2.4 and later, which also numbers backward passes
MANY = 32  # notes that become a gradient at once; this limits their memory


class Notes:
    """The notes of the steps in a backward pass: the factors of a constant's gradient.

    A new backward pass drops the notes of an unfinished one.
    """

    def __init__(self) -> None:
        self.passing = -1
        self.noted: list[tuple[Tensor, Tensor]] = []
        self.total: Tensor | None = None

    def add(self, left: Tensor, right: Tensor) -> None:
        """Note the factors ``N x out`` and ``N x in``: the gradient is the sum of ``left.T @ right``."""
        passing = torch._C._current_graph_task_id()
        if passing != self.passing:
            self.noted, self.total, self.passing = [], None, passing
        self.noted.append((left, right))
        if len(self.noted) == MANY:
            self.total, self.noted = self.sum(), []

    def sum(self) -> Tensor | None:
        """Return the gradient so far, ``out x in``; None before the first note."""
        if not self.noted:
            return self.total
        left, right = (torch.cat(factors) for factors in zip(*self.noted))
        product = left.T @ right
        return product if self.total is None else product.add_(self.total)

    def gradient(self) -> Tensor | None:
        """Return the gradient of a finished backward pass, and drop the notes."""
        total = self.sum()
        self.noted, self.total = [], None
        return total


class Constant(Function):
    """Hands a tensor to all steps; its gradient comes from their notes."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, notes: Notes) -> Tensor:
        ctx.notes = notes
        ctx.set_materialize_grads(False)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, further: Tensor | None) -> Any:
        noted = ctx.notes.gradient()
        # further gradients arrive here if there are second derivatives
        return noted if further is None else further if noted is None else noted + further, None


class _Product(Function):
    """``W x``, which notes the factors of the gradient of ``W``."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, matrix: Tensor, notes: Notes) -> Tensor:
        ctx.save_for_backward(value, matrix)
        ctx.notes = notes
        return value @ matrix.mT

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        value, matrix = ctx.saved_tensors
        ctx.notes.add(*(torch.atleast_2d(each).flatten(0, -2) for each in (grad, value)))
        return grad @ matrix, None, None


class Deferred(nn.Module):
    """``W x + b`` in one run of a loop over an unchanged ``W``, ``out x in``."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.notes = Notes()
        self.weight = weight
        self.bias = bias
        self.out_features, self.in_features = weight.shape[-2:]  # as in the nn.Linear that it replaces
        self.constant: Tensor | None = None  # made at the first step, because a loop may not use it

    def forward(self, value: Tensor) -> Tensor:
        """``... x out``, from ``... x in``."""
        if self.constant is None:
            device = self.weight.device.type
            reduced = torch.is_autocast_enabled(device)
            weight = self.weight.to(torch.get_autocast_dtype(device)) if reduced else self.weight
            self.constant = Constant.apply(weight, self.notes)  # type: ignore[no-untyped-call]
        inputs = value.to(self.constant.dtype)
        product: Tensor = _Product.apply(inputs, self.constant, self.notes)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias


def deferred(module: Any) -> Any:
    """Return the module, or, if gradients are deferred, a copy for one loop that shares the parameters.

    Gradients are deferred on a CPU and in CUDA graphs, where only computing takes time.  Elsewhere on a GPU, the Python
    code would take more time than deferring saves.
    """
    if not AVAILABLE or not torch.is_grad_enabled() or compiling() or transforming():
        return module
    return module if on_gpu(next(module.parameters())) and not capturing() else twin(module, _deferred)


def _deferred(part: nn.Module) -> nn.Module | None:
    read: Any = part
    return Deferred(read.weight, read.bias) if plain_linear(part) and read.weight.requires_grad else None

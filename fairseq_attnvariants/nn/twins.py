"""Copies of modules that share the parameters and compute in another way."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


def plain_linear(part: nn.Module) -> bool:
    """Whether a component computes only ``W x + b``, so that another module may replace it."""
    hooks = (part._forward_pre_hooks, part._forward_hooks, part._backward_pre_hooks, part._backward_hooks)
    return isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward and not any(hooks)


def twin(module: Any, replacement: Callable[[nn.Module], nn.Module | None]) -> Any:
    """Return a copy of a module that shares everything except the components with a replacement."""
    other = replacement(module)
    if other is not None:
        return other
    copied = shallow(module)
    copied._modules = {
        name: None if part is None else twin(part, replacement) for name, part in module._modules.items()
    }
    return copied


def shallow(module: Any) -> Any:
    """Return a module of the same class with the same attributes; ``copy.copy`` refuses parametrized modules."""
    copied = object.__new__(type(module))
    copied.__dict__.update(module.__dict__)
    copied.__dict__.pop("_compiled_call_impl", None)  # in a compiled module: it would run the original
    return copied


def linear_of(like: nn.Module, weight: Tensor, bias: Tensor | None) -> Any:
    """Return a linear map of the same class, from tensors that need not be parameters."""
    copied = shallow(like)
    copied._parameters = {"weight": weight, "bias": bias}
    return copied

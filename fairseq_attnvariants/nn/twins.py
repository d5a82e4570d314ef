"""Modules that run a part over many steps, and copies that share their parameters and compute in another way."""

import copy
from typing import Any, Callable, Optional

from torch import nn


class Loop(nn.Module):
    """A module that runs a part over many steps, and asks before the first what is to stand for it there."""

    in_loop: Callable[[Any], Any] = staticmethod(lambda part: part)


def plain_linear(part: nn.Module) -> bool:
    """Whether a part is ``W x + b`` and nothing more, by whatever name, so that something else may stand for it."""
    hooks = (part._forward_pre_hooks, part._forward_hooks, part._backward_pre_hooks, part._backward_hooks)
    return isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward and not any(hooks)


def twin(module: Any, replacement: Callable[[nn.Module], Optional[nn.Module]]) -> Any:
    """A copy of a module that shares everything but the parts in it that have a replacement."""
    other = replacement(module)
    if other is not None:
        return other
    copied = copy.copy(module)
    copied._modules = {
        name: None if part is None else twin(part, replacement) for name, part in module._modules.items()
    }
    return copied

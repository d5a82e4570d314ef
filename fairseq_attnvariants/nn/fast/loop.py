"""Which parts of a module are replaced for the steps of one loop."""

from typing import Any, Optional

from torch import nn

from ..attention import WeightedSum
from ..twins import plain_linear, twin
from .deferred import Deferred, DeferredSum, pays


def in_loop(module: Any) -> Any:
    """The module, or where it pays a copy for the steps of one loop that shares the parameters."""
    return twin(module, _replacement) if pays(next(module.parameters())) else module


def _replacement(part: nn.Module) -> Optional[nn.Module]:
    if plain_linear(part):
        return Deferred(part.weight, part.bias)  # type: ignore[arg-type]
    return DeferredSum() if type(part) is WeightedSum else None

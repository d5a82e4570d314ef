"""Which parts of a module are replaced for the steps of one loop."""

from typing import Any, Optional

from torch import nn

from ..attention import WeightedSum
from ..cells import RecurrentLinear
from ..twins import twin
from .deferred import Deferred, DeferredSum, pays


def in_loop(module: Any) -> Any:
    """The module, or where it pays a copy for the steps of one loop that shares the parameters."""
    return twin(module, _replacement) if pays(next(module.parameters())) else module


def _replacement(part: nn.Module) -> Optional[nn.Module]:
    plain = not (part._forward_hooks or part._forward_pre_hooks)  # and no class of somebody's own
    if type(part) in (nn.Linear, RecurrentLinear) and plain:
        return Deferred(part.weight, part.bias)  # type: ignore[arg-type]
    return DeferredSum() if type(part) is WeightedSum else None

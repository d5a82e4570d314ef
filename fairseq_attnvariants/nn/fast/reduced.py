"""Search in bfloat16: matrix products and what they read, with states, softmax and sums in float32.

A matrix is converted once for all steps of a search.
"""

from functools import cached_property
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..state import Memory
from .twins import twin


class Reduced(nn.Module):
    """``W x + b``, float32, of a product in bfloat16."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.exact = linear.weight
        self.bias = linear.bias

    @cached_property
    def weight(self) -> Tensor:
        """The matrix in bfloat16, converted when it is first read: a search does not read all of a part."""
        return self.exact.bfloat16()

    def forward(self, value: Tensor) -> Tensor:
        """``... x out``, of ``... x in``."""
        product = F.linear(value.bfloat16(), self.weight).to(torch.float32)
        return product if self.bias is None else product + self.bias


def reduced(module: Any) -> Any:
    """A copy of a module whose matrix products are in bfloat16."""

    def replacement(part: nn.Module) -> Optional[nn.Module]:
        return Reduced(part) if isinstance(part, nn.Linear) else None

    return twin(module, replacement)


def reduced_memory(memory: Memory) -> Memory:
    """The memory with values, of which attention forms sums, in bfloat16."""
    upper = None if memory.upper is None else reduced_memory(memory.upper)
    guides = None if memory.guides is None else memory.guides.bfloat16()
    return memory._replace(values=memory.values.bfloat16(), guides=guides, upper=upper)

"""Dropout within a recurrence (Gal and Ghahramani 2016)."""

from typing import Any, Callable, Optional

from torch import Tensor, nn
from torch.nn import functional as F

from .cells import RecurrentLinear
from .histories import History
from .twins import twin


class Masked(nn.Module):
    """``U (h ∘ m)``, with a mask ``m``, ``B x n``, that is the same at every step; the rows may be its first ones."""

    def __init__(self, product: Callable[[Tensor], Tensor], mask: Tensor):
        super().__init__()
        self.product = product
        self.mask = mask

    def forward(self, hidden: Tensor) -> Tensor:
        return self.product(hidden * self.mask[: len(hidden)])


class HiddenDropout(nn.Module):
    """Dropout of what every recurrent product reads of its cell's state, with one mask a sentence.

    Args:
        rate: how much is left out, in training.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, module: Any, sentences: Tensor) -> Any:
        """The module, or a copy that shares its parameters and has masks for these sentences, ``B x ...``."""

        def masked(part: nn.Module) -> Optional[nn.Module]:
            if isinstance(part, History):
                return part  # coverage is a state of source words, and stays whole
            if not isinstance(part, RecurrentLinear):
                return None
            return Masked(part, F.dropout(sentences.new_ones(len(sentences), part.in_features), self.rate))

        return twin(module, masked) if self.rate and self.training else module

"""Dropout within a recurrence (Gal and Ghahramani 2016)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .cells import RecurrentLinear
from .histories import Carrying
from .layers import FusedLayer
from .twins import shallow, twin


class Masked(nn.Module):
    """``U (h ∘ m)``, with one mask ``m``, ``B x n``, for all steps; ``h`` may have fewer rows than the mask."""

    def __init__(self, product: Callable[[Tensor], Tensor], mask: Tensor):
        super().__init__()
        self.product = product
        self.mask = mask

    def forward(self, hidden: Tensor) -> Tensor:
        return self.product(hidden * self.mask[: len(hidden)])


def drop_hidden(module: Any, sentences: Tensor, rate: float) -> Any:
    """Return the module, or in training a copy with shared parameters and dropout on the input of recurrent products.

    There is one mask per sentence.

    Args:
        module: contains cells.
        sentences: any tensor with one row per sentence, ``B x ...``.
        rate: the share of a state that is dropped; with 0 the function returns the module itself.
    """
    return twin(module, partial(_masked, sentences, rate)) if rate and module.training else module


def _masked(sentences: Tensor, rate: float, part: nn.Module) -> nn.Module | None:
    if isinstance(part, Carrying):
        return part  # coverage is a state of source words, without dropout
    if isinstance(part, FusedLayer):  # its kernels take no mask
        copied: FusedLayer = shallow(part)
        copied.templates = [twin(cell, partial(_masked, sentences, rate)) for cell in part.templates]
        copied.swept = True
        return copied
    if not isinstance(part, RecurrentLinear):
        return None
    return Masked(part, F.dropout(sentences.new_ones(len(sentences), part.in_features), rate))

"""Readers of the context, and how search spares them their products.

All that is ever read of a context is projections of it, and ``W c_i = Σ_j w_ij (W s_j)``.  In beam search the many
steps of many hypotheses share one sentence: there the annotations are projected once, for all readers, and what
attention sums up are the projections.

Shapes: ``B`` batch, ``N`` rows of states, ``S`` source length, ``a`` annotation width.
"""

from itertools import accumulate
from typing import NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor
from torch.nn import functional as F

from .loop import LoopLinear
from .state import Memory


class Projections(NamedTuple):
    """Of a context, what all its readers make of it, without their biases."""

    beside: Tensor
    """``[W_1 c; W_2 c; ...]``, ``N x ... x Σ widths``."""


Context = Union[Tensor, Projections]


class ContextLinear(LoopLinear):
    """``W c + b``; a :class:`~.decoder.Decoder` says which part of :class:`Projections` is its own."""

    place: slice

    def forward(self, context: Context, plus: Optional[Tensor] = None) -> Tensor:
        """``plus + W c + b`` of a context ``... x a``, or of its projections."""
        if not isinstance(context, Projections):
            return super().forward(context, plus)
        own = context.beside[..., self.place]
        if self.bias is not None:
            own = own + self.bias
        return own if plus is None else plus + own


def put_beside(readers: Sequence[ContextLinear]) -> None:
    """Give each reader its place among the projections."""
    ends = list(accumulate(reader.out_features for reader in readers))
    for reader, end in zip(readers, ends):
        reader.place = slice(end - reader.out_features, end)


def project(memory: Memory, readers: Sequence[ContextLinear]) -> Memory:
    """The memory with projections instead of annotations, where sums of them take less work than the readers' products.

    That is so as long as a sentence is shorter than an annotation is wide; with two levels of attention it is not done.
    """
    length, width = memory.values.shape[1:]
    if memory.upper is not None or length >= width:
        return memory
    return memory._replace(values=F.linear(memory.values, torch.cat([r.weight for r in readers])), projected=True)


def context_of(memory: Memory, context: Tensor) -> Context:
    """What attention summed up, as the readers take it."""
    return Projections(context) if memory.projected else context

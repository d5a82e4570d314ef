"""Search that projects annotations instead of contexts.

All that is ever read of a context is projections of it, and ``W c_i = Σ_j w_ij (W s_j)``.  In beam search the many
steps of many hypotheses share one sentence: there the annotations are projected once, for all readers of the context,
and what attention sums up are the projections.  Parts say by what they read the context; where one does not, search is
as it is without this.
"""

from itertools import accumulate
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...registry import Part
from ..decoder import Decoder
from ..state import Memory, State
from ..twins import plain_linear, twin


class Projected(nn.Module):
    """Stands for a linear map of the context where that is ``[W_1 c; W_2 c; ...]`` already."""

    def __init__(self, reader: nn.Linear, end: int):
        super().__init__()
        self.in_features, self.out_features = reader.in_features, reader.out_features
        self.own = slice(end - reader.out_features, end)
        self.bias = reader.bias

    def forward(self, context: Tensor) -> Tensor:
        """``W_k c + b``, ``... x out``, of all readers' ``... x Σ out``."""
        own = context[..., self.own]
        return own.clone() if self.bias is None else own + self.bias


def declared(part: Part) -> Optional[Tuple[str, ...]]:
    """What a part says of how it reads contexts; nothing, if it computes in another way than the class that said it."""
    for kind in type(part).__mro__:
        computes = {name for name, value in vars(kind).items() if callable(value) or isinstance(value, property)}
        if "reads_context" in vars(kind) or computes - part.without_context:
            return vars(kind).get("reads_context")
    return None


def context_readers(decoder: Decoder) -> Optional[List[nn.Linear]]:
    """All linear maps of contexts, of parts that read nothing else of them; None if a part does not say so.

    Raises:
        AttributeError: a part names a map that it has not.
    """
    readers: List[Any] = []
    for part in decoder.modules():
        if isinstance(part, Part):
            names, maps = declared(part), dict(part.named_modules())
            if names is None:
                return None
            # an input may be missing, such as the previous context; a map of the part's own may not
            readers += [part.get_submodule(name) for name in names if name in maps or "." not in name]
    return readers if all(map(plain_linear, readers)) else None


def for_hypotheses(decoder: Decoder, memory: Memory, state: State) -> Tuple[Decoder, Memory, State]:
    """A decoder, a memory and a first state that give the same, where several hypotheses share a sentence.

    What came in is returned where this would take more work, that is where a sentence is longer than an annotation is
    wide; and where :func:`projecting` finds no readers.
    """
    longer = memory.values.size(1) >= memory.values.size(2)
    projects, readers = (decoder, []) if longer else projecting(decoder)
    return projects, *projected(readers, memory, state)


def projecting(decoder: Decoder) -> Tuple[Decoder, List[nn.Linear]]:
    """A decoder of the same parameters whose contexts are what these readers make of one.

    What came in, and none, where it cannot be: where the context is more than an average of annotations (of two levels,
    or of several heads), where a part does not say by what it reads the context, or none reads it, and where layers
    above the transition read it, through matrices that read more.
    """
    read_above = decoder.above is not None and decoder.above.beside > 0
    readers = None if read_above or not decoder.transition.attention.averages else context_readers(decoder)
    ends = accumulate(reader.out_features for reader in readers or [])
    standing: Dict[nn.Module, nn.Module] = {reader: Projected(reader, end) for reader, end in zip(readers or [], ends)}
    return (twin(decoder, standing.get), readers) if readers else (decoder, [])


def projected(readers: List[nn.Linear], memory: Memory, state: State) -> Tuple[Memory, State]:
    """The memory and the first state of a decoder that :func:`projecting` has made."""
    if not readers:
        return memory, state
    values = F.linear(memory.values, torch.cat([reader.weight for reader in readers]))  # B x S x Σ out
    context = state.context.new_zeros(state.context.size(0), values.size(2))
    return memory._replace(values=values), state._replace(context=context)

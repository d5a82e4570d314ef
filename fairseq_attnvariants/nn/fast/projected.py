"""Search that projects annotations instead of contexts.

All that is ever read of a context is projections of it, and ``W c_i = Σ_j w_ij (W s_j)``.  In beam search the many
steps of many hypotheses share one sentence: there the annotations are projected once, for all readers of the context,
and what attention sums up are the projections.
"""

from itertools import accumulate
from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..cells import ContextLinear
from ..decoder import Decoder
from ..state import Memory, State
from .twins import twin


class Share(nn.Module):
    """Stands for a linear map of the context where that is ``[W_1 c; W_2 c; ...]`` already: the map's own share."""

    def __init__(self, reader: ContextLinear, end: int):
        super().__init__()
        self.share = slice(end - reader.out_features, end)
        self.bias = reader.bias

    def forward(self, context: Tensor) -> Tensor:
        """``W_k c + b``, ``... x out``, of all readers' ``... x Σ out``."""
        own = context[..., self.share]
        return own.clone() if self.bias is None else own + self.bias


def for_hypotheses(decoder: Decoder, memory: Memory, state: State) -> Tuple[Decoder, Memory, State]:
    """A decoder, a memory and a first state that give the same, where several hypotheses share a sentence.

    The decoder shares the parameters.  What came in is returned where this would take more work, that is where a
    sentence is longer than an annotation is wide, where the context is more than an average of annotations (of two
    levels, or of several heads), and where layers above the transition read it, through matrices that read more.
    """
    read_above = decoder.above is not None and decoder.above.context
    longer = memory.values.size(1) >= memory.values.size(2)
    if not decoder.transition.attention.averages or longer or read_above:
        return decoder, memory, state
    readers = [module for module in decoder.modules() if isinstance(module, ContextLinear)]
    shares = map(Share, readers, accumulate(reader.out_features for reader in readers))
    values = F.linear(memory.values, torch.cat([reader.weight for reader in readers]))  # B x S x Σ out
    context = state.context.new_zeros(len(state.context), values.size(2))

    def share(part: nn.Module) -> Optional[nn.Module]:
        return next(shares) if isinstance(part, ContextLinear) else None

    return twin(decoder, share), memory._replace(values=values), state._replace(context=context)

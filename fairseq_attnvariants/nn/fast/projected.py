"""Search that projects annotations instead of contexts.

Usually a decoder reads only projections of a context, and ``W c_i = Σ_j w_ij (W s_j)``.  In beam search, many steps of
many hypotheses share one sentence.  So search projects the annotations once, for all readers of the context, and
attention sums up the projections.  Before a decoder's first search, two watched steps show which maps read contexts,
and whether projecting gives the same result.  If it does not, search projects contexts.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..decoder import Decoder
from ..state import Memory, State, reorder, tensors
from ..twins import plain_linear, shallow, twin

Readers = Sequence[nn.Linear]
_found: "WeakKeyDictionary[Decoder, Readers]" = WeakKeyDictionary()


class Projected(nn.Module):
    """A replacement for a linear map of the context, if the context is ``[W_1 c; W_2 c; ...]`` already."""

    def __init__(self, reader: nn.Linear, end: int):
        super().__init__()
        self.in_features, self.out_features = reader.in_features, reader.out_features
        self.own = slice(end - reader.out_features, end)
        self.bias = reader.bias

    def forward(self, context: Tensor) -> Tensor:
        """``W_k c + b``, ``... x out``, from all readers' ``... x Σ out``."""
        own = context[..., self.own]
        return own.clone() if self.bias is None else own + self.bias


class Watched(nn.Linear):
    """A linear map that keeps its inputs."""

    inputs: list[Tensor]

    def forward(self, input: Tensor) -> Tensor:
        self.inputs.append(input)
        return super().forward(input)


def for_hypotheses(decoder: Decoder, memory: Memory, state: State, width: int) -> tuple[Decoder, Memory, State]:
    """Return a faster decoder, memory and first state with the same results, for several hypotheses per sentence.

    The new decoder shares the parameters.  The three are returned unchanged if projecting takes more work, because a
    sentence is at least as long as an annotation is wide, or if it gives another result, as with attention to two
    levels or by several heads.

    Args:
        decoder: the decoder, in evaluation.
        memory, state: from its :meth:`~.decoder.Decoder.start`.
        width: width of target embeddings.
    """
    if memory.values.dim() > 3 or memory.values.size(1) >= memory.values.size(2):  # of several heads, or long
        return decoder, memory, state
    other, readers = projecting(decoder, memory, state, width)
    return other, *projected(readers, memory, state)


def projecting(decoder: Decoder, memory: Memory, state: State, width: int) -> tuple[Decoder, Readers]:
    """Return a decoder with the same parameters that reads projected contexts, and its readers, or itself and none.

    Args:
        decoder, memory, state, width: see :func:`for_hypotheses`; the sentences are used for a trial.
    """
    readers = () if decoder.training else _found.get(decoder)
    if readers is None:
        _found[decoder] = readers = context_readers(decoder, memory, state, width)
    if not readers or not all(map(plain_linear, readers)) or not set(readers) <= set(decoder.modules()):
        return decoder, ()
    return _reading(readers, decoder), readers


def projected(readers: Readers, memory: Memory, state: State) -> tuple[Memory, State]:
    """Return the memory and the first state for a decoder from :func:`projecting`."""
    if not readers:
        return memory, state
    weight = torch.cat([reader.weight for reader in readers])
    memory = memory._replace(values=F.linear(memory.values, weight))  # B x S x Σ out
    return memory, state._replace(context=F.linear(state.context, weight))


@torch.no_grad()
def context_readers(decoder: Decoder, memory: Memory, state: State, width: int) -> Readers:
    """Return the linear maps that read a decoder's contexts; none if something else reads contexts, too.

    Computes two steps of two sentences twice.  Draws no random number from PyTorch's global generator.
    """
    few = torch.arange(min(len(state.context), 2), device=state.context.device)
    random = torch.Generator().manual_seed(1)
    memory, state = reorder(memory, few), reorder(state, few)
    state = state._replace(context=torch.randn(state.context.shape, generator=random).to(state.context))
    words = torch.randn(len(few), 2, width, generator=random).to(state.context)

    watched: dict[nn.Module, Any] = {}
    for part in filter(plain_linear, decoder.modules()):
        watched[part] = shallow(part)
        watched[part].__class__, watched[part].inputs = Watched, []
    steps = _two_steps(twin(decoder, watched.get), memory, state, words)
    contexts = [state.context, *(decoded.state.context for decoded in steps)]

    def reads(inputs: list[Tensor]) -> bool:
        rows = [given.reshape(-1, given.size(-1)) for given in inputs]
        return bool(rows) and all(any(torch.equal(given, context) for context in contexts) for given in rows)

    readers: Any = [part for part, copy in watched.items() if reads(copy.inputs)]
    if not readers:
        return ()
    try:
        quick = _two_steps(_reading(readers, decoder), *projected(readers, memory, state), words)
    except Exception:  # another module read projections; other errors occur again in the plain search
        return ()
    reduced = words.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest"
    tolerance = 0.05 if reduced and words.dtype != torch.float64 else 1e-3
    same = all(_close(*pair, tolerance) for pair in zip(_compared(steps), _compared(quick)))
    return readers if same else ()


def _reading(readers: Readers, decoder: Decoder) -> Decoder:
    ends = accumulate(reader.out_features for reader in readers)
    replaced: dict[nn.Module, nn.Module] = {reader: Projected(reader, end) for reader, end in zip(readers, ends)}
    other: Decoder = twin(decoder, replaced.get)
    return other


def _two_steps(decoder: Any, memory: Memory, state: State, words: Tensor) -> list[Any]:
    first = decoder(words[:, :1], memory, state)
    return [first, decoder(words[:, 1:], memory, first.state)]


def _compared(steps: list[Any]) -> list[Tensor]:
    """Return all tensors of the steps except contexts, in float64."""
    made = tuple(decoded._replace(state=decoded.state._replace(context=None)) for decoded in steps)
    return [tensor.double() for tensor in tensors(made)]


def _close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    finite = one.isfinite()
    one, other = one[finite], other[finite]
    return bool(torch.dist(one, other) <= tolerance * torch.linalg.vector_norm(one))

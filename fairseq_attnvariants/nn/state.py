"""The decoder's memory of a sentence and its state after a step.

Both are named tuples of batch-first tensors, so that beam search can reorder every entry the same way.

Shapes, here and in all of :mod:`.nn`: ``B`` sentences, ``k`` hypotheses of each (1 except in beam search), ``N = B·k``
rows of states, ``S`` source length, ``T`` target length, ``m`` embedding width, ``n`` hidden width, ``a`` annotation
width, ``A`` attention width, ``W`` length of the upper level, if there are two levels.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Optional, TypeVar

import torch
from torch import Tensor


class Encoded(NamedTuple):
    """The encoder's output, in the columns of ``src_tokens`` whichever side the padding is on.

    A second, upper level has separate annotations.  They belong to words above characters, in separate columns with the
    padding on the right, or to the same tokens in an upper layer.
    """

    annotations: Tensor
    """``s_j``, ``B x S x a``; zero at the padding of a row that is not all padding."""
    padding_mask: Tensor
    """True at padding, ``B x S``."""
    final: Tensor
    """``[→s_S; ←s_1]``, each direction's last state of the top layer, ``B x 2n``; ``B x n`` with one direction."""
    embeddings: Tensor
    """``x_j``, ``B x S x m``; zero at padding."""
    upper_annotations: Tensor | None = None
    """annotations of the upper level, ``h^w_j``, ``B x W x a``; zero at padding."""
    upper_padding_mask: Tensor | None = None
    """True at padding, ``B x W``."""
    shares: Tensor | None = None
    """if annotations belong to segments of tokens: a token's share of its segment's weight, ``B x G x S``.  Then ``S``
    above, except for the embeddings, is the number ``G`` of segments."""
    tokens: Tensor | None = None
    """indices of the source's symbols, ``B x S``, for tokens."""
    tags: Tensor | None = None
    """embeddings of the source's tags, its additional features, ``B x S x m``; zero elsewhere."""
    not_tags: Tensor | None = None
    """True where there is no tag, ``B x S``; :attr:`padding_mask` counts tags as padding."""


class Memory(NamedTuple):
    """The input of attention at every step, computed once per sentence.

    It may have fewer rows than the states that read it.  Then each of its sentences serves several adjoining rows, the
    hypotheses of a beam, without a copy for each (see :func:`grouped`).
    """

    keys: Tensor
    """``U s_j + b``, ``B x S x A``; with a product as score ``B x h x S x A/h``, where only multihead has h > 1."""
    values: Tensor
    """``s_j``, ``B x S x a``; with ``h`` heads ``B x h x S x A/h``.  In search they may be projected already
    (:mod:`.fast`)."""
    padding_mask: Tensor
    """True at padding, ``B x S``."""
    positions: Tensor
    """``j``, counting real tokens from 1, ``B x S``, float32."""
    embeddings: Tensor
    """``x_j``, ``B x S x m``."""
    guides: Tensor | None = None
    """``W h_j``, projected for the query of the lower level, ``B x W x A``, with its ``A``."""
    upper: Optional["Memory"] = None
    """the memory of the upper level, if there is one."""
    shares: Tensor | None = None
    """shares of tokens in their segments' weights, as :attr:`Encoded.shares`."""
    histories: dict[str, Any] = {}
    """the entries of histories and the window, by name."""
    readout: Any = None
    """the entry of the readout."""
    tags: Optional["Memory"] = None
    """the memory of tags, if the decoder attends to them."""


class State(NamedTuple):
    """Everything a step hands to the next."""

    hidden: Tensor
    """``h_{i-1}`` of all cells of the transition, ``N x state width``."""
    context: Tensor
    """``c_{i-1}``, ``N x a``, with two levels ``N x (a + a')``; zero before the first step."""
    weights: Tensor
    """``w_{i-1}``, ``N x S``, float32; zero before the first step."""
    step: Tensor
    """``i-1``, the number of earlier steps, ``N``, float32."""
    query: Tensor | None = None
    """``q_{i-1}``, the state of the query cell (RNNAtt), ``N x n``."""
    condition: Tensor | None = None
    """``sd_{i-1}``, the condition (CondDec), ``N x 2n``."""
    upper_weights: Tensor | None = None
    """weights of the upper level, ``N x W``, float32; zero before the first step."""
    head_weights: Tensor | None = None
    """weights of each of ``h`` heads, ``N x h x S``, float32; none before the first step."""
    above: Tensor | None = None
    """states of the layers above the transition, ``N x (layers-1) x state width``."""
    histories: dict[str, Any] = {}
    """the states of histories and the window, by name."""
    readout: Any = None
    """the state of the readout."""
    terms: dict[str, Tensor] = {}
    """inputs of a loss at this step, by name, ``N x ...``; none before the first step."""


Entries = TypeVar("Entries")


def reorder(entries: Entries, order: Tensor) -> Entries:
    """Select rows ``order`` of every tensor in tuples and dictionaries, at any depth."""
    selected: Entries = each(lambda tensor: tensor.index_select(0, order), entries)
    return selected


def each(change: Callable[[Tensor], Any], entries: Any) -> Any:
    """Return the same tuples and dictionaries, with every tensor changed; None stays None.

    Raises:
        TypeError: they contain something else, which cannot be reordered.
    """
    if isinstance(entries, Tensor):
        return change(entries)
    if isinstance(entries, dict):
        return {name: each(change, entry) for name, entry in entries.items()}
    if isinstance(entries, tuple):
        changed = [each(change, entry) for entry in entries]
        return type(entries)._make(changed) if hasattr(entries, "_make") else tuple(changed)
    if entries is not None:
        raise TypeError(f"a step must pass on tensors, tuples and dictionaries, not {type(entries).__name__}")
    return None


def tensors(entries: Any) -> list[Tensor]:
    """Return the tensors in tuples and dictionaries, at any depth, in order."""
    found: list[Tensor] = []
    each(found.append, entries)
    return found


def filled(entries: Any, values: Iterable[Tensor]) -> Any:
    """Return the same tuples and dictionaries, with other tensors."""
    rest = iter(values)
    return each(lambda _: next(rest), entries)


def grouped(rows: Tensor, sentences: Tensor) -> Tensor:
    """Return rows of states, grouped by sentence: ``N x ...`` as ``B x N/B x ...``."""
    return rows.view(sentences.size(0), -1, *rows.shape[1:])


def by_steps(values: Tensor) -> Tensor:
    """Return the rows of all steps, step after step, ``T·N x ...``, from ``N x T x ...``."""
    return values.transpose(0, 1).flatten(0, 1)


def serve(memory: Memory, hypotheses: int, order: Tensor) -> Memory:
    """Return the memory after a reordering of the states that read it, ``hypotheses`` rows per sentence.

    As long as no sentence leaves the beam, this is the same memory, and the function waits for a GPU once.  A search
    calls it at every step.
    """
    wanted = order.div(hypotheses, rounding_mode="floor")
    own, rows = memory.keys.size(0), order.size(0)
    all_may_stay = rows >= own * hypotheses and rows % own == 0
    size = rows // own if all_may_stay else hypotheses
    groups = wanted.view(-1, size if rows % size == 0 else 1)
    if all_may_stay and torch.equal(groups, torch.arange(own, device=order.device).unsqueeze(1).expand_as(groups)):
        return memory
    adjoin = groups.size(1) == 1 or torch.equal(groups, groups[:, :1].expand_as(groups))
    return reorder(memory, groups[:, 0] if adjoin else wanted)

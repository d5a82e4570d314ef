"""Additive attention over a sentence's annotations, of one level or of two.

Shapes: ``B`` batch, ``N`` rows of states (``B``, or in beam search all hypotheses), ``S`` source length,
``A`` attention width, ``a`` annotation width.
"""

from itertools import repeat
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .history import DistanceHistory, History, real_positions
from .init import matrix_, square_
from .loop import LoopLinear, Notes, current_loop, weighted_sum
from .state import Encoded, Memory, State, grouped

BLOCK = 2**18  # numbers, of which a CPU works on so many at once: a megabyte, which its cache holds


class Energies:
    """The energies ``v·tanh(query + keys + matrix features)`` and their derivative, which recomputes the tanh.

    Kept alive it would be the largest tensor of training: batch x source x target x width.  ``query`` is ``N x A`` and
    ``keys`` ``B x S x A``; ``features``, ``N x S x k``, and ``matrix``, ``A x k``, may both be None.
    """

    @staticmethod
    def forward(
        query: Tensor, keys: Tensor, vector: Tensor, features: Optional[Tensor], matrix: Optional[Tensor]
    ) -> Tensor:
        energies = query.new_empty(len(query), keys.size(1), dtype=energy_dtype(vector))
        for place, energies_, query_, keys_, features_ in blocks(keys, energies, query, keys, features):
            hidden = Energies.hidden(place, query_, keys_, features_, matrix)
            energies_.copy_(torch.matmul(hidden, vector.to(hidden.dtype)))
        return energies

    @staticmethod
    def hidden(
        hidden: Tensor, query: Tensor, keys: Tensor, features: Optional[Tensor], matrix: Optional[Tensor]
    ) -> Tensor:
        """``tanh(query + keys + matrix features)``, ``N x S x A``, in the place given first."""
        torch.add(keys.unsqueeze(1), grouped(query, keys).unsqueeze(2), out=grouped(hidden, keys))
        if features is not None and matrix is not None:
            hidden += torch.matmul(features.to(hidden.dtype), matrix.to(hidden.dtype).t())
        return hidden.tanh_()

    @staticmethod
    def backward(
        grad: Tensor,
        query: Tensor,
        keys: Tensor,
        vector: Tensor,
        features: Optional[Tensor],
        matrix: Optional[Tensor],
        grad_keys: Tensor,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
        """Gradients of query, vector, features and matrix; that of the keys is added to ``grad_keys``."""
        scale = vector.to(keys.dtype)
        grad_query, grad_vector = torch.empty_like(query), torch.zeros_like(vector)
        grad_features = None if features is None else torch.empty_like(features)
        grad_matrix = None if matrix is None else torch.zeros_like(matrix)
        whole = grad.to(keys.dtype).unsqueeze(2), query, keys, features, grad_query, grad_keys, grad_features
        for place, grad_, query_, keys_, features_, grad_query_, grad_keys_, grad_features_ in blocks(keys, *whole):
            hidden = Energies.hidden(place, query_, keys_, features_, matrix)
            grad_vector += torch.mv(hidden.flatten(0, 1).t(), grad_.flatten())
            # v (1 - tanh²), in place
            slope = torch.addcmul(scale, hidden.mul_(hidden), scale, value=-1, out=hidden)
            grad_query_.copy_(torch.bmm(grad_.transpose(1, 2), slope).squeeze(1))
            if features_ is not None and matrix is not None:
                grad_features_.copy_(grad_ * torch.matmul(slope, matrix.to(slope.dtype)))
                grad_matrix += slope.flatten(0, 1).t() @ (grad_ * features_).to(slope.dtype).flatten(0, 1)
            for rows, grad_rows in zip(grouped(slope, keys_).unbind(1), grouped(grad_, keys_).unbind(1)):
                grad_keys_.addcmul_(rows, grad_rows)  # once, except in a beam
        return grad_query, grad_vector, grad_features, grad_matrix


def blocks(keys: Tensor, *tensors: Optional[Tensor]) -> Iterator[Tuple[Any, ...]]:
    """Tensors that have rows for each sentence, cut into pieces of a few sentences; None has pieces of None.

    Before the pieces comes the place for a tanh of each of their keys and hypotheses, always the same, so that it stays
    in the cache until all is done with it.
    """
    sentences, hypotheses = len(keys), max(len(rows) for rows in tensors if rows is not None) // len(keys)
    few = sentences if keys.is_cuda else max(1, BLOCK // (hypotheses * keys[0].numel()))
    place = keys.new_empty(hypotheses * min(few, sentences), *keys.shape[1:])
    pieces = (repeat(None) if rows is None else rows.split(few * (len(rows) // sentences)) for rows in tensors)
    for begin, *cut in zip(range(0, sentences, few), *pieces):
        yield place[: hypotheses * (sentences - begin)], *cut


class _AdditiveEnergies(Function):
    """Energies, differentiable; ``arithmetic`` is :class:`Energies` or has its interface, ``arguments`` are its.

    In a time loop the gradient of the keys is added to what ``notes`` sum up.
    """

    @staticmethod
    def forward(ctx, arithmetic, notes: Optional[Notes], *arguments: Optional[Tensor]):
        ctx.arithmetic, ctx.notes = arithmetic, notes
        ctx.save_for_backward(*arguments)
        return arithmetic.forward(*arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        keys = ctx.saved_tensors[1]
        grad_keys = torch.zeros_like(keys) if ctx.notes is None else ctx.notes.sum()
        grad_query, *gradients = ctx.arithmetic.backward(grad, *ctx.saved_tensors, grad_keys)
        return None, None, grad_query, grad_keys if ctx.notes is None else None, *gradients


def additive_energies(
    arithmetic: Any,
    query: Tensor,
    keys: Tensor,
    vector: Tensor,
    features: Optional[Tensor] = None,
    matrix: Optional[Tensor] = None,
) -> Tensor:
    """``e_ij = v·tanh(query + keys + matrix features)``, ``N x S``, float32; see :class:`Energies`."""
    loop, notes = current_loop(), None
    if loop is not None:
        keys, notes = loop.constant(keys, Notes)
    return _AdditiveEnergies.apply(arithmetic, notes, query, keys, vector, features, matrix)


def energy_dtype(vector: Tensor) -> torch.dtype:
    """Energies and softmax are float32, or float64 where the parameters are."""
    return torch.promote_types(vector.dtype, torch.float32)


def masked_softmax(energies: Tensor, padding_mask: Tensor) -> Tensor:
    """Softmax over real source positions; padding beside any gets exactly zero.

    ``N x S``, float32, of energies ``N x S`` and a mask ``B x S``.
    """
    lowest = torch.finfo(energies.dtype).min
    masked = grouped(energies, padding_mask).masked_fill(padding_mask.unsqueeze(1), lowest)
    return torch.softmax(masked, dim=2).flatten(0, 1)


class Attended(NamedTuple):
    """What one look at the source gives."""

    context: Tensor
    """``c_i``, ``N x a``."""
    weights: Tensor
    """``w_ij``, ``N x S``, float32."""
    upper_weights: Optional[Tensor] = None
    """of the higher level, where there are two, ``N x W``, float32."""


class AdditiveAttention(nn.Module):
    """Bahdanau's attention (001 §3.2, 002 eq. 6-7): ``e_ij = v·tanh(W q + U s_j + b)``, ``c_i = Σ_j w_ij s_j``.

    Args:
        query_dim: width of the query.
        annotation_dim: width ``a`` of the annotations.
        attention_dim: width ``A`` of the score's hidden layer.
        histories: recurrent paths that add their terms to the score, at most one of them to the keys.
        guide_dim: width of a guide, a second part of the query (004 §3.2), or 0 without one.
    """

    arithmetic: Any = Energies

    def __init__(
        self,
        query_dim: int,
        annotation_dim: int,
        attention_dim: int,
        histories: Optional[Dict[str, History]] = None,
        guide_dim: int = 0,
    ):
        super().__init__()
        self.query = square_(LoopLinear(query_dim, attention_dim, bias=False))
        self.guide = square_(nn.Linear(guide_dim, attention_dim, bias=False)) if guide_dim else None
        self.key = square_(nn.Linear(annotation_dim, attention_dim))
        self.vector = nn.Parameter(matrix_(torch.empty(attention_dim)))
        self.histories = nn.ModuleDict(histories or {})

    def memory(self, encoded: Encoded) -> Memory:
        """What every step reads, once a sentence."""
        reads_positions = any(isinstance(history, DistanceHistory) for history in self.histories.values())
        return Memory(
            self.key(encoded.annotations),
            encoded.annotations,
            encoded.padding_mask,
            real_positions(encoded.padding_mask) if reads_positions else None,
        )

    def forward(self, query: Tensor, memory: Memory, state: State, guide: Optional[Tensor] = None) -> Attended:
        """Attend once.

        Args:
            query: ``N x query_dim``.
            memory: of the sentences.
            state: of the previous step, for the recurrent paths.
            guide: projected already, ``N x A``, or None.
        """
        projected = self.query(query, guide)
        bias: Optional[Tensor] = None
        features: Tuple[Optional[Tensor], Optional[Tensor]] = (None, None)
        for history in self.histories.values():
            assert isinstance(history, History)
            projected = _plus(projected, history.query_term(memory, state))
            features = history.key_features(memory, state) or features
            bias = _plus(bias, history.energy_term(memory, state))
        energies = _plus(additive_energies(self.arithmetic, projected, memory.keys, self.vector, *features), bias)
        weights = masked_softmax(energies, memory.padding_mask)
        context = weighted_sum(weights, memory.values)
        return Attended(context.to(query.dtype), weights)


class AttentionViaAttention(nn.Module):
    """Attention to a lower level that is guided by attention to a higher one (004 §3.2).

    ``c^w`` is the context of the higher level for the query ``r``; ``c^c`` is that of the lower level, where the
    projected query is ``W_cr r + W_cc c^w``.  The context is ``c = [c^w; c^c]``.  As ``c^w`` is a weighted sum, so is
    ``W_cc c^w``: of annotations that are projected once.

    Args:
        upper, lower: attention to the two levels; the lower one has the guide ``c^w`` (without a guide the two are
            independent) and the recurrent paths.
    """

    def __init__(self, upper: AdditiveAttention, lower: AdditiveAttention):
        super().__init__()
        self.upper = upper
        self.lower = lower

    def memory(self, encoded: Encoded) -> Memory:
        """What every step reads, once a sentence."""
        annotations, padding_mask = encoded.upper_annotations, encoded.upper_padding_mask
        assert annotations is not None and padding_mask is not None
        guides = None if self.lower.guide is None else self.lower.guide(annotations)
        upper = Memory(self.upper.key(annotations), annotations, padding_mask, guides=guides)
        return self.lower.memory(encoded)._replace(upper=upper)

    def forward(self, query: Tensor, memory: Memory, state: State) -> Attended:
        """Attend once to each level; as :meth:`AdditiveAttention.forward`."""
        assert memory.upper is not None
        context, upper_weights, _ = self.upper(query, memory.upper, state)
        guides = memory.upper.guides
        guide = None if guides is None else weighted_sum(upper_weights, guides)
        detail, weights, _ = self.lower(query, memory, state, guide)
        return Attended(torch.cat([context, detail], dim=1), weights, upper_weights)


def _plus(term, other):
    """Sum of two terms, either of which may be None."""
    if term is None or other is None:
        return other if term is None else term
    return term + other

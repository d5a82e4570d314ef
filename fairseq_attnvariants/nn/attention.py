"""Additive attention over a sentence's annotations, of one level or of two.

Shapes: ``B`` batch, ``S`` source length, ``A`` attention width, ``a`` annotation width.
"""

from typing import Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .history import DistanceHistory, History, real_positions
from .init import matrix_, square_
from .loop import LoopLinear, weighted_sum
from .state import Encoded, Memory, State


class _AdditiveEnergies(Function):
    """``v·tanh(query + keys + matrix features)`` that recomputes the ``B x S x A`` tanh in the backward pass.

    Kept alive it would be the largest tensor of training: batch x source x target x width.  ``features``, ``B x S x
    k``, and ``matrix``, ``A x k``, may both be None.
    """

    @staticmethod
    def forward(
        ctx, query: Tensor, keys: Tensor, vector: Tensor, features: Optional[Tensor], matrix: Optional[Tensor]
    ) -> Tensor:
        ctx.save_for_backward(query, keys, vector, features, matrix)
        hidden = _AdditiveEnergies.hidden(query, keys, features, matrix)
        return torch.matmul(hidden, vector.to(hidden.dtype)).to(_energy_dtype(vector))

    @staticmethod
    def hidden(query: Tensor, keys: Tensor, features: Optional[Tensor], matrix: Optional[Tensor]) -> Tensor:
        """``tanh(query + keys + matrix features)``, ``B x S x A``."""
        total = keys + query.unsqueeze(1)
        if features is not None and matrix is not None:
            total += torch.matmul(features.to(total.dtype), matrix.to(total.dtype).t())
        return total.tanh_()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        query, keys, vector, features, matrix = ctx.saved_tensors
        hidden = _AdditiveEnergies.hidden(query, keys, features, matrix)
        grad, scale = grad.to(hidden.dtype), vector.to(hidden.dtype)
        grad_vector = torch.mv(hidden.view(-1, hidden.size(-1)).t(), grad.reshape(-1))
        slope = hidden.mul_(hidden).neg_().add_(1)  # d tanh = 1 - tanh², in place
        grad_query = torch.bmm(grad.unsqueeze(1), slope).squeeze(1) * scale
        grad_keys = slope.mul_(grad.unsqueeze(-1)).mul_(scale)
        grad_features = grad_matrix = None
        if features is not None and matrix is not None:
            grad_features = torch.matmul(grad_keys, matrix.to(grad_keys.dtype))
            grad_matrix = grad_keys.flatten(0, 1).t() @ features.to(grad_keys.dtype).flatten(0, 1)
        return grad_query, grad_keys, grad_vector, grad_features, grad_matrix


def _energy_dtype(vector: Tensor) -> torch.dtype:
    """Energies and softmax are float32, or float64 where the parameters are."""
    return torch.promote_types(vector.dtype, torch.float32)


def masked_softmax(energies: Tensor, padding_mask: Tensor) -> Tensor:
    """Softmax over real source positions; padding beside any gets exactly zero.  ``B x S``, float32."""
    return torch.softmax(energies.masked_fill(padding_mask, torch.finfo(energies.dtype).min), dim=1)


class Attended(NamedTuple):
    """What one look at the source gives."""

    context: Tensor
    """``c_i``, ``B x a``."""
    weights: Tensor
    """``w_ij``, ``B x S``, float32."""
    upper_weights: Optional[Tensor] = None
    """of the higher level, where there are two, ``B x W``, float32."""


class AdditiveAttention(nn.Module):
    """Bahdanau's attention (001 §3.2, 002 eq. 6-7): ``e_ij = v·tanh(W q + U s_j + b)``, ``c_i = Σ_j w_ij s_j``.

    Args:
        query_dim: width of the query.
        annotation_dim: width ``a`` of the annotations.
        attention_dim: width ``A`` of the score's hidden layer.
        histories: recurrent paths that add their terms to the score, at most one of them to the keys.
        guide_dim: width of a guide, a second part of the query (004 §3.2), or 0 without one.
    """

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
        self.guide = square_(LoopLinear(guide_dim, attention_dim, bias=False)) if guide_dim else None
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
            query: ``B x query_dim``.
            memory: of the sentence.
            state: of the previous step, for the recurrent paths.
            guide: ``B x guide_dim``; not read without a width of its own.
        """
        projected = self.query(query)
        if self.guide is not None:
            projected = self.guide(guide, projected)
        bias: Optional[Tensor] = None
        features: Tuple[Optional[Tensor], Optional[Tensor]] = (None, None)
        for history in self.histories.values():
            assert isinstance(history, History)
            projected = _plus(projected, history.query_term(state))
            features = history.key_features(memory, state) or features
            bias = _plus(bias, history.energy_term(memory, state))
        energies = _plus(_AdditiveEnergies.apply(projected, memory.keys, self.vector, *features), bias)
        weights = masked_softmax(energies, memory.padding_mask)
        context = weighted_sum(weights, memory.values)
        return Attended(context.to(query.dtype), weights)


class AttentionViaAttention(nn.Module):
    """Attention to a lower level that is guided by attention to a higher one (004 §3.2).

    ``c^w`` is the context of the higher level for the query ``r``; ``c^c`` is that of the lower level, where the
    projected query is ``W_cr r + W_cc c^w``.  The context is ``c = [c^w; c^c]``.

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
        assert encoded.upper_annotations is not None
        return self.lower.memory(encoded)._replace(
            upper_keys=self.upper.key(encoded.upper_annotations),
            upper_values=encoded.upper_annotations,
            upper_padding_mask=encoded.upper_padding_mask,
        )

    def forward(self, query: Tensor, memory: Memory, state: State) -> Attended:
        """Attend once to each level; as :meth:`AdditiveAttention.forward`."""
        higher = Memory(memory.upper_keys, memory.upper_values, memory.upper_padding_mask)  # type: ignore[arg-type]
        context, upper_weights, _ = self.upper(query, higher, state)
        detail, weights, _ = self.lower(query, memory, state, guide=context)
        return Attended(torch.cat([context, detail], dim=1), weights, upper_weights)


def _plus(term, other):
    """Sum of two terms, either of which may be None."""
    if term is None or other is None:
        return other if term is None else term
    return term + other

"""Additive attention over a sentence's annotations.

Shapes: ``B`` batch, ``S`` source length, ``A`` attention width, ``a`` annotation width.
"""

from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from .history import History
from .init import matrix_, square_
from .state import Memory, State


class _AdditiveEnergies(Function):
    """``v·tanh(query + keys)`` that recomputes the ``B x S x A`` tanh in the backward pass.

    Kept alive it would be the largest tensor of training: batch x source x target x width.
    """

    @staticmethod
    def forward(ctx, query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, vector)
        hidden = (keys + query.unsqueeze(1)).tanh_()
        return torch.matmul(hidden, vector.to(hidden.dtype)).to(_energy_dtype(vector))

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        query, keys, vector = ctx.saved_tensors
        hidden = (keys + query.unsqueeze(1)).tanh_()
        grad, scale = grad.to(hidden.dtype), vector.to(hidden.dtype)
        grad_vector = torch.mv(hidden.view(-1, hidden.size(-1)).t(), grad.reshape(-1))
        slope = hidden.mul_(hidden).neg_().add_(1)  # d tanh = 1 - tanh², in place
        grad_query = torch.bmm(grad.unsqueeze(1), slope).squeeze(1) * scale
        grad_keys = slope.mul_(grad.unsqueeze(-1)).mul_(scale)
        return grad_query.to(query.dtype), grad_keys.to(keys.dtype), grad_vector.to(vector.dtype)


def _energy_dtype(vector: Tensor) -> torch.dtype:
    """Energies and softmax are float32, or float64 where the parameters are."""
    return torch.promote_types(vector.dtype, torch.float32)


def masked_softmax(energies: Tensor, padding_mask: Tensor) -> Tensor:
    """Softmax over real source positions; padding gets exactly zero.  ``B x S``, float32."""
    return torch.softmax(energies.masked_fill(padding_mask, torch.finfo(energies.dtype).min), dim=1)


class AdditiveAttention(nn.Module):
    """Bahdanau's attention (001 §3.2, 002 eq. 6-7): ``e_ij = v·tanh(W q + U s_j + b)``, ``c_i = Σ_j w_ij s_j``.

    Args:
        query_dim: width of the query.
        annotation_dim: width ``a`` of the annotations.
        attention_dim: width ``A`` of the score's hidden layer.
        histories: recurrent paths that add their terms to the score.
    """

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int, histories: Sequence[History] = ()):
        super().__init__()
        self.query = square_(nn.Linear(query_dim, attention_dim, bias=False))
        self.key = square_(nn.Linear(annotation_dim, attention_dim))
        self.vector = nn.Parameter(matrix_(torch.empty(attention_dim)))
        self.histories = nn.ModuleList(histories)

    def keys(self, annotations: Tensor) -> Tensor:
        """``U s_j + b``, once a sentence, ``B x S x A``."""
        return self.key(annotations)

    def forward(self, query: Tensor, memory: Memory, state: State) -> Tuple[Tensor, Tensor]:
        """Attend once.

        Args:
            query: ``B x query_dim``.
            memory: of the sentence.
            state: of the previous step, for the recurrent paths.

        Returns:
            context ``B x a`` and weights ``B x S`` (float32).
        """
        projected, keys = self.query(query), memory.keys
        bias: Optional[Tensor] = None
        for history in self.histories:
            assert isinstance(history, History)
            projected = _plus(projected, history.query_term(state))
            keys = _plus(keys, history.key_term(memory, state))
            bias = _plus(bias, history.energy_term(memory, state))
        energies = _plus(_AdditiveEnergies.apply(projected, keys, self.vector), bias)
        weights = masked_softmax(energies, memory.padding_mask)
        context = torch.bmm(weights.to(memory.values.dtype).unsqueeze(1), memory.values).squeeze(1)
        return context.to(query.dtype), weights


def _plus(term, other):
    """Sum of two terms, either of which may be None."""
    if term is None or other is None:
        return other if term is None else term
    return term + other

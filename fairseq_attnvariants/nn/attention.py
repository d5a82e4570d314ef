"""Attention over a sentence's annotations, of one level or of two.

A score compares the query with a key for each annotation, such as ``e_ij = v·tanh(query + key) + term``; what attention
knows of earlier steps (:mod:`.histories`) adds to one of the three.

Shapes as in :mod:`.state`; ``k = N/B`` is the number of hypotheses of a sentence, 1 but in beam search.
"""

from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .histories import Histories, History, KeyFeatures, plus
from .layer_norm import exactly, layer_norm
from .state import Encoded, Memory, State, grouped


def real_positions(padding_mask: Tensor) -> Tensor:
    """``j``: real tokens counted from 1, whichever side the padding is on, ``B x S``, float32."""
    return torch.cumsum(~padding_mask, dim=1).float()


def additive_energies(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """``e_ij = v·tanh(query + keys + Σ matrix features)`` (001 §3.2, 002 eq. 6), float32 or better.

    Args:
        query: ``B x k x A``.
        keys: ``B x S x A``.
        vector: ``v``, ``A``.
        features: of the histories, each ``B x k x S x f`` and a matrix ``A x f``.

    Returns:
        ``B x k x S``.
    """
    hidden = query.unsqueeze(2) + keys.unsqueeze(1)  # B x k x S x A
    for values, matrix in features:
        hidden = hidden + F.linear(values.to(matrix.dtype), matrix)
    with torch.autocast(hidden.device.type, enabled=False):
        return exactly(hidden).tanh_() @ exactly(vector)  # in place, because it is large


class Recomputed(nn.Module):
    """Of energies, keeps only the arguments for the backward pass, which computes them again.

    What :func:`additive_energies` has in between would be the largest tensor of training, kept once a step.
    """

    def forward(
        self, energies: Callable[..., Tensor], query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures
    ) -> Tensor:
        """``B x k x S``, of arguments as those of :func:`additive_energies`."""
        if not torch.is_grad_enabled():
            return energies(query, keys, vector, *features)
        return checkpoint(energies, query, keys, vector, *features, use_reentrant=False, preserve_rng_state=False)


def masked_softmax(energies: Tensor, padding_mask: Tensor) -> Tensor:
    """Softmax over real source positions; padding beside any gets exactly zero.

    ``B x k x S``, of energies ``B x k x S`` and a mask ``B x S``.
    """
    lowest = torch.finfo(energies.dtype).min
    return torch.softmax(energies.masked_fill(padding_mask.unsqueeze(1), lowest), dim=2)


class Attended(NamedTuple):
    """What one look at the source gives."""

    context: Tensor
    """``c_i``, ``N x a``."""
    weights: Tensor
    """``w_ij``, ``N x S``, float32."""
    upper_weights: Optional[Tensor] = None
    """of the higher level, where there are two, ``N x W``, float32."""


class WeightedSum(nn.Module):
    """``Σ_j w_j v_j``."""

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """``N x a``, of weights ``N x S`` and values ``B x S x a``."""
        return torch.bmm(grouped(weights, values).to(values.dtype), values).flatten(0, 1)


class Attention(nn.Module):
    """``w_i = softmax(e_i)`` of a score's energies ``e_ij``, and ``c_i = Σ_j w_ij s_j`` (001 §3.2, 002 eq. 6-7).

    A score is a subclass, in :data:`SCORES`.

    Args:
        query_dim: width of the query.
        annotation_dim: width ``a`` of the annotations.
        attention_dim: width ``A`` of the projected query and keys.
        histories: recurrent paths that add their terms to the score.
        guide_dim: width of a guide, a second part of the query (004 §3.2), or 0 without one.
        norm: layer normalisation of the projected query and keys.
    """

    def __init__(
        self,
        query_dim: int,
        annotation_dim: int,
        attention_dim: int,
        histories: Optional[Dict[str, History]] = None,
        guide_dim: int = 0,
        norm: bool = False,
    ):
        super().__init__()
        self.query = nn.Linear(query_dim, attention_dim, bias=False)
        self.guide = nn.Linear(guide_dim, attention_dim, bias=False) if guide_dim else None
        self.key = nn.Linear(annotation_dim, attention_dim)
        self.histories = Histories(histories or {})
        self.query_norm = layer_norm(norm, attention_dim)
        self.key_norm = layer_norm(norm, attention_dim)
        self.sum = WeightedSum()

    def energies(self, query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
        """``e_ij``, ``B x k x S``, float32 or better.

        Args:
            query: projected, ``B x k x A``.
            keys: ``B x S x A``.
            features: to be added to the keys, each ``B x k x S x f`` and a matrix ``A x f``.
        """
        raise NotImplementedError

    def memory(self, encoded: Encoded) -> Memory:
        """What every step reads, once a sentence."""
        annotations, padding_mask = encoded.annotations, encoded.padding_mask
        keys, positions = self.key_norm(self.key(annotations)), real_positions(padding_mask)
        memory = Memory(keys, annotations, padding_mask, positions, encoded.embeddings)
        return memory._replace(**self.histories.memory_entries(annotations))

    def forward(self, query: Tensor, memory: Memory, state: State, guide: Optional[Tensor] = None) -> Attended:
        """Attend once.

        Args:
            query: ``N x query_dim``.
            memory: of the sentences.
            state: of the previous step, for the recurrent paths.
            guide: projected already, ``N x A``, or None.
        """
        projected = plus(self.query_norm(self.query(query)), guide, self.histories.query_term(state))  # N x A
        rows = grouped(projected, memory.keys)  # B x k x A
        energies = self.energies(rows, memory.keys, *self.histories.key_features(memory, state))  # B x k x S
        energies = plus(energies, self.histories.energy_term(memory, state))
        weights = masked_softmax(energies, memory.padding_mask).flatten(0, 1)  # N x S
        return Attended(self.sum(weights, memory.values).to(query.dtype), weights)


class AdditiveAttention(Attention):
    """Bahdanau's score, ``e_ij = v·tanh(W q + U s_j + b)`` (001 §3.2, 002 eq. 6)."""

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int, *parts: Any, **options: Any):
        super().__init__(query_dim, annotation_dim, attention_dim, *parts, **options)
        self.vector = nn.Parameter(torch.empty(attention_dim))
        self.recomputed = Recomputed()

    def energies(self, query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
        return self.recomputed(additive_energies, query, keys, self.vector, *features)


class AttentionViaAttention(nn.Module):
    """Attention to a lower level that is guided by attention to a higher one (004 §3.2).

    ``c^w`` is the context of the higher level for the query ``r``; ``c^c`` is that of the lower level, where the
    projected query is ``W_cr r + W_cc c^w``.  The context is ``c = [c^w; c^c]``.  As ``c^w`` is a weighted sum, so is
    ``W_cc c^w``: of annotations that are projected once.

    Args:
        upper, lower: attention to the two levels; the lower one has the guide ``c^w`` (without a guide the two are
            independent) and the recurrent paths.
    """

    def __init__(self, upper: Attention, lower: Attention):
        super().__init__()
        self.upper = upper
        self.lower = lower
        self.guide_sum = WeightedSum()

    @property
    def histories(self) -> Histories:
        """The lower level's."""
        return self.lower.histories

    def memory(self, encoded: Encoded) -> Memory:
        """What every step reads, once a sentence."""
        annotations, padding_mask = encoded.upper_annotations, encoded.upper_padding_mask
        assert annotations is not None and padding_mask is not None
        upper = self.upper.memory(encoded._replace(annotations=annotations, padding_mask=padding_mask))
        guides = None if self.lower.guide is None else self.lower.guide(annotations)  # B x W x A
        return self.lower.memory(encoded)._replace(upper=upper._replace(guides=guides))

    def forward(self, query: Tensor, memory: Memory, state: State) -> Attended:
        """Attend once to each level; as :meth:`Attention.forward`."""
        assert memory.upper is not None
        context, upper_weights, _ = self.upper(query, memory.upper, state)  # N x 2n
        guides = memory.upper.guides
        guide = None if guides is None else self.guide_sum(upper_weights, guides)  # N x A
        detail, weights, _ = self.lower(query, memory, state, guide)
        return Attended(torch.cat([context, detail], dim=1), weights, upper_weights)


SCORES = {"additive": AdditiveAttention}

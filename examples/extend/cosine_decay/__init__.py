"""A custom score, a custom history, and an architecture that has both."""

from typing import Annotated

import torch
from torch import nn
from torch.nn.functional import cosine_similarity, linear

from fairseq_attnvariants import register_architecture, register_history, register_score
from fairseq_attnvariants.nn.attention import Attention
from fairseq_attnvariants.nn.histories import History
from fairseq_attnvariants.nn.layer_norm import at_least_float32
from fairseq_attnvariants.nn.state import grouped
from fairseq_attnvariants.registry import above, within


@register_score("cosine")
class Cosine(Attention):
    """``e_ij = κ cos(W q, U s_j + what histories add)``.

    Args:
        sharpness: κ, by which the cosine is multiplied.
    """

    def __init__(self, *parts, sharpness: Annotated[float, above(0)] = 8.0, **more):
        super().__init__(*parts, **more)
        self.sharpness = sharpness

    def energies(self, query, keys, *features):  # B x k x A, B x S x A, and of each history B x k x S x f with A x f
        keys = keys.unsqueeze(1) + sum(linear(values.to(matrix.dtype), matrix) for values, matrix in features)
        query, keys = at_least_float32(query.unsqueeze(2)), at_least_float32(keys)  # in float16, lengths underflow
        return self.sharpness * cosine_similarity(query, keys, dim=3)  # B x k x S


@register_history("decay")
class Decay(History):
    """``d_ij = r d_{i-1,j} + w_ij``, which the keys read: ``+ v d_{i-1,j}``.

    Args:
        rate: r, what remains of the sum at each step.
    """

    def __init__(self, widths, *, rate: Annotated[float, within(0, 1)] = 0.5):
        super().__init__(widths)
        self.rate, self.projection = rate, nn.Linear(1, widths.attention, bias=False)

    def start(self, memory):
        return torch.zeros_like(memory.positions)  # B x S

    def key_features(self, past):
        return grouped(past.carried, past.memory.keys).unsqueeze(3), self.projection.weight  # B x k x S x 1, A x 1

    def next(self, past, weights, hidden):
        return self.rate * past.carried + weights  # N x S


register_architecture("cosine_decay", base="rnnsearch", attention_score="cosine", attention_history="decay")

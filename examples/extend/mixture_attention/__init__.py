"""Graves' attention: a mixture of bells over the source. This step's query decides how far they move."""

from typing import Annotated

from torch import nn

from fairseq_attnvariants import register_architecture, register_history, register_normalizer, register_score
from fairseq_attnvariants.nn.attention import Attention, Normalizer
from fairseq_attnvariants.nn.histories import History
from fairseq_attnvariants.nn.layer_norm import at_least_float32
from fairseq_attnvariants.nn.state import grouped
from fairseq_attnvariants.registry import at_least


@register_score("position")
class Position(Attention):
    """``e_ij`` has only the terms of histories for position ``j``. The word there has no influence."""

    def __init__(self, widths, histories=None, norm=False, **more):
        super().__init__(widths, histories, False, **more)
        self.query = self.key = nn.Identity()

    def energies(self, query, keys, *features):
        return at_least_float32(keys.new_zeros(*query.shape[:2], keys.size(1)))  # B x k x S


@register_history("mixture")
class Mixture(History):
    """``e_ij = log Σ_k α_k exp(-β_k (κ_k - j)²)`` (Graves 2013, equations 46 to 51).

    ``α, β`` and ``κ_i - κ_{i-1}`` are ``exp(W q_i + b)`` of this step's query, and ``κ_0 = 0``.

    Args:
        bells: how many are mixed.
    """

    def __init__(self, widths, *, bells: Annotated[int, at_least(1)] = 5):
        super().__init__(widths)
        self.projection = nn.Linear(widths.hidden, 3 * bells)

    def start(self, memory):
        return memory.positions.new_zeros(memory.positions.size(0), self.projection.out_features // 3)

    def mixture(self, past):
        """Return ``log α``, ``β`` and ``κ`` of this step, each ``N x K``."""
        height, width, move = at_least_float32(self.projection(past.query)).chunk(3, dim=1)
        return height, width.exp(), past.carried + move.exp()

    def energy_term(self, past):
        positions = past.memory.positions  # B x S
        height, width, centre = (grouped(each, positions).unsqueeze(2) for each in self.mixture(past))  # B x k x 1 x K
        distance = centre - positions[:, None, :, None]  # B x k x S x K
        return (height - width * distance.square()).logsumexp(3)

    def next(self, past, weights, hidden):
        return self.mixture(past)[2]


@register_normalizer("exponential")
class Exponential(Normalizer):
    """``w_ij = exp(e_ij)``, whatever they add up to."""

    adds_up = False

    def normalize(self, energies):
        return energies.exp()


register_architecture(
    "mixture_attention",
    base="dl4mt",
    paper="Graves 2013, section 5.1",
    attention_score="position",
    attention_history="mixture",
    attention_normalizer="exponential",
)

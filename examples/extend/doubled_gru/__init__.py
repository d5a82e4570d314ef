"""Two controls for the adaptive GRU, which halves everything that it weighs as long as its gates are one half."""

from fairseq_attnvariants import register_cell
from fairseq_attnvariants.nn.cells import AdaptiveGRUCell
from fairseq_attnvariants.registry import ConfigurationError


@register_cell("doubled_gru")
class DoubledGRUCell(AdaptiveGRUCell):
    """``W``, ``U`` and ``b`` start doubled, so that ``g = 1/2`` leaves the sums as they are in a GRU."""

    def __init__(self, inputs, hidden_dim, norm=False):
        changed = "--layer-norm changes" if norm else "--context-gate and cells that read the state alone change"
        if norm or not inputs:
            raise ConfigurationError(
                "doubled_gru and doubled_carry_gru are controls for how large adaptive_gru's sums are at the start, "
                f"which {changed} as well: leave one of them out"
            )
        super().__init__(inputs, hidden_dim)

    def initialise(self, scheme):
        super().initialise(scheme)
        for parameter in self.parameters():
            parameter[: 3 * self.hidden_dim] *= 2  # all except the rows of g


@register_cell("doubled_carry_gru")
class DoubledCarryGRUCell(DoubledGRUCell):
    """The carry is doubled as well, ``2 g ∘ z ∘ h``, so that at ``g = 1/2`` a step is a GRU's."""

    def kept(self, gate, previous):
        return 2 * gate * previous

"""Simple recurrent units: a step does not multiply the previous state by a matrix."""

import torch
from torch import nn

from fairseq_attnvariants import register_architecture, register_cell
from fairseq_attnvariants.nn.cells import Cell


@register_cell("sru")
class SRU(Cell):
    """Simple recurrent unit (Lei et al. 2018, equations 1 to 4), whose state is ``[h; c]``.

    ``f = σ(W_f x + v_f ∘ c + b_f)``, ``c' = f ∘ c + (1 - f) ∘ W x``, ``r = σ(W_r x + v_r ∘ c + b_r)``,
    ``h' = r ∘ c' + (1 - r) ∘ W_h x``.  ``W_h`` is from the authors' code and allows inputs of
    any width. All four sums have a bias.
    """

    gates = 4
    normalised = (4,)
    vectors = 2
    recalls = False
    shown = "forget", "reset"

    def __init__(self, *parts, **more):
        super().__init__(*parts, **more)
        self.peephole = nn.Parameter(torch.empty(2 * self.hidden_dim))  # v_f and v_r
        self.forget, self.reset = nn.Sigmoid(), nn.Sigmoid()

    def step(self, inputs, recurrent, previous):
        candidate, forget_x, reset_x, passed = inputs.chunk(4, dim=-1)  # N x n
        before = previous.chunk(2, dim=-1)[1]
        forget_c, reset_c = self.peephole.to(previous.dtype).chunk(2)
        forget, reset = self.forget(forget_x + forget_c * before), self.reset(reset_x + reset_c * before)
        memory = torch.lerp(candidate, before, forget)
        return torch.cat([torch.lerp(passed, memory, reset), memory], dim=-1)  # N x 2n


register_architecture("sru", base="dl4mt", paper="Lei et al. 2018", encoder_cell="sru", decoder_cell="sru")

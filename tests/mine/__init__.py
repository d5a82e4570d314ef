"""Parts and architectures that a user could write, in a folder for ``--user-dir``."""

from typing import Annotated

import torch
from torch import nn
from torch.nn import functional as F

from fairseq_attnvariants import (
    register_architecture,
    register_cell,
    register_history,
    register_normalizer,
    register_readout,
    register_score,
    register_window,
)
from fairseq_attnvariants.nn.attention import Attention, Normalizer
from fairseq_attnvariants.nn.cells import Cell
from fairseq_attnvariants.nn.histories import History
from fairseq_attnvariants.nn.readout import Readout
from fairseq_attnvariants.nn.state import grouped
from fairseq_attnvariants.nn.windows import MonotoneWindow, Window
from fairseq_attnvariants.registry import above, within


@register_score("cosine")
class Cosine(Attention):
    """``e = κ cos(W q, U s + Σ features)``.

    Args:
        sharpness: ``κ``, by which the
            cosine is multiplied.
    """

    def __init__(self, *parts, sharpness: Annotated[float, above(0)] = 8, **more):
        super().__init__(*parts, **more)
        self.sharpness = sharpness

    def energies(self, query, keys, *features):
        keys = keys.unsqueeze(1) + sum(F.linear(values.to(matrix.dtype), matrix) for values, matrix in features)
        return self.sharpness * F.cosine_similarity(query.unsqueeze(2), keys, dim=3)


@register_history("decay")
class Decay(History):
    """The sum of earlier weights, of which a part is forgotten at each step.

    Args:
        rate: what remains of the sum at each step.
    """

    def __init__(self, widths, *, rate: Annotated[float, within(0, 1)] = 0.5):
        super().__init__(widths)
        self.rate = rate
        self.projection = nn.Linear(1, widths.attention, bias=False)

    def start(self, memory):
        return torch.zeros_like(memory.positions)

    def key_features(self, past):
        return grouped(past.carried, past.memory.keys).unsqueeze(3), self.projection.weight

    def next(self, past, weights, hidden):
        return self.rate * past.carried + weights


@register_history("reader")
class Reader(History):
    """Reads the context and the annotations by separate maps, and carries several tensors."""

    def __init__(self, widths):
        super().__init__(widths)
        self.inner = nn.Linear(widths.context, widths.attention)
        self.outer = nn.Linear(widths.attention, widths.attention)
        self.annotations = nn.Linear(widths.annotation, 1)

    def remember(self, annotations):
        return {"bias": self.annotations(annotations).squeeze(2)}

    def start(self, memory):
        return {
            "sum": memory.keys.new_zeros(len(memory.keys), self.outer.in_features),
            "more": (None, memory.positions),
        }

    def query_term(self, past):
        return self.outer(torch.tanh(self.inner(past.state.context)) + past.carried["sum"])

    def energy_term(self, past):
        return past.known["bias"].unsqueeze(1)

    def next(self, past, weights, hidden):
        return {**past.carried, "sum": past.carried["sum"] + self.inner(past.state.context)}


@register_cell("minimal")
class Minimal(Cell):
    """A minimal gated unit, whose gate has a constant in its sum.

    Args:
        constant: in the gate's sum
    """

    gates = 2
    normalised = 1, 1

    def __init__(self, *parts, constant: float = 1.0, **more):
        super().__init__(*parts, **more)
        self.constant = constant

    def step(self, inputs, recurrent, previous):
        (gate_x, new_x), (gate_h, new_h) = inputs.chunk(2, -1), recurrent.chunk(2, -1)
        gate = torch.sigmoid(gate_x + gate_h + self.constant)
        return torch.lerp(previous, torch.tanh(new_x + gate * new_h), gate)


@register_normalizer("uniform_mix")
class UniformMix(Normalizer):
    """A softmax that is a little flatter."""

    def normalize(self, energies):
        real = energies.ne(torch.finfo(energies.dtype).min)
        return torch.softmax(energies, -1) * 0.9 + 0.1 * real / real.sum(-1, keepdim=True).clamp(min=1)


@register_window("contextual")
class Contextual(Window):
    """A factor of the weights that the previous context decides upon."""

    def __init__(self, widths, width):
        super().__init__(widths, width)
        self.gate = nn.Linear(widths.context, 1)

    def forward(self, query, memory, state):
        gate = grouped(torch.sigmoid(self.gate(state.context)), memory.positions)  # B x k x 1
        return memory.padding_mask.unsqueeze(1), (memory.positions.unsqueeze(1) * gate).exp()


@register_window("diagonal")
class Diagonal(MonotoneWindow):
    """Weights fall with the distance from the step's own position."""

    def factor(self, distance):
        return torch.exp(-distance.abs())


@register_readout("gated")
class Gated(Readout):
    """Reads the context a second time."""

    def __init__(self, widths, *parts, **more):
        super().__init__(widths, *parts, **more)
        self.gate = nn.Linear(widths.context, widths.features)

    def forward(self, hidden, target, context):
        return super().forward(hidden, target, context) * torch.sigmoid(self.gate(context))

    def finish(self, total):
        return torch.tanh(total)


register_architecture("mine", base="dl4mt", paper="Me", attention_score="cosine", attention_history="context+decay")
register_architecture("mine_slow", base="mine", part_args={"decay": {"rate": 0.9}}, init_std=0.05)
register_architecture("mine_sharp", base="mine_slow", part_args={"cosine": {"sharpness": 4.0}})
register_architecture(
    "mine_cells", base="dl4mt", encoder_cell="minimal", decoder_cell="minimal", encoder_layers=2, decoder_layers=2
)

"""Copying: a target word is generated, or copied from the source (See et al. 2017 §2.2).

Shapes as in :mod:`.state`; ``V`` is the number of target symbols.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..registry import Widths
from .layer_norm import at_least_float32
from .readout import Prediction, Readout, Steps
from .state import Encoded, Memory


class Copies(NamedTuple):
    """The symbols that a target can copy from a source."""

    symbols: Tensor
    """the target symbol of each copied token, ``B x S``"""
    firsts: Tensor
    """the first token that is copied as the same symbol, ``B x S``"""
    generating: Any
    """the generating readout's entry of the memory"""


class Copying(nn.Module):
    """A readout that generates a word by another readout, or copies it (See et al. 2017 eq. 8, 9).

    ``p = σ(u·c + v·s + x·y + b)``, ``P(w) = p P_vocab(w) + (1-p) Σ_{j: x_j = w} w_j``.

    Args:
        readout: the generating readout, for ``P_vocab``.
        widths: of ``s``, ``y`` and ``c``.
        symbols: the index of the target symbol for each source symbol.
    """

    symbols: Tensor

    def __init__(self, readout: Readout, widths: Widths, symbols: Tensor):
        super().__init__()
        self.readout = readout
        self.hidden = nn.Linear(widths.hidden, 1)
        self.target = nn.Linear(widths.target, 1, bias=False)
        self.context = nn.Linear(widths.context, 1, bias=False)
        self.register_buffer("symbols", symbols, persistent=False)  # the dictionaries determine it

    def forward(self, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        """Return the features of the generating readout, which has the same arguments, and ``log p - log(1-p)``.

        ``N x T x (f + 1)``.
        """
        choice = self.hidden(hidden) + self.target(target) + self.context(context)
        return torch.cat([self.readout(hidden, target, context), choice], dim=2)

    def remember(self, encoded: Encoded) -> Copies:
        """Return the readout's entry in the memory, see :meth:`.readout.Readout.remember`."""
        symbols = self.symbols[encoded.tokens]
        same = symbols.unsqueeze(2).eq(symbols.unsqueeze(1))  # B x S x S, once per sentence
        return Copies(symbols, same.int().argmax(2), self.readout.remember(encoded))

    def start(self, memory: Memory) -> Any:
        """Return the readout's state before the first step, see :meth:`.readout.Readout.start`."""
        return self.readout.start(memory._replace(readout=memory.readout.generating))

    def predict(self, features: Tensor, project: Callable[[Tensor], Tensor], steps: Steps) -> Prediction:
        """``log P``, ``N x T x V``, in float32 or better; see :meth:`.readout.Readout.predict`.

        Only words of the source have more than ``log(p P_vocab)``.  So the added term has size ``N x T x S``:
        ``log(1 + (1-p) Σ w_j / (p P_vocab))``.  It is finite for every ``P_vocab``.
        """
        copies, choice = steps.memory.readout, at_least_float32(features[..., -1:])
        generating = steps._replace(memory=steps.memory._replace(readout=copies.generating))
        generated = self.readout.predict(features[..., :-1], project, generating)
        logs = at_least_float32(generated.output).log_softmax(2) + F.logsigmoid(choice)  # N x T x V
        weights = (steps.weights if generated.weights is None else generated.weights).to(logs.dtype)  # N x T x S
        beam = logs.size(0) // copies.symbols.size(0)
        symbols, firsts = (
            rows.unsqueeze(1).expand(-1, beam, -1).flatten(0, 1).unsqueeze(1).expand_as(weights) for rows in copies[:2]
        )
        copied = torch.zeros_like(weights).scatter_add(2, firsts, weights)  # Σ w_j at a symbol's first token, else 0
        ratio = F.logsigmoid(-choice) + copied.clamp(min=torch.finfo(copied.dtype).tiny).log() - logs.gather(2, symbols)
        more = torch.where(copied > 0, F.softplus(ratio), 0.0).to(logs.dtype)  # N x T x S
        return generated._replace(output=logs.scatter_add(2, symbols, more))

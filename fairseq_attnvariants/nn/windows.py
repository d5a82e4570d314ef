"""Windows: attention reads all of a sentence, or only positions near one centre per step (Luong et al. 2015).

Positions and a sentence's length count real tokens from 1.  Shapes as in :mod:`.state`.
"""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from ..registry import Registry, Widths, at_least
from .histories import Carrying, Past
from .layer_norm import at_least_float32
from .state import Memory, State, grouped


class Window(Carrying):
    """A window of attention: all of the sentence, unless a subclass defines another.

    Args:
        widths: of the query (``hidden``).
        width: how many positions a window reaches to either side of its centre.
    """

    same_units: ClassVar[bool] = False
    """whether step ``i`` attends near source position ``i``, so that source and target must count the same units"""

    def __init__(self, widths: Widths, width: Annotated[int, at_least(1)] = 10):
        super().__init__()
        self.width = width

    def forward(self, query: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None]:
        """Return a mask, True at positions without attention, and a factor for the other weights, or None.

        Both are ``B x k x S``, or ``B x 1 x S``, for a query ``N x n``.
        """
        return memory.padding_mask.unsqueeze(1), None

    def look(self, past: Past) -> tuple[Tensor, Tensor | None]:
        """Return the result of :meth:`forward`; a window that reads its state overrides this."""
        found: tuple[Tensor, Tensor | None] = self(past.query, past.memory, past.state)
        return found


WINDOWS: Registry[type[Window]] = Registry("attention window", Window)
register_window = WINDOWS.register


@register_window("none")
class NoWindow(Window):
    """All of the sentence."""

    def __init__(self, widths: Widths):
        super().__init__(widths)


@register_window("monotone")
class MonotoneWindow(Window):
    """``[i-D, i+D]`` at step ``i`` (local-m), where ``i`` stops at EOS (in the code of Luong et al. before it)."""

    same_units = True

    def forward(self, query: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None]:
        last = memory.positions[:, -1:]  # S, B x 1: whichever side the padding is on
        centre = torch.minimum(self.centre(query, memory, state), last)  # B x k
        distance = memory.positions.unsqueeze(1) - centre.unsqueeze(2)  # B x k x S
        return memory.padding_mask.unsqueeze(1) | (distance.abs() > self.width), self.factor(distance)

    def centre(self, query: Tensor, memory: Memory, state: State) -> Tensor:
        """Return the window's centre, ``B x k``."""
        return grouped(state.step + 1, memory.positions)

    def factor(self, distance: Tensor) -> Tensor | None:
        """Return a factor of the weights, from the distance to the centre; None for no factor."""
        return None


@register_window("predictive")
class PredictiveWindow(MonotoneWindow):
    """``[p-D, p+D]`` around ``p = S σ(v·tanh(W q))``, where weights are multiplied by ``exp(-(j-p)²/2σ²)`` (local-p).

    ``σ = D/2``, and ``W`` is square.  The weights are scaled to add up to 1 again; Luong et al. do not scale them.
    """

    same_units = False

    def __init__(self, widths: Widths, *parts: Any, **options: Any):
        super().__init__(widths, *parts, **options)
        self.query = nn.Linear(widths.hidden, widths.hidden, bias=False)
        self.vector = nn.Parameter(torch.empty(widths.hidden))

    def centre(self, query: Tensor, memory: Memory, state: State) -> Tensor:
        place = (at_least_float32(torch.tanh(self.query(query))) * self.vector).sum(1).sigmoid()  # N
        return memory.positions[:, -1:] * grouped(place, memory.positions)

    def factor(self, distance: Tensor) -> Tensor:
        return torch.exp(-2 * (distance / self.width).square())

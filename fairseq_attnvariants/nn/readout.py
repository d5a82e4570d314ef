"""From the state, the previous word and the context to the features that the vocabulary layer reads.

The readout has no part in the recurrence, so it runs once over all steps, after the loop.

Shapes: ``B`` batch, ``T`` target length, ``n`` hidden width, ``m`` embedding width, ``a`` annotation width.
"""

import torch
from torch import Tensor, nn

from .init import normal_


class Readout(nn.Module):
    """Sum of three affine maps, ``U s + V y + C c + b``, that the subclasses finish.

    Args:
        hidden, target, context: widths of ``s``, ``y`` and ``c``.
        width: width of the sum.
    """

    def __init__(self, hidden: int, target: int, context: int, width: int):
        super().__init__()
        self.hidden = normal_(nn.Linear(hidden, width))
        self.target = normal_(nn.Linear(target, width, bias=False))
        self.context = normal_(nn.Linear(context, width, bias=False))

    def forward(self, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        """Features of every step.

        Args:
            hidden: ``s_t``, ``B x T x n``.
            target: ``y_{t-1}``, ``B x T x m``.
            context: ``c_t``, ``B x T x a``.

        Returns:
            ``B x T x out_dim``.
        """
        return self.finish(self.hidden(hidden) + self.target(target) + self.context(context))

    def finish(self, total: Tensor) -> Tensor:
        """What follows the sum."""
        raise NotImplementedError


class MaxoutReadout(Readout):
    """Deep output (001 §3.2): a linear map of ``[h; y; c]`` to twice the width, then the larger of each pair.

    Unit ``k`` is paired with unit ``k + out_dim``.
    """

    def __init__(self, hidden: int, target: int, context: int, out_dim: int):
        super().__init__(hidden, target, context, 2 * out_dim)

    def finish(self, total: Tensor) -> Tensor:
        return torch.maximum(*total.chunk(2, dim=-1))


class TanhReadout(Readout):
    """``tanh(U_o s + V_o y + C_o c + b)`` (002 eq. 4)."""

    def finish(self, total: Tensor) -> Tensor:
        return torch.tanh(total)


READOUTS = {"maxout": MaxoutReadout, "tanh": TanhReadout}

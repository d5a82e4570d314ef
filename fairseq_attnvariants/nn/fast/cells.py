"""The step of a plain cell as one kernel of PyTorch, on a GPU.

Its equation is the cell's.  A class names its kernel, and only that class has it: one that derives from it may compute
in another way.
"""

from typing import Any

import torch
from torch import Tensor

from . import compiling, on_gpu, transforming


def gru(inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
    """As :meth:`~..cells.GRUCell.step`."""
    state: Tensor = torch.ops.aten._thnn_fused_gru_cell(inputs, recurrent, previous)[0]
    return state


def lstm(inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
    """As :meth:`~..cells.LSTMCell.step`."""
    hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(inputs, recurrent, previous.chunk(2, dim=1)[1])
    return torch.cat([hidden, cell], dim=1)


KERNELS = {"gru": gru, "lstm": lstm}


def stepped(cell: Any, inputs: Tensor, recurrent: Any, previous: Tensor) -> Tensor:
    """What the cell's own ``step`` gives.

    Args:
        cell: a :class:`~..cells.Cell`.
        inputs, recurrent, previous: as :meth:`~..cells.Cell.step`'s, all of one number type.
    """
    name = vars(type(cell)).get("kernel")
    if name is None or not on_gpu(previous) or previous.dim() != 2 or compiling() or transforming():
        state: Tensor = cell.step(inputs, recurrent, previous)
        return state
    with torch.autocast(previous.device.type, enabled=False):  # which would run it in float16
        return KERNELS[name](inputs.expand_as(recurrent), recurrent, previous)

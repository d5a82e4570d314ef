"""A step of a plain cell as one kernel of PyTorch on a GPU, and all its steps as one call of cuDNN.

The kernel computes the cell's equations.  A class names its kernel, and only that class uses it, because a derived
class may compute something else.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..device import on_gpu
from ..twins import plain_linear
from . import compiling, transforming
from .deferred import Deferred


def gru(inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
    """Return the next state, as :meth:`~..cells.GRUCell.step` does."""
    state: Tensor = torch.ops.aten._thnn_fused_gru_cell(inputs, recurrent, previous)[0]
    return state


def lstm(inputs: Tensor, recurrent: Tensor, previous: Tensor) -> Tensor:
    """Return the next state, as :meth:`~..cells.LSTMCell.step` does."""
    hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(inputs, recurrent, previous.chunk(2, dim=1)[1])
    return torch.cat([hidden, cell], dim=1)


KERNELS = {"gru": gru, "lstm": lstm}


def stepped(cell: Any, inputs: Tensor, recurrent: Any, previous: Tensor) -> Tensor:
    """Return the next state, as the cell's ``step`` does.

    Args:
        cell: a :class:`~..cells.Cell`.
        inputs, recurrent, previous: as for :meth:`~..cells.Cell.step`, all of one number type.
    """
    name = kernel(cell, previous)
    if name is None or previous.dim() != 2:
        state: Tensor = cell.step(inputs, recurrent, previous)
        return state
    with torch.autocast(previous.device.type, enabled=False):  # autocast would run it in float16
        return KERNELS[name](inputs.expand_as(recurrent), recurrent, previous)


def kernel(cell: Any, value: Tensor) -> str | None:
    """Return the name of the kernel of a cell's class, or None if no kernel can be launched here."""
    launched = on_gpu(value) and not (compiling() or transforming())
    return vars(type(cell)).get("kernel") if launched else None


def fits(cell: Any, inputs: nn.Module, value: Tensor) -> bool:
    """Whether :func:`over_all` computes the same as the cell."""
    if kernel(cell, value) is None or not isinstance(cell.recurrent_norm, nn.Identity):
        return False
    return all(plain_linear(part) or isinstance(part, Deferred) for part in (inputs, cell.recurrent))


def over_all(cell: Any, inputs: Any, values: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Run all steps of a plain cell.

    Args:
        cell: a GRU or an LSTM without layer normalisation.
        inputs: the linear map of its only input.
        values: the input, ``T x N x width``.
        state: the state before the first step, ``N x state width``.

    Returns:
        the outputs ``T·N x n`` and the last state.
    """
    weight, bias = inputs.weight, inputs.bias
    second = cell.recurrent.bias  # PyTorch's cell always has a second bias
    parts = [weight, cell.recurrent.weight, bias, torch.zeros_like(bias) if second is None else second]
    flat = torch.cat([part.flatten() for part in parts])  # one block of memory, as cuDNN needs it
    weights = [own.view_as(part) for own, part in zip(flat.split([part.numel() for part in parts]), parts)]
    start = [part.contiguous() for part in state.to(weight.dtype).unsqueeze(0).chunk(cell.vectors, dim=-1)]
    lstm = len(start) > 1
    call: Any = torch._VF.lstm if lstm else torch._VF.gru
    with torch.autocast(values.device.type, enabled=False):
        read = values.to(weight.dtype), start if lstm else start[0], weights
        outputs, *final = call(*read, True, 1, 0.0, cell.training, False, False)
    return outputs.flatten(0, 1), torch.cat(final, dim=-1).squeeze(0)

"""A GPU simulated on a CPU: the package's branches for it, PyTorch's fused cells by their equations, and launches."""

from collections import Counter

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from fairseq_attnvariants.nn import device

aten = torch.ops.aten
NO_KERNELS = {aten.detach.default, aten.alias.default, aten._unsafe_view.default, aten.squeeze_.dim}
NO_KERNELS |= {aten.promote_types.default}
READS = {Tensor.__bool__, Tensor.__int__, Tensor.item, Tensor.tolist, torch.equal, torch.unique_consecutive}


def gru(inputs, recurrent, previous, *biases):
    """Return the state after a step, and the workspace that the backward pass reads."""
    x, h = inputs.chunk(3, 1), recurrent.chunk(3, 1)
    reset, update = torch.sigmoid(x[0] + h[0]), torch.sigmoid(x[1] + h[1])
    candidate = torch.tanh(x[2] + reset * h[2])
    return update * previous + (1 - update) * candidate, torch.cat([reset, update, candidate, previous, h[2]], 1)


def gru_backward(grad, workspace, has_bias):
    reset, update, candidate, previous, of_candidate = workspace.chunk(5, 1)
    by_candidate = grad * (1 - update) * (1 - candidate**2)
    by_update = grad * (previous - candidate) * update * (1 - update)
    by_reset = by_candidate * of_candidate * reset * (1 - reset)
    inputs = torch.cat([by_reset, by_update, by_candidate], 1)
    recurrent = torch.cat([by_reset, by_update, by_candidate * reset], 1)
    return inputs, recurrent, grad * update, grad.new_empty(0), grad.new_empty(0)


def lstm(inputs, recurrent, cell, *biases):
    """Return ``h`` and ``c`` after a step, and the workspace that the backward pass reads."""
    i, f, g, o = sum([bias for bias in biases if bias is not None], inputs + recurrent).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * cell + i * g
    return o * new.tanh(), new, torch.cat([i, f, g, o], 1)


def lstm_backward(by_hidden, by_cell, before, after, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    by_hidden = torch.zeros_like(after) if by_hidden is None else by_hidden
    total = by_hidden * o * (1 - after.tanh() ** 2) + (0 if by_cell is None else by_cell)
    by_gates = [total * g * i * (1 - i), total * before * f * (1 - f), total * i * (1 - g**2)]
    by_gates.append(by_hidden * after.tanh() * o * (1 - o))
    by_gates = torch.cat(by_gates, 1)
    return by_gates, total * f, by_gates.sum(0) if has_bias else after.new_empty(0)


LIBRARY = torch.library.Library("aten", "IMPL")  # PyTorch has none of these for a CPU
LIBRARY.impl("_thnn_fused_gru_cell", gru, "CPU")
LIBRARY.impl("_thnn_fused_gru_cell_backward", gru_backward, "CPU")
LIBRARY.impl("_thnn_fused_lstm_cell", lstm, "CPU")
LIBRARY.impl("_thnn_fused_lstm_cell_backward_impl", lstm_backward, "CPU")


def on_gpu(monkeypatch, on=True):
    """Take the CPU for a GPU from here on, or no longer."""
    monkeypatch.setattr(device, "GPU", "cpu" if on else "cuda")


class Launches(TorchDispatchMode):
    """Count the operators that are no views, by name."""

    def __init__(self):
        super().__init__()
        self.counted = Counter()

    @property
    def total(self):
        return sum(self.counted.values())

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        if not operator.is_view and operator not in NO_KERNELS:
            self.counted[operator.overloadpacket.__name__] += 1
        return found


class Waits(TorchFunctionMode):
    """Count how often the host would wait for a GPU, if it had all tensors except those that ``cpu()`` made."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs, read = kwargs or {}, [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        masks = function is Tensor.__getitem__ and any(x.dtype == torch.bool for x in read[1:])
        made_there = function in (torch.arange, torch.tensor) and "device" not in kwargs
        on_host = made_there or any(getattr(x, "on_host", False) for x in read)
        found = function(*args, **kwargs)
        if function is Tensor.cpu:
            self.count += not on_host
            on_host, found = True, found.clone()
        elif function is Tensor.to and on_host and any(isinstance(each, torch.device) for each in args):
            self.count += not kwargs.get("non_blocking", False)
            on_host, found = False, found.clone()
        elif not on_host:
            self.count += masks or function in READS
        for made in found if isinstance(found, tuple) else [found]:
            if on_host and isinstance(made, Tensor):
                made.on_host = True
        return found

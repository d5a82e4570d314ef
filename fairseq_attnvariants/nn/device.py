"""Tells where tensors are, and whether operations there are captured."""

import contextlib
from typing import Iterator

import torch
from torch import Tensor

GPU = "cuda"  # the type of device that launches a kernel for each operation
_graphs = 0  # graphs in preparation


def on_gpu(tensor: Tensor) -> bool:
    """Whether each operation on a tensor is launched as a kernel."""
    return tensor.device.type == GPU


def capturing() -> bool:
    """Whether operations are recorded as a CUDA graph: then Python runs once, and kernels run at every replay."""
    return _graphs > 0 or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def as_captured() -> Iterator[None]:
    """Behave as within a capture: to warm up before one, or instead of one on a CPU."""
    global _graphs
    _graphs += 1
    try:
        yield
    finally:
        _graphs -= 1

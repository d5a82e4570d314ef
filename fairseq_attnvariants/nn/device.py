"""Functions for the device of tensors, and for the capture of operations as CUDA graphs."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

GPU = "cuda"  # the type of device that launches a kernel for each operation
_graphs = 0  # open blocks of as_captured


def on_gpu(tensor: Tensor) -> bool:
    """Whether each operation on a tensor is launched as a kernel."""
    return tensor.device.type == GPU


def capturing() -> bool:
    """Whether operations are recorded as a CUDA graph: then Python runs once, and kernels run at every replay."""
    return _graphs > 0 or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def as_captured() -> Iterator[None]:
    """Make :func:`capturing` true: to warm up before a capture, or to replace a capture on a CPU."""
    global _graphs
    _graphs += 1
    try:
        yield
    finally:
        _graphs -= 1

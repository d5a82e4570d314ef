"""Where tensors are, and whether what runs there is captured."""

import contextlib
from typing import Iterator

import torch
from torch import Tensor

GPU = "cuda"  # the type of device that launches a kernel for each operation
_graphs = 0  # that are being prepared


def on_gpu(tensor: Tensor) -> bool:
    """Whether operations on a tensor are kernels, each of which is launched by itself."""
    return tensor.device.type == GPU


def capturing() -> bool:
    """Whether operations are recorded as a CUDA graph: then Python runs once, and the kernels at every replay."""
    return _graphs > 0 or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def as_captured() -> Iterator[None]:
    """Run what a capture would run: before a capture, as a trial, and instead of one on a CPU."""
    global _graphs
    _graphs += 1
    try:
        yield
    finally:
        _graphs -= 1

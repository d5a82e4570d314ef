"""Capture of work on a GPU as a CUDA graph; a failure does not harm the process.

A capture records launches instead of running them.  It must not wait for the GPU, and it owns the memory it allocates.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..device import as_captured


class CudaRecorder:
    """Captures on a separate stream of a GPU, with memory that all its graphs share."""

    def __init__(self, device: torch.device):
        self.device, self.devices = device, [device]
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        self.broken: list[Any] = []

    def random_state(self) -> Tensor:
        """Return the state of the device's random number generator."""
        return torch.cuda.get_rng_state(self.device)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Run the work once before its capture; waiting for the GPU would break a capture, so it is an error here.

        The run launches the same kernels as the capture.  In it, libraries allocate memory that they keep per stream
        and thread, such as the workspaces of cuBLAS.
        """
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with self._on_stream(), as_captured():
                yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def capture(self, launch: Callable[[], None]) -> Any:
        """Return the graph of a function's launches, which has ``replay()``; no launch runs yet."""
        graph = torch.cuda.CUDAGraph()
        torch.clear_autocast_cache()  # earlier casts would not be in the graph
        try:
            # other threads may call CUDA meanwhile, such as NCCL's threads or the thread that pins memory
            with self._on_stream(), torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                launch()
        except Exception:
            self._mend(graph)
            raise
        finally:
            torch.clear_autocast_cache()  # the casts of a capture are in the graph's memory
        return graph

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Use the stream, after earlier launches; a broken capture would not leave the stream by itself."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def _mend(self, graph: Any) -> None:
        """Clean up a broken capture: torch before 2.12 does not end it in the allocator and the generator."""
        self.broken.append(graph)  # the allocator may call the graph once more
        with contextlib.suppress(Exception):
            torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)
        whole = torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self.stream, capture_error_mode="thread_local")
        with contextlib.suppress(Exception), self._on_stream(), whole:
            torch.zeros(1, device=self.device)  # the end of this capture also reaches the generator


RECORDERS: dict[str, Callable[[torch.device], Any]] = {"cuda": CudaRecorder}
"""The class of the recorder for each type of device."""

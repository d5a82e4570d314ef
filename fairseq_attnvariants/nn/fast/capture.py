"""Captures work on a GPU in a CUDA graph, so that a failure leaves the process unharmed.

A capture records launches instead of running them.  It must not wait for the GPU, and it owns the memory it allocates.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List

import torch
from torch import Tensor

from ..device import as_captured


class CudaRecorder:
    """Captures on a separate stream of a GPU, with memory that all its graphs share."""

    def __init__(self, device: torch.device):
        self.device, self.devices = device, [device]
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        self.broken: List[Any] = []

    def random_state(self) -> Tensor:
        """The state of the device's random numbers."""
        return torch.cuda.get_rng_state(self.device)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Run the work once before its capture: waiting for the GPU, which breaks a capture, is an error here.

        The run launches the kernels of the capture, and libraries create what they keep for a stream and a thread, such
        as the workspaces of cuBLAS.
        """
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with self._on_stream(), as_captured():
                yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def capture(self, launch: Callable[[], None]) -> Any:
        """The graph of a function's launches, with ``replay()``; none of them runs yet."""
        graph = torch.cuda.CUDAGraph()
        torch.clear_autocast_cache()  # earlier casts would not be in the graph
        try:
            # other threads may call CUDA meanwhile, such as NCCL's or the one that pins memory
            with self._on_stream(), torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                launch()
        except Exception:
            self._mend(graph)
            raise
        finally:
            torch.clear_autocast_cache()  # its casts are in its memory
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
        """Clean up a broken capture: torch before 2.12 does not tell the allocator and the generator that it ended."""
        self.broken.append(graph)  # the allocator may call it once more
        with contextlib.suppress(Exception):
            torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)
        whole = torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self.stream, capture_error_mode="thread_local")
        with contextlib.suppress(Exception), self._on_stream(), whole:
            torch.zeros(1, device=self.device)  # the generator, too, sees the end of this capture


RECORDERS: Dict[str, Callable[[torch.device], Any]] = {"cuda": CudaRecorder}
"""The recorder's class, by the type of device."""

"""How work on a GPU is captured in a CUDA graph, so that what goes wrong leaves the process as it was.

A capture notes what is launched instead of running it.  It must not wait for the GPU, and it owns what it allocates.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List

import torch
from torch import Tensor

from ..device import as_captured


class CudaRecorder:
    """Captures on a stream of its own, with memory that all its graphs share.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device):
        self.device, self.devices = device, [device]
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        self.broken: List[Any] = []

    def random_state(self) -> Tensor:
        """Where the device's random numbers are."""
        return torch.cuda.get_rng_state(self.device)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """For a first run of what is to be captured: to wait for the GPU, which breaks a capture, is an error here.

        The run launches the kernels of the capture, and libraries set up what they keep for a stream and a thread, such
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
        """The graph of what a function launches, with ``replay()``; nothing of it runs yet."""
        graph = torch.cuda.CUDAGraph()
        torch.clear_autocast_cache()  # what was cast before would be no part of the graph
        try:
            # other threads call CUDA meanwhile, such as the one that pins memory, and NCCL's: they break nothing
            with self._on_stream(), torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                launch()
        except Exception:
            self._mend(graph)
            raise
        finally:
            torch.clear_autocast_cache()  # what was cast in it is in its memory
        return graph

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """On the stream, after what was launched before; a capture that breaks would stay there by itself."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def _mend(self, graph: Any) -> None:
        """After a capture that broke: torch before 2.12 does not tell the allocator and the generator that it ended."""
        self.broken.append(graph)  # the allocator may ask it once more
        with contextlib.suppress(Exception):
            torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)
        whole = torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self.stream, capture_error_mode="thread_local")
        with contextlib.suppress(Exception), self._on_stream(), whole:
            torch.zeros(1, device=self.device)  # the end of this capture is the generator's, too


RECORDERS: Dict[str, Callable[[torch.device], Any]] = {"cuda": CudaRecorder}
"""The class that captures, by the type of a device."""

"""A substitute of CUDA graphs on a CPU: its graphs run again what real ones would replay.

All the rest is as on a GPU: aliases, shared memory, copies, and waits for a backward pass.
"""

import contextlib
import threading
from unittest import mock

import torch


class Graph:
    """A graph that runs its function again."""

    replayed = 0

    def __init__(self, launch):
        self.launch = launch

    def replay(self):
        Graph.replayed += 1
        self.launch()


class Recorder:
    """A substitute of :class:`fairseq_attnvariants.nn.fast.capture.CudaRecorder`."""

    devices = ()

    def __init__(self, device):
        self.device = device

    def random_state(self):
        return torch.get_rng_state()

    @contextlib.contextmanager
    def trial(self):
        """Raise an error if this thread waits for the GPU; threads that prepare batches on the CPU may read values."""
        plain, thread = torch.Tensor.item, threading.get_ident()

        def item(tensor):
            if threading.get_ident() == thread:
                raise RuntimeError("called a synchronizing operation")
            return plain(tensor)

        with mock.patch.object(torch.Tensor, "item", item):
            yield

    def capture(self, launch):
        launch()
        return Graph(launch)

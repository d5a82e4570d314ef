"""Captures on a CPU as CUDA does on a GPU; its graphs run again what they would replay.

All that is around them is as on a GPU: aliases, shared memory, copies, and who waits for a backward pass.
"""

import contextlib
import threading
from unittest import mock

import torch


class Graph:
    """Runs again what was launched once."""

    replayed = 0

    def __init__(self, launch):
        self.launch = launch

    def replay(self):
        Graph.replayed += 1
        self.launch()


class Recorder:
    """As :class:`fairseq_attnvariants.nn.fast.capture.CudaRecorder`."""

    devices = ()

    def __init__(self, device):
        self.device = device

    def random_state(self):
        return torch.get_rng_state()

    @contextlib.contextmanager
    def trial(self):
        """As on a GPU, what waits for it is an error; threads that prepare batches on the CPU do not."""
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

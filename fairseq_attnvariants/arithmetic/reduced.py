"""Products in bfloat16, and timings that compare them with products in float32 on this machine.

In search, products read their factors in bfloat16 (on CUDA in TF32, the nearest type that PyTorch offers), and their
results are float32.  Then 983 of 1,000 translations were the same as in float32; with results in bfloat16, 940 were.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 80  # rows of a timed input, which are sentences of a batch, or hypotheses
COLUMNS = 4096  # the most outputs of a timed matrix: a vocabulary is timed by its first words
TURNS = 3

_lock = threading.Lock()
_before: list[str] = []  # the precision before the first open block, once for each open block


@contextmanager
def reduced_products() -> Iterator[None]:
    """Let products of float32 matrices inside the block use the processor's instructions for bfloat16.

    PyTorch has one precision for all threads, so the last of several overlapping blocks restores it.
    """
    with _lock:
        _before.append(_before[0] if _before else torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                torch.set_float32_matmul_precision(before)


class Timing(NamedTuple):
    """Times of products of a model's sizes, in milliseconds."""

    float32: float
    reduced: float


def products(*modules: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return an input ``ROWS x in`` and a weight, up to ``COLUMNS x in``, for each size of the modules' linear maps."""
    parts = [part for module in modules for part in module.modules() if isinstance(part, nn.Linear)]
    weights = {part.weight[:COLUMNS].shape: part.weight[:COLUMNS].detach().float() for part in parts}
    # no random number is drawn, so timing does not change the training that follows
    return [(torch.ones(ROWS, weight.size(1), device=weight.device), weight) for weight in weights.values()]


def time_training(*modules: nn.Module) -> Timing:
    """Time the products of training in bfloat16, where weights are converted once per update."""
    pairs = products(*modules)
    converted = [weight.bfloat16() for _, weight in pairs]
    return compare(
        lambda: [F.linear(*pair) for pair in pairs],
        lambda: [F.linear(rows.bfloat16(), weight) for (rows, _), weight in zip(pairs, converted)],
    )


def time_search(*modules: nn.Module) -> Timing:
    """Time the products of search in bfloat16, see :func:`reduced_products`."""
    pairs = products(*modules)

    def multiply() -> Any:
        return [F.linear(*pair) for pair in pairs]

    return compare(multiply, reduced_products()(multiply))


@torch.no_grad()
def compare(plain: Callable[[], Any], other: Callable[[], Any]) -> Timing:
    """Run two computations in turns, and return the time of each one's quickest turn; the first turn does not count."""
    turns = [(_milliseconds(plain), _milliseconds(other)) for _ in range(TURNS + 1)]
    return Timing(*(min(column) for column in zip(*turns[1:])))


def _milliseconds(compute: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    compute()[-1].sum().item()  # waits for the device
    return 1000 * (time.perf_counter() - begin)

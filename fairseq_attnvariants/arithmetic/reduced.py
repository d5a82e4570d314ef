"""Products in bfloat16, and whether they are quicker than in float32 here.

In search, products read their factors in bfloat16 (on CUDA in TF32, PyTorch's nearest), and their results are float32.
So 983 of 1,000 translations were the same as in float32; with results in bfloat16 it was 940.
"""

import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 80  # of what is multiplied, to time it: sentences of a batch, or hypotheses
COLUMNS = 4096  # of a matrix, at most: a vocabulary is timed by its first words
TURNS = 3

_lock = threading.Lock()
_before: List[str] = []  # the precision before the first of the blocks that are open, once for each of them


@contextmanager
def reduced_products() -> Iterator[None]:
    """Inside, products of float32 matrices may take the processor's instructions for bfloat16.

    PyTorch has one precision for all threads; the last of several blocks that overlap puts it back.
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
    """What the products of a model's sizes take, in milliseconds."""

    float32: float
    reduced: float


def products(*modules: nn.Module) -> List[Tuple[Tensor, Tensor]]:
    """Inputs ``ROWS x in``, and weights of the modules' linear maps: one of each size, up to ``COLUMNS x in``."""
    parts = [part for module in modules for part in module.modules() if isinstance(part, nn.Linear)]
    weights = {part.weight[:COLUMNS].shape: part.weight[:COLUMNS].detach().float() for part in parts}
    # no random number is drawn: what is trained afterwards does not depend on whether anything was timed
    return [(torch.ones(ROWS, weight.size(1), device=weight.device), weight) for weight in weights.values()]


def time_training(*modules: nn.Module) -> Timing:
    """Time the products of training in bfloat16, for which weights are converted once an update."""
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

    def reduced() -> Any:
        with reduced_products():
            return multiply()

    return compare(multiply, reduced)


@torch.no_grad()
def compare(plain: Callable[[], Any], other: Callable[[], Any]) -> Timing:
    """Run two computations in turns; the quickest turn of each counts, and the first turn does not."""
    turns = [(_milliseconds(plain), _milliseconds(other)) for _ in range(TURNS + 1)]
    return Timing(*(min(column) for column in zip(*turns[1:])))


def _milliseconds(compute: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    compute()[-1].sum().item()  # waits for a device
    return 1000 * (time.perf_counter() - begin)

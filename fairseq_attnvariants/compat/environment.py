"""Checks of the installed fairseq and torch, and what loading a stock checkpoint needs."""

import argparse
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Callable, Tuple

FAIRSEQ = "0.12.2"
OLDEST_TORCH = (2, 1)


def check_environment() -> None:
    """Refuse a missing or wrong fairseq and a missing or old torch.

    Raises:
        ImportError: with the command that puts it right.
    """
    _require("fairseq", FAIRSEQ, f"--no-deps fairseq=={FAIRSEQ}", lambda found: found == FAIRSEQ)
    oldest = ".".join(map(str, OLDEST_TORCH))
    _require("torch", f"{oldest} or later", "--upgrade torch", lambda found: _release(found) >= OLDEST_TORCH)


def _require(package: str, wanted: str, install: str, fits: Callable[[str], bool]) -> None:
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    if not (found and fits(found)):
        state = f"but {found} is installed" if found else "which is not installed"
        raise ImportError(f"fairseq_attnvariants needs {package} {wanted}, {state}: run 'pip install {install}'")


def _release(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def can_load_safely() -> bool:
    """Whether torch can be told what a checkpoint may hold beside tensors (2.4 and later)."""
    import torch

    return hasattr(torch.serialization, "add_safe_globals")


def allow_stock_checkpoints() -> None:
    """Let torch's safe loading accept the two kinds of plain data that stock fairseq writes beside tensors.

    An ``argparse.Namespace`` stands there for every component without a dataclass (``--optimizer sgd``, ``adagrad``,
    ``adadelta``, ``--lr-scheduler manual``), and numpy arrays of numbers after ``--eval-bleu``.  Building either runs
    no code of the checkpoint's; anything else is still refused.  torch before 2.6 does not load safely by default,
    and there fairseq's own loading stays as it is.
    """
    if not can_load_safely():
        return
    import numpy
    from torch.serialization import add_safe_globals

    add_safe_globals([argparse.Namespace, numpy.ndarray, numpy.dtype])
    add_safe_globals([type(numpy.dtype(kind)) for kind in ("int32", "int64", "float32", "float64")])
    # numpy 2 moved the function, and a checkpoint may be older or younger than the numpy that reads it
    rebuild: Any = numpy.zeros(0).__reduce__()[0]
    names = [f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")]
    add_safe_globals([(rebuild, name) for name in names] if _release(version("torch")) >= (2, 6) else [rebuild])

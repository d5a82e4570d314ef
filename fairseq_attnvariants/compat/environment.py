"""Checks of the installed fairseq and torch, each with one sentence that says what to do."""

import argparse
from importlib.metadata import PackageNotFoundError, version

FAIRSEQ = "0.12.2"
OLDEST_TORCH = (2, 1)


def check_environment() -> None:
    """Refuse a missing or wrong fairseq and a torch that is too old.

    Raises:
        ImportError: with the command that puts it right.
    """
    try:
        found = version("fairseq")
    except PackageNotFoundError:
        raise ImportError(
            f"fairseq_attnvariants needs fairseq {FAIRSEQ}, which is not installed: "
            f"run 'pip install --no-deps fairseq=={FAIRSEQ}'"
        ) from None
    if found != FAIRSEQ:
        raise ImportError(
            f"fairseq_attnvariants needs fairseq {FAIRSEQ}, but {found} is installed: "
            f"run 'pip install --no-deps fairseq=={FAIRSEQ}'"
        )
    try:
        torch = version("torch")
    except PackageNotFoundError:
        raise ImportError("fairseq_attnvariants needs torch 2.1 or later, which is not installed") from None
    if tuple(int(part) for part in torch.split("+")[0].split(".")[:2]) < OLDEST_TORCH:
        raise ImportError(
            f"fairseq_attnvariants needs torch {'.'.join(map(str, OLDEST_TORCH))} or later, but {torch} is installed: "
            "run 'pip install --upgrade torch'"
        )


def allow_namespace() -> None:
    """Let ``weights_only`` loading accept ``argparse.Namespace``, and nothing else.

    fairseq writes one into the checkpoint for every component that has no dataclass (``--optimizer sgd``, ``adagrad``,
    ``adadelta``, ``--lr-scheduler manual``).  A Namespace is a plain record: building one runs no code.  torch before
    2.5 has no such list, and there fairseq's own loading stays as it is.
    """
    from torch import serialization

    if hasattr(serialization, "add_safe_globals"):
        serialization.add_safe_globals([argparse.Namespace])

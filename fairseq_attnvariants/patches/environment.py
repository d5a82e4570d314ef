"""Checks of the installed fairseq and torch."""

import os
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import NoReturn

FAIRSEQ = ("0.12.2", "0.12.3")  # 0.12.3 was a branch and never a release
FORKS = ("fairseq-fixed", "ve-fairseq", "fairseq-light")  # on PyPI, each with a module fairseq
TRIED = ("ve-fairseq", "0.12.3")  # the fork that the package works with
INSTALL = f"pip install --no-deps fairseq=={FAIRSEQ[0]}"
OLDEST_TORCH = (2, 1)


def check_environment() -> None:
    """Refuse a missing or wrong fairseq, one mixed with another distribution's files, and a missing or old torch.

    Also refuse a deleted working directory, where torch cannot find its libraries.

    Raises:
        ImportError: with the command that corrects it.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ImportError("the folder in which this was started has been deleted: cd to another one") from None
    _check_fairseq()
    found, oldest = _version("torch"), ".".join(map(str, OLDEST_TORCH))
    if not found or release(found) < OLDEST_TORCH:
        _refuse(f"torch {oldest} or later", found, "pip install --upgrade torch")


def _check_fairseq() -> None:
    found, needed = _version("fairseq"), f"fairseq {FAIRSEQ[0]}"
    if not found:
        owners = [*dict.fromkeys(packages_distributions().get("fairseq", []))]
        if [(owner, version(owner)) for owner in owners] == [TRIED]:
            return
        if owners:
            raise ImportError(
                f"fairseq_attnvariants needs {needed}, but the module fairseq here is that of {owners[0]} "
                f"{version(owners[0])}: run 'pip uninstall {' '.join(owners)}' first, since two in one place lie over "
                f"each other, and then '{INSTALL}'"
            )
    if found.partition("+")[0] not in FAIRSEQ:
        _refuse(needed, found, INSTALL)
    if forks := [fork for fork in FORKS if _version(fork)]:
        raise ImportError(
            f"fairseq {found} and {' and '.join(forks)} are installed in one place and lie over each other: run "
            f"'pip uninstall fairseq {' '.join(forks)}' and then '{INSTALL}'"
        )


def _version(distribution: str) -> str:
    """The installed version, or an empty text."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _refuse(needed: str, found: str, install: str) -> NoReturn:
    state = f"but {found} is installed" if found else "which is not installed"
    raise ImportError(f"fairseq_attnvariants needs {needed}, {state}: run '{install}'")


def release(text: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in text.split(".")[:2])

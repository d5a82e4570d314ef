"""Versions of distributions, and the path of the runtime of exported folders, without importing either."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def installed(distribution: str) -> str:
    """Return the version of a distribution, or ``not installed``."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def runtime() -> Path:
    """Return the path of the runtime, the file that translates with a folder written by ``export``."""
    return Path(__file__).parents[1] / "fairseq_attnvariants_run" / "fairseq_attnvariants_run.py"

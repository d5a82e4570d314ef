"""Installed versions, from metadata alone: nothing is imported."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def installed(distribution: str) -> str:
    """The version of a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def runtime() -> Path:
    """The one file that translates with what ``export`` wrote."""
    return Path(__file__).parents[1] / "fairseq_attnvariants_run" / "fairseq_attnvariants_run.py"

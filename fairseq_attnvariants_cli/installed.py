"""Read versions from metadata, and find the runtime of exported folders. Neither imports what it finds."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def installed(distribution: str) -> str:
    """The version of a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def runtime() -> Path:
    """The path of the runtime: the one file that translates with a folder that ``export`` wrote."""
    return Path(__file__).parents[1] / "fairseq_attnvariants_run" / "fairseq_attnvariants_run.py"

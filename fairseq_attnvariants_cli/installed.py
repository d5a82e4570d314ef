"""Installed versions, from metadata alone: nothing is imported."""

from importlib.metadata import PackageNotFoundError, version


def installed(distribution: str) -> str:
    """The version of a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"

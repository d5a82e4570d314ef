"""What is installed, by its metadata: nothing is imported for it."""

from importlib.metadata import PackageNotFoundError, version


def installed(distribution: str) -> str:
    """The version of a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"

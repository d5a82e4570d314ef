"""Damaged checkpoints: they are archives with checksums, at which torch does not look."""

import zipfile

from ...registry import ConfigurationError


def is_whole(path: str) -> bool:
    """Whether a checkpoint is complete and unchanged since it was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch never compresses; a few compressed bytes can be more than the memory holds
            stored = all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())
            return stored and archive.testzip() is None
    except Exception:  # of a damaged archive: whatever its bytes happen to ask for
        return False


def check_sums(path: str) -> None:
    """Refuse a file that has changed since it was written; one that is cut off is no archive, and torch refuses it.

    Raises:
        ConfigurationError: naming the file.
    """
    if zipfile.is_zipfile(path) and not is_whole(path):
        raise ConfigurationError(f"{path}: damaged, its content is not what was written")

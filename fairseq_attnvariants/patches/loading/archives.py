"""Archives of models are unpacked into an empty folder, and are not deleted.

Stock ``from_pretrained("model.tar.gz")`` unpacks a member to any path that it names, deletes the archive and puts a
folder there instead.
"""

import atexit
import errno
import os
import shutil
import tarfile
import tempfile
from pathlib import PurePath
from typing import Any

from fairseq import file_utils

from ...registry import ConfigurationError
from ..replaced import replaces

_folders: dict[tuple[str, int, int], str] = {}  # by path, time and size, because an archive may be written again


def unpack(path: str) -> str:
    """Unpack an archive and return the folder of its files, which is deleted when the process ends.

    If the archive holds a single folder, return that folder.

    Raises:
        ConfigurationError: it is no archive, or has anything but files and folders inside it.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                inside = not os.path.isabs(member.name) and ".." not in PurePath(member.name).parts
                if not inside or not (member.isfile() or member.isdir()):
                    raise ConfigurationError(
                        f"{path}: not unpacked, {member.name!r} in it is no file or folder of its own"
                    )
            archive.extractall(folder, **safe)
    except ConfigurationError:
        raise
    except Exception as error:  # a damaged archive can cause any error
        why = "it is no folder and no archive of tar's, or damaged"
        if getattr(error, "errno", None) == errno.ENOSPC:
            why = f"{folder} is on a full disk: set TMPDIR to another"
        raise ConfigurationError(f"{path}: not unpacked, {why}") from error
    found = os.listdir(folder)
    only = os.path.join(folder, found[0]) if len(found) == 1 else folder
    return only if os.path.isdir(only) else folder


@replaces(file_utils, "load_archive_file")
def load_archive_file(find, name: str) -> str:
    """The folder of a model, unpacked by :func:`unpack` instead of fairseq if it is an archive.

    Raises:
        ConfigurationError: there is no such folder or archive, or :func:`unpack` raises it.
    """
    try:
        path = file_utils.cached_path(name, cache_dir=None)
        written = os.stat(path)  # also here, because fairseq does not look for names with a colon
    except (OSError, ValueError):
        raise ConfigurationError(f"{name}: there is no such folder or archive") from None
    if os.path.isdir(path):
        return path
    archive = path, written.st_mtime_ns, written.st_size
    if archive not in _folders:
        _folders[archive] = unpack(path)
    return _folders[archive]

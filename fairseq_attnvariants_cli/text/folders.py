"""Functions that write a folder completely, or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from .files import UserError, writing


def check_new(path: str) -> str:
    """Check that a folder can be made, and return its absolute path.

    Raises:
        UserError: the path exists already, or the folder cannot be made.
    """
    target = os.path.abspath(path)
    parent = os.path.dirname(target)
    if os.path.lexists(target):
        raise UserError(f"{path} exists already: name another folder, or remove it")
    if not os.path.isdir(parent):
        raise UserError(f"{path} cannot be written: there is no folder {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{path} cannot be written: nothing can be written to {parent}")
    return target


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Make a folder, rename it to ``path`` if the block ends without an error, and remove it otherwise.

    Raises:
        UserError: :func:`check_new` refuses the path, or it cannot be written, for example on a full disk.
    """
    target = check_new(path)
    with writing(path):
        scratch = f"{target}.{os.urandom(4).hex()}.tmp"
        os.mkdir(scratch)
        try:
            yield scratch
            os.rename(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

"""Folders as the subcommands write them: whole, or not at all."""

import contextlib
import os
import shutil
from typing import Iterator

from .files import UserError, writing


def check_new(path: str) -> str:
    """Return the absolute path of a folder to make.

    Raises:
        UserError: there is something of this name already, or it cannot be made.
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
    """Make a folder that gets the name ``path`` once the block ends without an error, and is removed otherwise.

    Raises:
        UserError: as :func:`check_new`, or it cannot be written, such as to a full disk.
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

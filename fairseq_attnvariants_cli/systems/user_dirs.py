"""Functions that import folders of ``--user-dir``, and name lines of their files in messages."""

import argparse
import os
import traceback
from collections.abc import Sequence
from typing import Any

from fairseq import utils

import fairseq_attnvariants

from ..text.files import UserError, reason

ENTRIES = "__init__.py", "models", "tasks"  # what fairseq imports from a folder


def import_user_dirs(folders: Sequence[str]) -> None:
    """Import folders of ``--user-dir``, so that they register their components and architectures.

    Raises:
        UserError: a folder is missing, or cannot be imported.
    """
    for folder in folders:
        if os.path.isfile(folder):
            raise UserError(f"--user-dir {folder}: this is a file, give its folder {os.path.dirname(folder) or '.'}")
        if os.path.isdir(folder) and not any(os.path.exists(os.path.join(folder, name)) for name in ENTRIES):
            raise UserError(f"--user-dir {folder} registers nothing: it has no __init__.py to import")
        try:
            utils.import_user_module(argparse.Namespace(user_dir=folder))
        except Exception as error:  # a user's code can raise any error
            why = f"{reason(error)}{raised_at(error)}"
            if isinstance(error, FileNotFoundError) and not os.path.exists(folder):
                why = "there is no such folder"
            raise UserError(f"--user-dir {folder}: {why}") from error


def user_dirs() -> list[str]:
    """Return the folders of ``--user-dir`` that fairseq has imported, except for this package."""
    own = os.path.dirname(fairseq_attnvariants.__file__)
    return sorted(folder for folder in getattr(utils.import_user_module, "memo", ()) if folder != own)


def raised_at(error: Exception) -> str:
    """Return the last line of an error's traceback in a folder of ``--user-dir``, as :func:`last_in_user_dir` does."""
    if isinstance(error, SyntaxError):  # its message names the line
        return ""
    return last_in_user_dir(traceback.extract_tb(error.__traceback__))


def last_in_user_dir(lines: Sequence[Any]) -> str:
    """Return the last of some lines in a folder of ``--user-dir``, formatted by :func:`in_user_dir`, or no text.

    ``lines`` are tuples that begin with a path and a number, as those of :mod:`traceback` do.
    """
    return next(filter(None, (in_user_dir(path, number) for path, number, *_ in reversed(lines))), "")


def in_user_dir(path: str, line: Any) -> str:
    """Return path and line, in parentheses, of a file in a folder of ``--user-dir``, or no text for any other file."""
    for folder in user_dirs():
        if path.startswith(os.path.join(folder, "")):
            return f" ({os.path.relpath(path, os.path.dirname(folder))}, line {line})"
    return ""

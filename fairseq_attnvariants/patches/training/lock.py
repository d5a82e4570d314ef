"""One training at a time writes to a folder: a second one would replace the checkpoints of the first.

The process that saves holds the lock, and the kernel releases it when that process ends in any way.  The lock file is
removed, too, unless the process is killed.
"""

import contextlib
import fcntl
import logging
import os
import socket
import time
import weakref
from typing import Any, TextIO

from ...registry import ConfigurationError

logger = logging.getLogger(__name__)

NAME = ".lock"
held: TextIO | None = None


def lock(folder: str, trainer: Any) -> None:
    """Lock ``folder`` for one training, as long as ``trainer`` exists or until the next training in this process.

    If the file system has no locks, or the lock file is a link, continue without a lock.

    Raises:
        ConfigurationError: another process trains there; the message names it.
    """
    global held
    release()
    path = os.path.join(folder, NAME)
    try:
        held = locked(path)
    except BlockingIOError as error:
        raise ConfigurationError(
            f"{folder}: another training writes there ({error}): wait until it has ended, or give another --save-dir"
        ) from None
    except OSError as error:
        logger.info(f"{path}: no lock ({error}); let no other training write there")
        return
    with contextlib.suppress(OSError):  # on a full disk; the lock holds without a text, too
        held.truncate(0)
        held.write(f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        held.flush()
    weakref.finalize(trainer, give_back, held)


def locked(path: str) -> TextIO:
    """Open and lock a file.

    Raises:
        BlockingIOError: another process has locked it; the message is the text of the file.
    """
    while True:
        stream = open(path, "a+", encoding="utf-8", opener=open_no_link)  # noqa: SIM115
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with stream:
                stream.seek(0)
                raise BlockingIOError(stream.read().strip()) from None
        except OSError:
            stream.close()
            raise
        with contextlib.suppress(FileNotFoundError):  # a training that ended between open and flock removed it
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                return stream
        stream.close()


def open_no_link(path: str, flags: int) -> int:
    """Open a file for :func:`open`, unless it is a link, because the link's target would be emptied."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def give_back(stream: TextIO) -> None:
    """Remove a locked file and release its lock."""
    if not stream.closed:
        with contextlib.suppress(OSError):
            os.unlink(stream.name)
        with contextlib.suppress(OSError):
            stream.close()


def release() -> None:
    """Release the lock that this process holds, if any."""
    if held is not None:
        give_back(held)


# a forked process, such as one that loads data, only closes the file
os.register_at_fork(after_in_child=lambda: held.close() if held is not None else None)

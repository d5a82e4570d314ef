"""One training at a time writes to a folder: a second one would replace the checkpoints of the first.

The lock belongs to the process that saves, and the kernel takes it away when that process ends, however it ends.  The
file goes with it, unless the process is killed.
"""

import contextlib
import fcntl
import logging
import os
import socket
import time
import weakref
from typing import Any, Optional, TextIO

from ...registry import ConfigurationError

logger = logging.getLogger(__name__)

NAME = ".lock"
held: Optional[TextIO] = None


def lock(folder: str, trainer: Any) -> None:
    """Keep ``folder`` for one training, as long as ``trainer`` lives or until the next training in this process.

    A file system without locks is used without one, and so is a folder whose lock is a link.

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
    with contextlib.suppress(OSError):  # on a full disk; it is locked without a text, too
        held.truncate(0)
        held.write(f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        held.flush()
    weakref.finalize(trainer, give_back, held)


def locked(path: str) -> TextIO:
    """Open and lock a file.

    Raises:
        BlockingIOError: another process has locked it; the error says what is written there.
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
        with contextlib.suppress(FileNotFoundError):  # of a training that ended between the two lines above
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                return stream
        stream.close()


def open_no_link(path: str, flags: int) -> int:
    """Open a file, as :func:`open` asks for it, that is no link: what a link leads to would be emptied."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def give_back(stream: TextIO) -> None:
    """Remove a file that is locked, and unlock it."""
    if not stream.closed:
        with contextlib.suppress(OSError):
            os.unlink(stream.name)
        with contextlib.suppress(OSError):
            stream.close()


def release() -> None:
    """Give the folder back."""
    if held is not None:
        give_back(held)


# a process that was forked, such as one that loads data, only closes the file
os.register_at_fork(after_in_child=lambda: held.close() if held is not None else None)

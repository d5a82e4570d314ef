"""One training at a time writes to a folder: a second one would replace the checkpoints of the first.

The lock belongs to the process that saves, and the kernel takes it away when that process ends, however it ends.
"""

import contextlib
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
        import fcntl  # which Windows has not

        stream = open(path, "a+", encoding="utf-8", opener=open_no_link)  # noqa: SIM115
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with stream:
                stream.seek(0)
                if isinstance(error, BlockingIOError):
                    raise ConfigurationError(
                        f"{folder}: another training writes there ({stream.read().strip()}): wait until it has ended, "
                        "or give another --save-dir"
                    ) from None
                raise
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        stream.flush()
    except (ImportError, OSError) as error:
        logger.info(f"{path}: no lock ({error}); let no other training write there")
        return
    held = stream
    weakref.finalize(trainer, stream.close)


def open_no_link(path: str, flags: int) -> int:
    """Open a file, as :func:`open` asks for it, that is no link: what a link leads to would be emptied."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def release() -> None:
    """Give the folder back; a process that was forked, such as one that loads data, does not keep it either."""
    global held
    if held is not None:
        with contextlib.suppress(OSError):
            held.close()
    held = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=release)

"""The C library's handling of tensors' memory between the updates of a training on a CPU."""

import ctypes
import os
from functools import cache

# of glibc's malloc.h: how large a buffer has to be for pages of its own, and how much stays when it is no longer used
THRESHOLDS = {-3: ("MALLOC_MMAP_THRESHOLD_", 2**30), -1: ("MALLOC_TRIM_THRESHOLD_", 2**31 - 1)}


@cache
def keep_memory() -> None:
    """Keep what large tensors leave for those of the next update.

    glibc gives buffers of more than 32 MiB back to the system at once, such as logits, and gets them again page by
    page, each filled with zeros.  Once for a process; what the environment says of this stays, and other C libraries
    stay as they are.  Before the process forks, as it does for who loads the data of an epoch, it gives back what is
    kept: the child would hold it until it ends.
    """
    if any(name in os.environ for name, _ in THRESHOLDS.values()):
        return
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)
    # older glibc refuses the first, and the second alone would stop what it does of itself
    if mallopt is not None and all(mallopt(parameter, value) for parameter, (_, value) in THRESHOLDS.items()):
        os.register_at_fork(before=lambda: library.malloc_trim(0))

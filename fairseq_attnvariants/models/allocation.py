"""The memory that the C library keeps between two updates of a training on a CPU."""

import ctypes
import os
from functools import cache

# from glibc's malloc.h: the size from which a buffer has separate pages, and the size of the unused memory to keep
THRESHOLDS = {-3: ("MALLOC_MMAP_THRESHOLD_", 2**30), -1: ("MALLOC_TRIM_THRESHOLD_", 2**31 - 1)}


@cache
def keep_memory() -> None:
    """Keep the memory of large tensors for the next update, once per process.

    glibc returns buffers of more than 32 MiB, such as logits, to the system at once.  The next update gets them page by
    page, each filled with zeros.  Environment variables for these settings have priority, and other C libraries stay
    unchanged.  Before the process forks, as for workers that load data, it returns the memory: otherwise the child
    would hold it until it ends.
    """
    if any(name in os.environ for name, _ in THRESHOLDS.values()):
        return
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)
    # older glibc refuses the first setting, and the second alone would stop glibc from adapting both
    if mallopt is not None and all(mallopt(parameter, value) for parameter, (_, value) in THRESHOLDS.items()):
        os.register_at_fork(before=lambda: library.malloc_trim(0))

"""Has the C library keep the memory that requests pass through, instead of giving it back.

A body of some hundred kilobytes is parsed and written anew a hundred times a second. glibc hands
blocks of that size back to the kernel as soon as they are free, and each page of the next one is
faulted in again: that took as much CPU as the parsing itself.
"""

from __future__ import annotations

import ctypes

# <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# Below this, blocks come from the heap; so much free memory may stay at the heap's end.
MMAP_BYTES = 8 << 20
TRIM_BYTES = 32 << 20


def keep_freed_memory() -> bool:
    """Return whether the C library agreed; without glibc everything stays as it is."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))

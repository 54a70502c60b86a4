"""Makes glibc keep freed request memory instead of returning it to the kernel.

Bodies of some hundred kilobytes are parsed and written a hundred times per second. glibc returns
blocks of that size to the kernel as soon as they are freed, and each page of the next block is
faulted in again, which cost as much CPU as the parsing itself.
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
    """Return whether glibc accepted the settings; without glibc nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))

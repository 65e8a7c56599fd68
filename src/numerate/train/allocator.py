"""Memory that updates free and ask for again.

glibc gives large freed blocks back to the system at once, so that every update pays for fresh pages: a quarter of the
processor time of a stack of small recurrent networks (``python -m benchmarks.models --device cpu``).
"""

import ctypes
import os
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST_BLOCK, MOST_KEPT = 32 * 2**20, 512 * 2**20
"""Bytes of a block that comes from the heap, and of free memory at its end that the process keeps."""


@cache
def keep_freed_memory() -> bool:
    """Let this process keep what it frees; whether it does. Settings of the user's own (``MALLOC_...``) stay."""
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, MOST_KEPT))

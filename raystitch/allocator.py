"""Keep freed memory in the process: a loop that frees megabytes and takes them again at every step pays in page faults."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of ``mallopt``, from glibc's malloc.h."""


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed, and take large blocks from the heap instead of the system; for the life of the process.

    Returns:
        Whether it was done: not on other systems, and not where glibc refuses.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_TRIM_THRESHOLD, -1)) and bool(mallopt(_MMAP_MAX, 0))

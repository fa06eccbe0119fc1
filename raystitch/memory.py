"""Memory of a worker: what it may take, and keeping what it frees.

A loop that frees megabytes and takes them again at every step pays in page faults.
"""

from __future__ import annotations

import ctypes
import os
import sys

import torch

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


def memory_share(device: torch.device) -> int:
    """Bytes that one worker may take: of a GPU a quarter of what is free, since others may start on it; of a machine's
    memory half, in proportion to its threads among the cores."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 4
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = os.cpu_count() or 1
    return machine // 2 * min(torch.get_num_threads(), cores) // cores

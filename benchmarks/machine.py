"""The machine and the code that were measured."""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from raystitch.sweep import provenance


def describe(device: str) -> dict[str, Any]:
    """Processor, cores, threads in use, memory, GPU, and versions, as plain values."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "raystitch": provenance()["version"],
        "git_commit": provenance()["git_commit"],
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def peak_memory(device: str) -> dict[str, float]:
    """Most memory that this process has held, MiB: ``ru_maxrss``, and what torch allocated on a GPU."""
    peak = {"process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if device.startswith("cuda"):
        peak["gpu_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
    return peak


def resident_mib() -> float:
    """Memory that this process holds now, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_of_descendants(title: str) -> float | None:
    """Most memory, MiB, that any living process below this one has held whose command contains ``title``; None without one."""
    peaks = []
    for pid in _descendants(os.getpid()):
        with suppress(OSError):  # it may end meanwhile
            if title in Path(f"/proc/{pid}/cmdline").read_text():
                found = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
                peaks += [int(found[1]) / 1024] if found else []
    return max(peaks, default=None)


def _descendants(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


def _cpu() -> str:
    """Model of the processor, as Linux names it."""
    path = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", path.read_text(), re.MULTILINE) if path.exists() else None
    return match[1].strip() if match else platform.processor() or platform.machine()

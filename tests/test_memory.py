"""A worker takes its share of the memory, and freed memory stays in the process: page faults, counted by the kernel."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from raystitch.memory import memory_share

LOOP = """
import resource, sys
import torch
from raystitch.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def loop():
    for _ in range(50):
        torch.ones(40 << 20 >> 2)  # 40 MiB: 10,240 pages
loop()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
loop()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    command = [sys.executable, "-c", LOOP, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_memory_that_is_taken_again_is_not_mapped_again() -> None:
    assert faults("keep") < 10_240 < faults("leave")


@pytest.mark.parametrize(("threads", "part"), [(1, 8), (4, 2), (9, 2)])
def test_workers_with_all_cores_between_them_take_half_of_the_memory(
    threads: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_share(torch.device("cpu")) == whole // part

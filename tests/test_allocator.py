"""Freed memory stays in the process: the page faults of a loop, counted by the kernel."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

LOOP = """
import resource, sys
import torch
from raystitch.allocator import keep_freed_memory
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

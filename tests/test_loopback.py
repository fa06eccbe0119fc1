"""A Ray that a sweep starts for itself cannot be reached from another machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ray_head import environment

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's list of sockets"),
]

_LIST_LISTENERS = """
import ray
from raystitch.distributed.cluster import connected
from pathlib import Path

def parents():
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.parent.name, stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield pid, rest[1]

def family(root):
    found, links = {root}, list(parents())
    for _ in links:
        found |= {pid for pid, parent in links if parent in found}
    return found

def sockets(pid):
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            yield str(link.readlink())
        except OSError:
            continue

with connected():
    ray.get(ray.remote(lambda: 1).remote())
    import os
    mine = {name for pid in family(str(os.getpid())) for name in sockets(pid)}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                print(fields[1].rpartition(":")[0])
"""
_LOOPBACK = {
    "0100007F",  # 127.0.0.1
    "00000000000000000000000001000000",  # ::1
    "0000000000000000FFFF00000100007F",  # ::ffff:127.0.0.1
}


def test_a_local_ray_listens_on_loopback_only() -> None:
    command = [sys.executable, "-c", "import raystitch.distributed\n" + _LIST_LISTENERS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.split()
    assert len(addresses) >= 5, "Ray has several servers"
    assert set(addresses) <= _LOOPBACK

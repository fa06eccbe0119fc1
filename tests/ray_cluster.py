"""A Ray cluster of several nodes on this machine, for tests: in a network of its own, which is loopback alone.

Everything that is started inside ends with the namespace, so a test can kill at will and ``ray stop`` reaches nobody else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ADDRESS = "127.0.0.1:6399"
QUICK = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "1000",
    "OMP_NUM_THREADS": "1",
}
"""Lost nodes are noticed in seconds."""
_INSIDE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "bash", "-c"]
_FIRST_PROCESS = "ip link set lo up && echo up; while :; do sleep 1000 & wait; done"  # bash also reaps orphans


class Namespace:
    """A place that sees only its own processes and network."""

    def __init__(self, outer: subprocess.Popen[str]) -> None:
        self.outer = outer
        self.first = children(outer.pid)[0]

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        """Run a command inside; what it prints goes to ``log``."""
        enter = ["nsenter", f"--target={self.first}", "--net", "--pid", "--mount", "--", *command]
        everything = {**{k: v for k, v in os.environ.items() if not k.startswith("RAY_")}, **QUICK, **environment}
        with log.open("ab") as stream:
            return subprocess.Popen(enter, env=everything, cwd=cwd, stdout=stream, stderr=stream)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A namespace; the test is skipped where none can be made. Whatever still runs inside is killed at the end."""
    if (
        shutil.which("nsenter") is None
        or subprocess.run([*_INSIDE, "ip link set lo up"], capture_output=True).returncode
    ):
        pytest.skip("this machine makes no network and process namespaces (unshare, nsenter, ip)")
    outer = subprocess.Popen([*_INSIDE, _FIRST_PROCESS], stdout=subprocess.PIPE, text=True)
    try:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "up\n"
        place = Namespace(outer)
        yield place
    finally:
        for pid in children(outer.pid):
            os.kill(pid, signal.SIGKILL)
        outer.wait()


class Cluster:
    """A head without resources, and worker nodes that come and go."""

    def __init__(self, place: Namespace, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._start("--head", "--port=6399", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/t")
        wait_for(lambda: _accepts(place, folder))

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        limits = ["--object-store-memory=100000000", "--disable-usage-stats"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *limits, *options]
        return self._place.start(command, {}, self._folder, self._folder / "ray.log")

    def have_nodes(self, count: int) -> None:
        """Add nodes of one core until there are ``count`` of them."""
        while len(self._nodes) < count:
            self._nodes.append(self._start(f"--address={ADDRESS}", "--num-cpus=1"))

    def kill_node(self) -> None:
        """SIGKILL one node: all of its processes."""
        node = self._nodes.pop()
        kill_tree(node.pid)
        node.wait()

    def sweep(self, config: Path, storage: Path) -> Sweep:
        """Run a sweep on the cluster."""
        return Sweep(self._place, config, storage, {"RAY_ADDRESS": ADDRESS})


class Sweep:
    """``python -m raystitch.sweep`` as a process of a namespace."""

    def __init__(self, place: Namespace, config: Path, storage: Path, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "raystitch.sweep", str(config), "--storage", str(storage)]
        self._log = Path(tempfile.mkstemp(suffix=".log", dir=config.parent)[1])
        self._process = place.start(command, environment, config.parent, self._log)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def shown(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def end(self, seconds: float = 300) -> int:
        """Wait for the exit code."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL the driver."""
        kill_tree(self._process.pid)
        self._process.wait()


def children(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    """Process ids of all that a process started, the nearest first."""
    found = children(pid)
    for each in found:
        found.extend(children(each))
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL all that a process started, and itself."""
    for each in (*descendants(pid), pid):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue


def titled(place: Namespace, title: str) -> list[int]:
    """Processes of a namespace whose title begins so: Ray names its workers by the method that they are running."""
    inside = os.readlink(f"/proc/{place.first}/ns/pid")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns" / "pid") == inside and (process / "cmdline").read_text().startswith(title):
                found.append(int(process.name))
        except (OSError, UnicodeDecodeError):  # it is gone, or is none of ours
            continue
    return found


def wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def _accepts(place: Namespace, folder: Path) -> bool:
    script = "import socket; socket.create_connection(('127.0.0.1', 6399), 1)"
    tried = place.start([sys.executable, "-c", script], {}, folder, folder / "tried.log")
    return tried.wait() == 0

"""A Ray cluster of several nodes on this machine, for tests: in a network of its own, which is loopback alone.

Everything that is started inside ends with the namespace, so a test can kill at will and ``ray stop`` reaches nobody else.
"""

from __future__ import annotations

import json
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
from typing import Any

import pytest
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from waiting import wait_for

ADDRESS = "127.0.0.1:6379"
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
    """A head without resources, and worker nodes that come and go.

    Args:
        place: where it runs.
        folder: a short path for Ray's files.
        worker: what nodes an autoscaler may add, if there is to be one.
    """

    def __init__(self, place: Namespace, folder: Path, worker: Mapping[str, Any] | None = None) -> None:
        self._place, self._folder = place, folder
        self._nodes: list[subprocess.Popen[bytes]] = []
        options, environment = ([], {}) if worker is None else _autoscaler(worker, folder)
        head = ["--head", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/t", *options]
        self._start(head, environment, log := folder / "head.log")
        wait_for(lambda: _accepts(place, folder), log.read_text)

    def _start(self, options: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        limits = ["--object-store-memory=100000000", "--disable-usage-stats"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *limits, *options]
        return self._place.start(command, environment, self._folder, log)

    def have_nodes(self, count: int) -> None:
        """Add nodes of one core until ``count`` of them run: one at a time, since two may choose the same socket."""
        self._nodes = [node for node in self._nodes if node.poll() is None]
        while len(self._nodes) < count:
            self._nodes.append(self._new_node(self._folder / f"node-{time.monotonic_ns()}.log"))

    def _new_node(self, log: Path) -> subprocess.Popen[bytes]:
        node = self._start([f"--address={ADDRESS}", "--num-cpus=1"], {}, log)
        wait_for(lambda: "Ray runtime started" in log.read_text() or node.poll() is not None, log.read_text)
        assert node.poll() is None, log.read_text()
        return node

    def kill_node_of(self, worker: int) -> None:
        """SIGKILL all processes of the node that a worker process belongs to."""
        node = next(node for node in self._nodes if worker in descendants(node.pid))
        self._nodes.remove(node)
        kill_tree(node.pid)
        node.wait()

    def watch_nodes(self, log: Path) -> subprocess.Popen[bytes]:
        """A process that writes how many worker nodes there are, one line for each change."""
        return self._place.start([sys.executable, "-c", _WATCH], {}, self._folder, log)

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

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, or the sweep is over."""
        wait_for(lambda: condition() or self.is_over, lambda: self.shown)

    @property
    def shown(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def end(self) -> int:
        """Wait for the exit code."""
        try:
            return self._process.wait(400)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the sweep does not end: {self.shown}") from None

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
    inside = Path(f"/proc/{place.first}/ns/pid").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / "pid").readlink() == inside and (process / "cmdline").read_text().startswith(title):
                found.append(int(process.name))
        except (OSError, UnicodeDecodeError):  # it is gone, or is none of ours
            continue
    return found


_HEAD = "ray.head.default"  # the name that the fake provider gives its head
_WATCH = f"""
import ray, time
ray.init("{ADDRESS}", log_to_driver=False, logging_level="ERROR")
last = None
while True:
    count = sum(node["Alive"] and "GPU" in node["Resources"] for node in ray.nodes())
    if count != last:
        print("nodes:", count, flush=True)
    last = count
    time.sleep(0.1)
"""


def _autoscaler(worker: Mapping[str, Any], folder: Path) -> tuple[list[str], dict[str, str]]:
    """Options and environment of a head whose autoscaler (version 2) adds fake nodes: real Ray nodes on this machine."""
    lists = ["initialization_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter"]
    lists += [f"{kind}setup_commands" for kind in ("", "head_", "worker_")]
    lists += [f"{kind}_start_ray_commands" for kind in ("head", "worker")]
    provider = {
        "type": "external",
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "launch_multiple": True,
        "head_node_id": FAKE_HEAD_NODE_ID,
    }
    nodes = {"worker": {"node_config": {}, "min_workers": 0, **worker}}
    nodes[_HEAD] = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    config = {
        "cluster_name": "local",
        "max_workers": worker["max_workers"],
        "auth": {},
        "docker": {},
        "provider": provider,
        "head_node_type": _HEAD,
        "available_node_types": nodes,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in lists},
    }
    file = folder / "autoscaler.json"
    file.write_text(json.dumps(config))
    environment = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
    }
    return [f"--autoscaling-config={file}"], environment


def _accepts(place: Namespace, folder: Path) -> bool:
    script = "import socket; socket.create_connection(('127.0.0.1', 6379), 1)"
    tried = place.start([sys.executable, "-c", script], {}, folder, folder / "tried.log")
    return tried.wait() == 0

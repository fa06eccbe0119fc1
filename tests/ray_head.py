"""A Ray head on loopback, as a cluster would have one, and jobs that are submitted to it from the command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from s3server import free_ports

REPOSITORY = Path(__file__).parents[1]
_RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True)
class Head:
    """A running head: where it takes jobs, the folder that its session writes to, where Prometheus would collect from, and the
    token without which nobody gets in."""

    address: str
    folder: Path
    metrics: str
    token: str

    def job(self, *command: str) -> list[str]:
        """What a user types to run a command in this repository as a job."""
        return [_RAY, "job", "submit", "--address", self.address, "--working-dir", ".", "--", *command]

    def ray(self, *arguments: str) -> str:
        """Output of ``ray job …``."""
        command = [_RAY, "job", *arguments[:1], "--address", self.address, *arguments[1:]]
        return subprocess.run(
            command, env=with_token(self.token), capture_output=True, text=True, timeout=120, check=True
        ).stdout

    def submit(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a job to its end."""
        with self.start(*command) as process:
            try:
                shown, _ = process.communicate(timeout=500)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, shown)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Begin a job; the process streams its output."""
        return subprocess.Popen(
            self.job(*command),
            cwd=REPOSITORY,
            env=with_token(self.token),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def environment(**more: str) -> dict[str, str]:
    """This process's environment without any storage or cluster, with the interpreter that runs the tests first in PATH."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RAY_", "PYTHONPATH"))}
    path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1", **more}


def with_token(token: str, **more: str) -> dict[str, str]:
    """The same with Ray's token authentication, as ``cluster/`` turns it on."""
    return environment(**{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, **more})


@contextmanager
def running_head(**variables: str) -> Iterator[Head]:
    """Start a head with two CPUs and ``variables`` in its environment; stop it at the end."""
    token = token_hex(32)
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))  # short: it holds sockets
    names = ("port", "dashboard-port", "dashboard-agent-listen-port", "ray-client-server-port", "metrics-export-port")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [
        _RAY, "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--num-cpus=2",
        f"--temp-dir={folder / 'ray'}", "--object-store-memory=200000000", "--disable-usage-stats",
        *(f"--{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    env = with_token(token, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", **variables)  # every listener on loopback
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder)
    try:
        address = f"http://127.0.0.1:{ports['dashboard-port']}"
        _await_answer(f"{address}/api/version", process, folder / "head.log")
        yield Head(address, folder, f"http://127.0.0.1:{ports['metrics-export-port']}/metrics", token)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except urllib.error.HTTPError as answer:
            if answer.code == 401:  # it wants the token
                return
            raise
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

"""``python -m benchmarks [NAME …]``: run benchmarks one after the other, each in its own process, and write the tables.

Exit codes: 0 all ran, whether or not targets are met; 1 one failed, and those after it ran; 2 the input is wrong (one line on
standard error); 130 stopped by Ctrl-C, a signal or a lost terminal, with the benchmark that ran.
This process imports no torch: a child's peak memory begins with that of its parent.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.report import FILES, write
from benchmarks.running import Runner
from benchmarks.subjects import Options, check_files
from raystitch.errors import InputError

NAMES = (
    "inversion_step",
    "inversion_quality",
    "optimisers",
    "fitting",
    "actors",
    "memory",
    "profiles",
    "streaming",
    "scale",
)


MOST_THREADS = 1024
"""More than any machine has cores; with many more, those of OpenMP cannot be started."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"benchmarks: {message}; see python -m benchmarks --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line names."""
    arguments = _arguments(argv)
    options = Options(arguments.data, arguments.weights, arguments.device, arguments.threads, arguments.quick)
    try:
        check_files(options)
        _make_folder(arguments.output)
        return _run_all(arguments, options)
    except InputError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _run_all(arguments: argparse.Namespace, options: Options) -> int:
    """The tables are written after each benchmark."""
    runner, records, worst = Runner(), [], 0
    runner.listen()
    for name in dict.fromkeys(arguments.names or NAMES):
        print(f"benchmarks: {name}", flush=True)
        code, record = _run(runner, name, options)
        if runner.stopped:
            print("benchmarks: stopped", file=sys.stderr)
            return 130
        if code == 2:
            return code
        worst = max(worst, code)
        if record is not None:
            records.append(record)
            with _writing(arguments.output):
                write(Path(arguments.output), records, options.quick)
    if records:
        print(Path(arguments.output) / "results.md")
    return worst


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m benchmarks", description="Speed and memory, against baselines in the same run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(NAMES)} (default: all)")
    parser.add_argument(
        "--data", default="data/cifar10", metavar="PATH", help="CIFAR-10 as Parquet (default: %(default)s)"
    )
    parser.add_argument("--weights", default="models", metavar="PATH", help="CIFAR ResNets, .th (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=cores, metavar="N", help="torch threads (default: one per core)")
    parser.add_argument("--quick", action="store_true", help="few images and rounds: shows that everything runs")
    parser.add_argument(
        "--output", default="runs/benchmarks", metavar="DIR", help="for the tables (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    for name in arguments.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}; known: {', '.join(NAMES)}")
    if not 1 <= arguments.threads <= MOST_THREADS:
        parser.error(f"--threads {arguments.threads}: give 1 to {MOST_THREADS}")
    return arguments


def _make_folder(path: str) -> None:
    """Before anything runs: what was measured is to have a place."""
    if not path:
        raise InputError("--output", path, "give a folder")
    with _writing(path):
        Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
        for name in FILES:
            if (Path(path) / name).exists():
                (Path(path) / name).open("a").close()


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError("--output", path, f"give a folder that can be written: {error.strerror}") from None


def _run(runner: Runner, name: str, options: Options) -> tuple[int, dict[str, Any] | None]:
    """A benchmark in its own process: its exit code, 1 for any failure but wrong input, and its record if it has one."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "record.json"
        command = [sys.executable, "-m", "benchmarks.child", name, json.dumps(dataclasses.asdict(options)), str(result)]
        threads = {"OMP_NUM_THREADS": str(options.threads)}
        code = runner.run(command, {**os.environ, **threads})
        if code < 0 and not runner.stopped:
            print(f"benchmarks: {name} was ended by {signal.Signals(-code).name}", file=sys.stderr)
        if code:
            return (2 if code == 2 else 1), None
        record: dict[str, Any] = json.loads(result.read_text())
        return 0, record


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks [NAME …]``: run benchmarks one after the other, each in its own process, and write the tables.

Exit codes: 0 all ran, whether or not targets are met; 1 one failed, or the tables could not be written; 2 the input is wrong,
or one benchmark refused it (one line on standard error); 130 stopped by Ctrl-C, a signal or a lost terminal, with the benchmark
that ran. After one that failed or refused its input the others run.
This process imports no torch: a child's peak memory begins with that of its parent.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.report import FILES, put_aside, render, write
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
    """The tables are written after each benchmark; what could not be written at last goes to standard output."""
    runner, tables, worst = Runner(), _Tables(Path(arguments.output), options.quick), 0
    runner.listen()
    for name in dict.fromkeys(arguments.names or NAMES):
        print(f"benchmarks: {name}", flush=True)
        code, record = _run(runner, name, options)
        if runner.stopped:
            print("benchmarks: stopped", file=sys.stderr)
            worst = 130
            break
        worst = max(worst, code)
        if record is not None:
            tables.add(record)
    return tables.close(worst)


class _Tables:
    """The records so far, and their files; a run's first tables put those of an earlier run aside."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self._folder, self._quick = folder, quick
        self._records: list[dict[str, Any]] = []
        self._unwritten = False

    def add(self, record: dict[str, Any]) -> None:
        """Write the tables with one more record; or say why they cannot be."""
        self._records.append(record)
        try:
            if len(self._records) == 1:
                for kept in put_aside(self._folder):
                    print(f"benchmarks: earlier tables are kept as {kept}")
            write(self._folder, self._records, self._quick)
            self._unwritten = False
        except OSError as error:
            print(f"benchmarks: --output = {str(self._folder)!r}: cannot be written: {error.strerror}", file=sys.stderr)
            self._unwritten = True

    def close(self, code: int) -> int:
        """Show where the tables are, or the tables; returns the exit code."""
        if self._unwritten:
            print(render(self._records, self._quick))
            return max(code, 1)
        if self._records:
            print(self._folder / FILES[1])
        return code


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
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
        for name in FILES:
            if (Path(path) / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
    except OSError as error:
        raise InputError("--output", path, f"give a folder that can be written: {error.strerror}") from None


def _run(runner: Runner, name: str, options: Options) -> tuple[int, dict[str, Any] | None]:
    """A benchmark in its own process: its exit code, 1 for any failure but wrong input, and its record if it has one."""
    with tempfile.TemporaryDirectory(prefix="raystitch-benchmark-", ignore_cleanup_errors=True) as folder:
        result, given = Path(folder) / "record.json", dataclasses.replace(options, folder=folder)
        command = [sys.executable, "-m", "benchmarks.child", name, json.dumps(dataclasses.asdict(given)), str(result)]
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

"""One benchmark in a process of its own, so that its peak memory is its own: ``python -m benchmarks.child NAME OPTIONS FILE``.

Writes what it found as JSON. Exit code 2 with one line on standard error if the input is wrong, 130 if it is told to stop.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import signal
import sys
import time
from pathlib import Path

import torch

from benchmarks.machine import describe, peak_memory
from benchmarks.outcome import Outcome
from benchmarks.subjects import Options
from raystitch.errors import InputError
from raystitch.memory import keep_freed_memory


def main(name: str, options: Options, result: Path) -> int:
    """Run a benchmark and write its record."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # temporary folders and Ray are put away
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as the workers of a sweep do; it serves every contender
    begun = time.perf_counter()
    try:
        if options.device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device", options.device, "torch finds no GPU here")
        machine = describe(options.device)
        outcome: Outcome = importlib.import_module(f"benchmarks.{name}").run(options)
    except InputError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    record = {
        "name": name,
        "seconds": time.perf_counter() - begun,
        "peak_memory": peak_memory(options.device),
        "machine": machine,
        **dataclasses.asdict(outcome),
    }
    for figure, found in zip(record["figures"], outcome.figures, strict=True):
        figure["verdict"] = found.verdict
    result.write_text(json.dumps(record, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Options(**json.loads(sys.argv[2])), Path(sys.argv[3])))

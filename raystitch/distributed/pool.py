"""A pool of Ray actors that make base models and IRI shards, pulling tasks as they become ready.

Any worker can make any task, and a task's output follows from the task alone. An actor that dies is restarted by Ray and its
task tried again; a task that keeps failing is given up with all that needs it, and the rest goes on.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import ray
import torch

from raystitch.access import redact
from raystitch.config import Resources
from raystitch.distributed.cluster import threads
from raystitch.distributed.watch import Watch
from raystitch.execute import Bench, Job
from raystitch.schedule import Schedule, Task
from raystitch.units import IriUnit, ModelUnit, ShardUnit

RETRIES = 2
"""How often a task is tried again after its worker died."""


class Worker:
    """The actor: one process with its own :class:`~raystitch.execute.Bench`."""

    def __init__(self, job: Job, thread_count: int) -> None:
        torch.set_num_threads(thread_count)
        self._bench = Bench(job)

    def run(self, task: Task) -> tuple[str, str]:
        """Do one task. Returns (error, traceback), both empty when it succeeded."""
        try:
            _do(self._bench, task)
        except Exception as error:
            return redact(describe(error)), redact(traceback.format_exc())
        return "", ""


def _do(bench: Bench, task: Task) -> None:
    if isinstance(task, ModelUnit):
        bench.make_model(task)
    elif isinstance(task, ShardUnit):
        bench.make_shard(task)
    elif isinstance(task, IriUnit):
        bench.close_set(task)


def describe(error: BaseException) -> str:
    """An error as one line; running out of memory is named as such."""
    name = "out of memory" if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) else type(error).__name__
    return f"{name}: {' '.join(str(error).split())}"


class Pool:
    """Keeps one actor busy per slot until the schedule has no more tasks. Runs in a thread of its own."""

    def __init__(self, job: Job, schedule: Schedule, watch: Watch, need: Resources, size: int) -> None:
        self._schedule, self._watch = schedule, watch
        self._size = size
        options = {"num_cpus": need.cpus, "num_gpus": need.gpus, "max_restarts": -1, "max_task_retries": RETRIES}
        actor = ray.remote(**options)(Worker)
        self._start: Callable[[], Any] = lambda: actor.remote(job, threads(need))
        self._idle: list[Any] = []
        self._started = 0
        self._busy: dict[Any, tuple[Any, Task]] = {}
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="raystitch-pool", daemon=True)

    def __enter__(self) -> Pool:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _serve(self) -> None:
        """The thread. If it cannot go on, no fit may wait for what it would have made."""
        try:
            self._work()
        except BaseException as error:
            self._error = error
            self._schedule.abandon()

    def _work(self) -> None:
        while not self._stop.is_set() and (self._busy or self._schedule.tasks_left):
            self._hand_out()
            if not self._busy:
                time.sleep(0.05)
                continue
            finished, _ = ray.wait(list(self._busy), timeout=0.5)
            for ref in finished:
                self._collect(ref)
        for actor in self._idle:
            ray.kill(actor)
        self._idle.clear()

    def _hand_out(self) -> None:
        while self._idle or self._started < self._size:
            task = self._schedule.next_task()
            if task is None:
                return
            if self._idle:
                actor = self._idle.pop()
            else:
                actor, self._started = self._start(), self._started + 1
            self._watch.started(task)
            self._busy[actor.run.remote(task)] = (actor, task)

    def _collect(self, ref: Any) -> None:
        actor, task = self._busy.pop(ref)
        try:
            error, trace = ray.get(ref)
        except ray.exceptions.RayError as died:
            error, trace = f"the worker died {RETRIES + 1} times ({describe(died)})", ""
        self._idle.append(actor)
        if error:
            self._watch.failed(task, error, trace)
        else:
            self._watch.finished(task)

"""The workers of one kind in the pool: Ray actors that start, take tasks, stay for a while without any, and leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray
import torch

from raystitch.distributed.cluster import actor_options, here, threads
from raystitch.distributed.outcome import Outcome, attempt
from raystitch.distributed.room import Side
from raystitch.execute import Bench, Job
from raystitch.schedule import Kinds, Task
from raystitch.units import ModelUnit, ShardUnit

IDLE_S = 30.0
"""How long a worker without a task keeps its room: it costs seconds to start, and what it loaded is gone with it."""


class Worker:
    """The actor: one process with its own :class:`~raystitch.execute.Bench`."""

    def __init__(self, job: Job, thread_count: int) -> None:
        torch.set_num_threads(thread_count)
        self._bench = job.bench()

    def ready(self) -> str:
        """Returns when the worker has started: where it is."""
        return here()

    def run(self, task: Task) -> Outcome:
        """Do one task."""
        return attempt(lambda: _do(self._bench, task))


def _do(bench: Bench, task: Task) -> None:
    if isinstance(task, ModelUnit):
        bench.make_model(task)
    elif isinstance(task, ShardUnit):
        bench.make_shard(task)
    else:
        bench.close_set(task)


class Team:
    """Actors that ask for the same and take the same kinds of tasks. What dies does not come back: the pool starts others.

    Attributes:
        side: what each asks for, and how the team stands in the cluster.
        kinds: of tasks that it takes.
        leaving: how many are to go as soon as they have finished their task.
    """

    def __init__(self, job: Job, side: Side, kinds: Kinds, clock: Callable[[], float] = time.monotonic) -> None:
        self.side, self.kinds, self._clock = side, kinds, clock
        actor = ray.remote(**actor_options(side.need))(Worker)
        self._new: Callable[[], Any] = lambda: actor.remote(job, threads(side.need))
        self._starting: dict[Any, tuple[Any, float]] = {}
        self._idle: list[tuple[Any, float]] = []
        self._busy: dict[Any, tuple[Any, Task]] = {}
        self._places: dict[Any, str] = {}
        self.leaving = 0

    @property
    def idle(self) -> int:
        """Workers without a task."""
        return len(self._idle)

    @property
    def starting(self) -> int:
        """Workers that were asked for and have not started yet."""
        return len(self._starting)

    @property
    def running(self) -> int:
        """Workers that have started."""
        return len(self._idle) + len(self._busy)

    @property
    def busy(self) -> bool:
        """Whether any has a task."""
        return bool(self._busy)

    @property
    def expected(self) -> list[Any]:
        """References of what is to come: workers that start, tasks that are done."""
        return [*self._starting, *self._busy]

    def ask_for_another(self) -> None:
        """Ask Ray for one more worker; it starts where and when there is room."""
        actor = self._new()
        self._starting[actor.ready.remote()] = actor, self._clock()

    def give(self, task: Task) -> str:
        """Give a task to an idle worker. Returns where that is."""
        actor, _ = self._idle.pop()
        self._busy[actor.run.remote(task)] = actor, task
        return self._places[actor]

    def collect(self, ref: Any) -> tuple[Task | None, Outcome | BaseException | None]:
        """What came of a reference: a worker that started (nothing to say), or a task and its outcome.

        In place of an outcome stands the error of a worker that died, with its task or, at its start, with none.
        """
        task: Task | None = None
        if ref in self._starting:
            actor, _ = self._starting.pop(ref)
        else:
            actor, task = self._busy.pop(ref)
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayError as died:
            self._end(actor)  # it may only be out of reach
            self.leaving = min(self.leaving, len(self._busy))
            return task, died
        if task is None:
            self._places[actor] = answer
        if self.leaving:
            self.leaving -= 1
            self._end(actor)
        else:
            self._idle.append((actor, self._clock()))
        return task, None if task is None else answer

    def _end(self, actor: Any) -> None:
        self._places.pop(actor, None)
        ray.kill(actor)

    def let_go(self, count: int) -> None:
        """Let some workers go: idle ones now, others when their task is done."""
        for _ in range(count):
            if self._idle:
                self._end(self._idle.pop()[0])
            elif self.leaving < len(self._busy):
                self.leaving += 1

    def withdraw(self) -> None:
        """Ask for none of those any more that have not started."""
        for actor, _ in self._starting.values():
            ray.kill(actor)
        self._starting.clear()

    def dismiss_unused(self) -> None:
        """End workers that have had nothing to do for a while, and those that were asked for and are not needed now."""
        long_ago = self._clock() - IDLE_S
        for actor, since in [each for each in self._idle if each[1] < long_ago]:
            self._end(actor)
            self._idle.remove((actor, since))
        if all(since < long_ago for _, since in self._starting.values()):
            self.withdraw()

    def dismiss_all(self) -> None:
        """End every worker."""
        self.withdraw()
        for actor in [*(actor for actor, _ in self._idle), *(actor for actor, _ in self._busy.values())]:
            self._end(actor)
        self._idle.clear()
        self._busy.clear()

"""A pool of Ray actors that make base models and IRI shards, pulling tasks as they become ready.

It grows and shrinks with the work and with the cluster. Any worker of a kind can make any task of that kind, and a task's
output follows from the task alone. A task whose worker died is tried again on another; one that keeps failing is given up
with all that needs it, and the rest goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import ray

from raystitch.distributed.deaths import Deaths, is_lost_node
from raystitch.distributed.outcome import Outcome
from raystitch.distributed.room import Room
from raystitch.distributed.team import Team
from raystitch.distributed.watch import Watch
from raystitch.schedule import Schedule, Task

_ROUND_S = 0.2


class Pool:
    """Keeps its teams busy until the schedule has no more tasks. Runs in a thread of its own."""

    def __init__(self, schedule: Schedule, watch: Watch, room: Room, teams: Sequence[Team]) -> None:
        self._schedule, self._watch, self._room, self._teams = schedule, watch, room, teams
        self._deaths = Deaths()
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
        while not self._stop.is_set() and (any(team.busy for team in self._teams) or self._schedule.tasks_left):
            for team in self._teams:
                self._size(team)
                self._hand_out(team)
            owners = {ref: team for team in self._teams for ref in team.expected}
            if not owners:
                time.sleep(_ROUND_S)
                continue
            finished, _ = ray.wait(list(owners), timeout=_ROUND_S)
            for ref in finished:
                self._collect(owners[ref], ref)
        for team in self._teams:
            team.dismiss_all()
            self._room.update(team.side, running=0, pending=0, ready=False)

    def _size(self, team: Team) -> None:
        """Ask for as many workers as there is work for and may be asked for; let go those that others need more."""
        unserved = self._schedule.ready_tasks(team.idle + team.starting + self._room.most_ahead(team.side), team.kinds)
        unserved -= team.idle + team.starting
        self._room.update(team.side, team.running, team.starting, ready=unserved > 0)
        team.let_go(self._room.to_release(team.side))
        if self._room.yields(team.side):
            team.withdraw()
        for _ in range(min(unserved, self._room.may_ask(team.side))):
            team.ask_for_another()
        if unserved < 0:
            team.dismiss_unused()

    def _hand_out(self, team: Team) -> None:
        while team.idle:
            task = self._schedule.next_task(team.kinds)
            if task is None:
                return
            place = team.give(task)
            self._watch.started([task], lambda place=place: place)  # type: ignore[misc]

    def _collect(self, team: Team, ref: Any) -> None:
        task, outcome = team.collect(ref)
        if isinstance(outcome, BaseException):
            self._mourn(team, task, outcome)
        elif task is not None and isinstance(outcome, Outcome):
            if outcome.error:
                self._watch.failed(task, outcome.error, outcome.trace)
            else:
                self._watch.finished(task)

    def _mourn(self, team: Team, task: Task | None, died: BaseException) -> None:
        """Try a task again or give it up. A worker that does not even start is held against the next task."""
        if task is None and not is_lost_node(died):
            task = self._schedule.next_task(team.kinds)
        if task is None:
            return
        again, why = self._deaths.judge(task.id, died)
        if again:
            self._schedule.again(task)
            self._watch.again([task], why)
        else:
            self._watch.failed(task, why)

"""Tells the schedule, the display and the store what becomes of each unit: the one place where outcomes are recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from raystitch.distributed.meters import Meters
from raystitch.progress import Board
from raystitch.schedule import Schedule, Task
from raystitch.store import Store
from raystitch.units import FitUnit, ShardUnit


class Watch:
    """Outcome recorder shared by the pool's thread and the fit scheduler.

    Args:
        labels: unit id → how a person knows it.
        meters: where what happens is counted for Prometheus.
    """

    def __init__(
        self,
        schedule: Schedule,
        board: Board,
        store: Store,
        labels: Mapping[str, str],
        meters: Meters | None = None,
    ) -> None:
        self._schedule, self._board, self._store, self._labels = schedule, board, store, labels
        self._meters = meters
        self._failed_before = store.names("failures")

    def started(self, units: Sequence[Task | FitUnit], place: Callable[[], str] = lambda: "") -> None:
        """Work begins on a unit, or on several that one worker does at once; ``place`` says where, once that is known."""
        for number, unit in enumerate(units):
            label = "" if number else self._labels_of(units)
            self._board.start(unit.kind, unit.id, 1 / len(units), label, place)
        self._gauge(units[0].kind)

    def finished(self, unit: Task | FitUnit) -> None:
        """A unit is done; an older failure of it is forgotten."""
        self._schedule.finished(unit)
        seconds = self._board.finish(unit.kind, unit.id)
        if self._meters is not None:
            self._meters.finished(unit.kind, seconds)
        self._gauge(unit.kind)
        if f"{unit.id}.json" in self._failed_before:
            self._keep(lambda: self._store.remove(f"failures/{unit.id}.json"))

    def again(self, units: Sequence[Task | FitUnit], why: str) -> None:
        """Units that were being worked on are put back, to be done anew."""
        for unit in units:
            self._board.drop(unit.kind, unit.id)
        self._gauge(units[0].kind)
        self._board.note(f"again: {units[0].kind} {self._labels_of(units)}: {why}")

    def _gauge(self, kind: str) -> None:
        if self._meters is not None:
            self._meters.running(kind, self._board.running(kind))

    def _labels_of(self, units: Sequence[Task | FitUnit]) -> str:
        return self._label(units[0]) + (f" and {len(units) - 1} more" if len(units) > 1 else "")

    def _label(self, unit: Task | FitUnit) -> str:
        if isinstance(unit, ShardUnit):
            return f"{self._label(unit.set)}, images {unit.start} to {unit.stop - 1}"
        return self._labels.get(unit.id, unit.id)

    def failed(self, unit: Task | FitUnit, error: str, trace: str = "") -> None:
        """A unit is given up, and with it all that needs it; each is recorded with its reason."""
        for failure in self._schedule.failed(unit, error, trace):
            lost, label = failure.unit, self._label(failure.unit)
            record = {"id": lost.id, "kind": lost.kind, "label": label, "error": failure.error}
            content = json.dumps({**record, "trace": failure.trace}, indent=1).encode()
            self._board.fail(lost.kind, lost.id, label, failure.error)
            if self._meters is not None:
                self._meters.failed(lost.kind)
            self._gauge(lost.kind)
            self._keep(partial(self._store.replace, f"failures/{lost.id}.json", content))

    def _keep(self, write: Callable[[], object]) -> None:
        """Write a record; one that cannot be written is no reason to stop the sweep."""
        try:
            write()
        except Exception as error:
            self._board.note(f"a record of failures could not be written: {error}")

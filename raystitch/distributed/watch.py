"""Tells the schedule, the display and the store what becomes of each unit: the one place where outcomes are recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping

from raystitch.progress import Board
from raystitch.schedule import Schedule, Task
from raystitch.store import Store
from raystitch.units import FitUnit


class Watch:
    """Outcome recorder shared by the pool's thread and the fit scheduler.

    Args:
        labels: unit id → how a person knows it.
    """

    def __init__(self, schedule: Schedule, board: Board, store: Store, labels: Mapping[str, str]) -> None:
        self._schedule, self._board, self._store, self._labels = schedule, board, store, labels
        self._failed_before = store.names("failures")

    def started(self, unit: Task | FitUnit, share: float = 1.0) -> None:
        """Work on a unit begins; ``share`` is its part of what its worker does meanwhile."""
        self._board.start(unit.kind, unit.id, share)

    def finished(self, unit: Task | FitUnit) -> None:
        """A unit is done; an older failure of it is forgotten."""
        if f"{unit.id}.json" in self._failed_before:
            self._store.remove(f"failures/{unit.id}.json")
        self._board.finish(unit.kind, unit.id)
        self._schedule.finished(unit)

    def failed(self, unit: Task | FitUnit, error: str, trace: str = "") -> None:
        """A unit is given up, and with it all that needs it; each is recorded with its reason."""
        for failure in self._schedule.failed(unit, error, trace):
            lost, label = failure.unit, self._labels.get(failure.unit.id, failure.unit.id)
            record = {"id": lost.id, "kind": lost.kind, "label": label, "error": failure.error}
            content = json.dumps({**record, "trace": failure.trace}, indent=1).encode()
            self._store.replace(f"failures/{lost.id}.json", content)
            self._board.fail(lost.kind, lost.id, label, failure.error)

"""Which work may start now: the plan's dependencies, followed while units finish and fail.

Pure bookkeeping, safe to use from several threads. It knows nothing of Ray: a pool of workers asks for :meth:`next_task`
(models, IRI shards, closing of IRI sets), the fit scheduler asks for :meth:`next_group`, and both say what came of it.
A fit may start as soon as its own parents are there, while other sets are still being made.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from raystitch.plan import Plan
from raystitch.store import Store
from raystitch.units import FOLDERS, FitUnit, IriUnit, ModelUnit, ShardUnit, still_needed

Task = ModelUnit | ShardUnit | IriUnit
"""Work for the pool: make a model, make a shard, or close an IRI set (index its shards)."""
Kinds = tuple[type[Task], ...]
ALL: Kinds = (ModelUnit, ShardUnit, IriUnit)
"""Every kind of task."""


@dataclass(frozen=True)
class Done:
    """What a storage already holds of a plan: ids of units, and of shards of unfinished IRI sets."""

    units: frozenset[str]
    shards: frozenset[str]


@dataclass(frozen=True)
class Failure:
    """A unit that could not be computed, and why."""

    unit: ModelUnit | IriUnit | FitUnit
    error: str
    trace: str = ""


def list_files(store: Store) -> set[str]:
    """Names of all files that units of any study have left in a storage."""
    return set().union(*(store.tree(folder) for folder in FOLDERS))


def find_done(plan: Plan, store: Store) -> Done:
    """List what exists. A unit counts as done when all of its files are there, so that lost ones are made again."""
    present = list_files(store)
    units = {unit.id for unit in plan.units if unit.marker in present and present.issuperset(unit.files)}
    begun = {name.split("/")[1] for name in present if name.startswith("iris/")}
    open_sets = (iris for iris in plan.iris if iris.id in begun and iris.id not in units)
    shards = {shard.id for iris in open_sets for shard in iris.shards if present.issuperset(shard.files)}
    return Done(frozenset(units), frozenset(shards))


def find_missing(plan: Plan, done: Done) -> set[str]:
    """Ids of the units to be made: the fits that are not done, and of what they need whatever is not done either."""
    parents = {unit.id: [parent.id for parent in unit.parents] for unit in plan.units}
    return still_needed([fit.id for fit in plan.fits if fit.id not in done.units], parents, done.units)


class Schedule:
    """Follows the missing units of a plan. Only what a missing fit needs is ever handed out."""

    def __init__(self, plan: Plan, done: Done) -> None:
        self._lock = threading.Lock()
        self._done = set(done.units)
        self._failed: set[str] = set()
        self._abandoned = False
        missing = find_missing(plan, done)
        self.fits = [fit for fit in plan.fits if fit.id in missing]
        self.iris = [iris for iris in plan.iris if iris.id in missing]
        self.models = [model for model in plan.models if model.id in missing]
        shards = {iris.id: [s for s in iris.shards if s.id not in done.shards] for iris in self.iris}
        self.shards = [shard for parts in shards.values() for shard in parts]
        self._open = {iris_id: len(parts) for iris_id, parts in shards.items()}
        self._tasks: list[Task] = [*self.models, *self.shards, *(i for i in self.iris if not self._open[i.id])]
        self.groups = _group(self.fits)
        self._unmet = {group: _parents_of(fits) - self._done for group, fits in self.groups.items()}
        self._ready_groups = {group: None for group, parents in self._unmet.items() if not parents}
        self._dependents = _dependents(self._unmet)

    def next_task(self, kinds: Kinds = ALL) -> Task | None:
        """Take the first task of these kinds whose parents are done, or None if there is none now."""
        with self._lock:
            place = next(self._ready(kinds), None)
            return None if place is None else self._tasks.pop(place)

    def ready_tasks(self, most: int, kinds: Kinds = ALL) -> int:
        """How many tasks of these kinds may start now; counts no further than ``most``."""
        with self._lock:
            return sum(1 for _ in islice(self._ready(kinds), most))

    def _ready(self, kinds: Kinds) -> Iterator[int]:
        for place, task in enumerate(self._tasks):
            if isinstance(task, kinds) and (isinstance(task, ModelUnit) or _model_of(task).id in self._done):
                yield place

    def next_group(self) -> str | None:
        """Take the id of a group of fits that may start, or None if there is none now."""
        with self._lock:
            group = next(iter(self._ready_groups), None)
            if group is not None:
                del self._ready_groups[group], self._unmet[group]
            return group

    @property
    def group_ready(self) -> bool:
        """Whether a group of fits may start now."""
        with self._lock:
            return bool(self._ready_groups)

    def again(self, task: Task) -> None:
        """Give back a task whose worker was lost: it is the next to be handed out, unless its set has failed."""
        root = task.set if isinstance(task, ShardUnit) else task
        with self._lock:
            if not self._abandoned and root.id not in self._failed:
                self._tasks.insert(0, task)

    def group_again(self, group: str) -> None:
        """Give back a group of fits whose worker was lost: it is the next to be handed out."""
        with self._lock:
            if not self._abandoned:
                self._unmet[group] = set()
                self._ready_groups = {group: None, **self._ready_groups}

    @property
    def tasks_left(self) -> bool:
        """Whether the pool still has something to wait for or to do."""
        with self._lock:
            return bool(self._tasks)

    @property
    def groups_left(self) -> bool:
        """Whether any group of fits has not been handed out or given up."""
        with self._lock:
            return bool(self._unmet)

    def abandon(self) -> None:
        """Hand out nothing more: what has not been started stays missing."""
        with self._lock:
            self._abandoned = True
            self._tasks.clear()
            self._unmet.clear()
            self._ready_groups.clear()

    def finished(self, unit: Task | FitUnit) -> None:
        """Say that a task or fit is done; the last shard of a set makes its closing a task."""
        with self._lock:
            if not isinstance(unit, ShardUnit):
                self._done.add(unit.id)
                self._meet(unit.id)
                return
            self._open[unit.set.id] -= 1
            if not self._open[unit.set.id] and unit.set.id not in self._failed:
                self._tasks.insert(0, unit.set)

    def _meet(self, parent: str) -> None:
        for group in self._dependents.pop(parent, ()):
            if group in self._unmet:
                self._unmet[group].discard(parent)
                if not self._unmet[group]:
                    self._ready_groups[group] = None

    def failed(self, unit: Task | FitUnit, error: str, trace: str = "") -> list[Failure]:
        """Give up a unit and all that needs it. Returns every unit given up by this, each with its reason."""
        root = unit.set if isinstance(unit, ShardUnit) else unit
        with self._lock:
            if root.id in self._failed:
                return []
            failures = [Failure(root, error, trace)]
            self._failed.add(root.id)
            if not isinstance(root, FitUnit):
                failures += self._give_up_dependents(root)
            return failures

    def _give_up_dependents(self, root: ModelUnit | IriUnit) -> list[Failure]:
        what = f"model {root.ref}" if isinstance(root, ModelUnit) else f"IRI set {root.id}"
        lost = [Failure(i, f"not started: {what} failed") for i in self.iris if _needs(i, root, self._failed)]
        self._failed |= {failure.unit.id for failure in lost}
        gone = {root.id} | {failure.unit.id for failure in lost}
        self._tasks = [task for task in self._tasks if not _belongs(task, gone)]
        for group, unmet in list(self._unmet.items()):
            if gone & unmet:
                del self._unmet[group]
                fits = self.groups[group]
                self._failed |= {fit.id for fit in fits}
                lost += [Failure(fit, f"not started: {what} failed") for fit in fits]
        return lost


def _group(fits: Iterable[FitUnit]) -> dict[str, list[FitUnit]]:
    groups: dict[str, list[FitUnit]] = {}
    for fit in fits:
        groups.setdefault(fit.group, []).append(fit)
    return groups


def _parents_of(fits: Sequence[FitUnit]) -> set[str]:
    """All fits of a group have the same."""
    return {parent.id for parent in fits[0].parents}


def _dependents(unmet: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group, parents in unmet.items():
        for parent in parents:
            found.setdefault(parent, []).append(group)
    return found


def _model_of(task: ShardUnit | IriUnit) -> ModelUnit:
    return task.set.model if isinstance(task, ShardUnit) else task.model


def _needs(iris: IriUnit, root: ModelUnit | IriUnit, failed: Collection[str]) -> bool:
    return iris.id not in failed and iris.model.id == root.id


def _belongs(task: Task, gone: Collection[str]) -> bool:
    set_id = task.set.id if isinstance(task, ShardUnit) else task.id
    return set_id in gone

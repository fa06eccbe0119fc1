"""Ray Tune runs the fits: one trial per group of fits that share their passes, on reused actors.

The search algorithm hands out a group as soon as its models and IRI set are there, so fits run while other sets are still
being made. When there is nothing to fit for a while, Tune's run ends and gives its room back; the next begins with the next
group. Trials are stateless: a group whose worker died is handed out again, and what is lost with the driver is simply still
missing, and the next run does it.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.search import Searcher

from raystitch.data import scratch_folder
from raystitch.distributed.cluster import asked, here, threads
from raystitch.distributed.deaths import Deaths
from raystitch.distributed.outcome import Outcome, attempt
from raystitch.distributed.room import Room, Side
from raystitch.distributed.team import IDLE_S
from raystitch.distributed.tracking import measured, parameters, trial_name
from raystitch.distributed.watch import Watch
from raystitch.execute import Bench, Job
from raystitch.schedule import Schedule
from raystitch.units import FitUnit

Groups = Mapping[str, Sequence[FitUnit]]


class FitTrial(tune.Trainable):
    """Fits one group per step. The actor is reused, so nets and images stay loaded from trial to trial."""

    def setup(self, config: dict[str, Any], job: Job, groups: Groups, thread_count: int) -> None:
        """Called once per actor."""
        torch.set_num_threads(thread_count)
        self._bench, self._groups = job.bench(), groups
        self._group = config["group"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial on the same actor."""
        self._group = new_config["group"]
        return True

    def step(self) -> dict[str, Any]:
        """Fit the group; an error is a result, so that it neither stops the sweep nor restarts the actor."""
        units = self._groups[self._group]
        outcomes = fit_each(self._bench, units)
        failed = {unit: (outcome.error, outcome.trace) for unit, outcome in outcomes.items() if outcome.error}
        found = measured(self._bench, [unit for unit in units if unit.id not in failed])
        return {"done": True, "failed": failed, "failures": len(failed), **found}

    def here(self) -> str:
        """Where the actor is."""
        return here()


def fit_each(bench: Bench, units: Sequence[FitUnit]) -> dict[str, Outcome]:
    """Fit a group together; if that fails, each unit alone, so that only those fail that would fail alone."""
    together = attempt(lambda: bench.fit(units))
    if len(units) == 1 or not together.error or together.outside:
        return {unit.id: together for unit in units}
    return {unit.id: attempt(lambda unit=unit: bench.fit([unit])) for unit in units}  # type: ignore[misc]


@dataclass
class Round:
    """One run of Tune.

    Attributes:
        handed: trials that were handed out and have not begun.
        running: trials that have begun and are not over.
        idle_since: when the last of them was over.
    """

    handed: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    idle_since: float = field(default_factory=time.monotonic)

    def over(self, trial: str) -> None:
        """A trial is over, or was lost."""
        self.handed.discard(trial)
        self.running.discard(trial)
        self.idle_since = time.monotonic()


class ReadyFits(Searcher):
    """Suggests a group when it may start and there may be room, nothing while not, and the end when none is left for now."""

    def __init__(self, schedule: Schedule, room: Room, side: Side, progress: Round) -> None:
        super().__init__(metric="failures", mode="min")
        self._schedule, self._room, self._side, self._round = schedule, room, side, progress

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Next trial's config."""
        now, ready = self._round, self._schedule.group_ready
        self._room.update(self._side, len(now.running), len(now.handed), ready)
        group = self._schedule.next_group() if ready and self._room.may_ask(self._side) else None
        if group is not None:
            now.handed.add(trial_id)
            return {"group": group, **parameters(self._schedule.groups[group])}
        if not now.running and not now.handed:  # else Tune itself waits for what its trials report
            if self._is_time_to_end():
                return str(Searcher.FINISHED)
            time.sleep(0.05)
        return None

    def _is_time_to_end(self) -> bool:
        if not self._schedule.groups_left or self._room.yields(self._side):
            return True
        return time.monotonic() - self._round.idle_since > IDLE_S

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Outcomes are recorded by :class:`Outcomes`."""

    def save(self, checkpoint_path: str) -> None:
        """There is no state to save; Tune wants the file."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """There is no state to restore: a rerun lists what is missing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Outcomes(tune.Callback):
    """Passes on what becomes of each trial."""

    def __init__(self, schedule: Schedule, watch: Watch, deaths: Deaths, progress: Round) -> None:
        self._schedule, self._watch, self._deaths, self._round = schedule, watch, deaths, progress

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The group's fits begin."""
        self._round.handed.discard(trial.trial_id)
        self._round.running.add(trial.trial_id)
        self._watch.started(self._units(trial), _place_of(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """The group's fits are done or failed."""
        for unit in self._units(trial):
            if unit.id in result["failed"]:
                self._watch.failed(unit, *result["failed"][unit.id])
            else:
                self._watch.finished(unit)
        self._round.over(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial's process died: its group is handed out again, or given up."""
        self._round.over(trial.trial_id)
        group, units = trial.config["group"], self._units(trial)
        again, why = self._deaths.judge(group, _error_of(trial))
        if again:
            self._schedule.group_again(group)
            self._watch.again(units, why)
            return
        for unit in units:
            self._watch.failed(unit, why)

    def _units(self, trial: Any) -> Sequence[FitUnit]:
        return self._schedule.groups[trial.config["group"]]

    def __getstate__(self) -> dict[str, Any]:
        return {}


def _place_of(trial: Any) -> Callable[[], str]:
    """Says where a trial runs as soon as its actor has answered; nobody waits for that."""
    answer = trial.temporary_state.ray_actor.here.remote()

    def place() -> str:
        try:
            return str(ray.get(answer, timeout=0)) if ray.is_initialized() else ""
        except ray.exceptions.RayError:  # not yet, or its node is lost
            return ""

    return place


def _error_of(trial: Any) -> BaseException:
    """What Tune caught when a trial's process died; it keeps it in a file of the driver."""
    try:
        error = pickle.loads(Path(trial.pickled_error_file).read_bytes())
    except (OSError, TypeError, pickle.UnpicklingError):
        return RuntimeError(str(trial.get_error() or "unknown"))
    return error if isinstance(error, BaseException) else RuntimeError(str(error))


def run_fits(
    job: Job, schedule: Schedule, watch: Watch, room: Room, side: Side, more: Sequence[tune.Callback] = ()
) -> None:
    """Run every group of missing fits; returns when each has been done, failed or given up.

    Args:
        more: callbacks of Tune that are to hear of every trial.
    """
    outcomes = partial(Outcomes, schedule, watch, Deaths())
    while schedule.groups_left:
        if schedule.group_ready and not room.yields(side):
            progress = Round()
            search = ReadyFits(schedule, room, side, progress)
            _run_round(job, schedule.groups, side, search, [outcomes(progress), *more])
        else:
            room.update(side, running=0, pending=0, ready=schedule.group_ready)
            time.sleep(0.1)
    room.update(side, running=0, pending=0, ready=False)


def _run_round(job: Job, groups: Groups, side: Side, search: Searcher, callbacks: list[tune.Callback]) -> None:
    trainable = tune.with_parameters(FitTrial, job=job, groups=groups, thread_count=threads(side.need))
    with scratch_folder() as scratch:
        tune.Tuner(
            tune.with_resources(trainable, tune.PlacementGroupFactory([asked(side.need)])),
            tune_config=tune.TuneConfig(
                search_alg=search,
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=trial_name,
                trial_dirname_creator=trial_name,
            ),
            run_config=tune.RunConfig(
                name="fits",
                storage_path=str(scratch),
                verbose=0,
                callbacks=callbacks,
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()

"""Ray Tune runs the fits: one trial per group of fits that share their passes, on reused actors.

The search algorithm hands out a group as soon as its models and IRI set are there, so fits run while other sets are still
being made. Trials are stateless: whatever is lost is simply still missing, and the next run does it.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune.search import Searcher

from raystitch.access import redact
from raystitch.config import Resources
from raystitch.data import scratch_folder
from raystitch.distributed.cluster import threads
from raystitch.distributed.pool import RETRIES, describe
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
        self._bench, self._groups = Bench(job), groups
        self._group = config["group"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial on the same actor."""
        self._group = new_config["group"]
        return True

    def step(self) -> dict[str, Any]:
        """Fit the group; an error is a result, so that it neither stops the sweep nor restarts the actor."""
        try:
            self._bench.fit(self._groups[self._group])
        except Exception as error:
            return {"done": True, "error": redact(describe(error)), "trace": redact(traceback.format_exc())}
        return {"done": True, "error": "", "trace": ""}


class ReadyFits(Searcher):
    """Suggests a group when it may start, nothing while none may, and the end when none is left."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(metric="error", mode="min")
        self._schedule = schedule

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Next trial's config."""
        group = self._schedule.next_group()
        if group is None and self._schedule.groups_left:
            time.sleep(0.05)
            return None
        return Searcher.FINISHED if group is None else {"group": group}

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

    def __init__(self, groups: Groups, watch: Watch) -> None:
        self._groups, self._watch = groups, watch

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The group's fits begin."""
        units = self._groups[trial.config["group"]]
        for unit in units:
            self._watch.started(unit, share=1 / len(units))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """The group's fits are done or failed."""
        for unit in self._groups[trial.config["group"]]:
            if result["error"]:
                self._watch.failed(unit, result["error"], result["trace"])
            else:
                self._watch.finished(unit)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial's process died too often."""
        for unit in self._groups[trial.config["group"]]:
            self._watch.failed(unit, f"the worker died {RETRIES + 1} times")

    def __getstate__(self) -> dict[str, Any]:
        return {}


def run_fits(job: Job, schedule: Schedule, watch: Watch, need: Resources, concurrent: int) -> None:
    """Run every group of missing fits; returns when each has been done, failed or given up."""
    if not schedule.groups:
        return
    trainable = tune.with_parameters(FitTrial, job=job, groups=schedule.groups, thread_count=threads(need))
    with scratch_folder() as scratch:
        tune.Tuner(
            tune.with_resources(trainable, {"cpu": need.cpus, "gpu": need.gpus}),
            tune_config=tune.TuneConfig(
                search_alg=ReadyFits(schedule),
                num_samples=-1,
                reuse_actors=True,
                max_concurrent_trials=concurrent,
                trial_name_creator=_trial_name,
                trial_dirname_creator=_trial_name,
            ),
            run_config=tune.RunConfig(
                name="fits",
                storage_path=str(scratch),
                verbose=0,
                callbacks=[Outcomes(schedule.groups, watch)],
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()


def _trial_name(trial: Any) -> str:
    return f"fit-{trial.config['group']}"

"""Whole studies computed by one bench in the process of the test, as the tests of units share it."""

from __future__ import annotations

from pathlib import Path

from raystitch.catalogue import inspect
from raystitch.config import StudyConfig
from raystitch.execute import Bench, Job
from raystitch.plan import Plan, expand
from raystitch.results import publish_study
from raystitch.schedule import Schedule, find_done
from raystitch.store import Store

PROVENANCE = {"created": "now", "version": "1", "git_commit": ""}


def run_study(config: StudyConfig, folder: Path) -> tuple[Bench, Plan]:
    """Make every unit of a study that its folder lacks. Returns the bench that made them and the plan."""
    plan, store = expand(config, inspect(config, look_at_images=True)), Store(str(folder))
    publish_study(store, config, plan, PROVENANCE)
    schedule, bench = Schedule(plan, find_done(plan, store)), Bench(Job(config, store, PROVENANCE), "cpu")
    for model in schedule.models:
        bench.make_model(model)
    for shard in schedule.shards:
        bench.make_shard(shard)
    for iris in schedule.iris:
        bench.close_set(iris)
    for units in schedule.groups.values():
        bench.fit(units)
    return bench, plan

"""Run a study from its config to the results table and the report: ``python -m raystitch.sweep CONFIG``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from raystitch import access
from raystitch.access import Access
from raystitch.config import StudyConfig, parse_config
from raystitch.config.track import check_installed
from raystitch.errors import InputError
from raystitch.execute import Job
from raystitch.plan import Plan, expand
from raystitch.progress import Board
from raystitch.reporting import publish_report
from raystitch.results import merge_rows, publish_study, read_study, study_record, sweep_names
from raystitch.schedule import Done, Schedule, find_done, find_missing
from raystitch.store import Store
from raystitch.units import ShardUnit, Unit

MANY_UNITS = 1000
"""Units in a storage from which a sweep merges their rows in the end, so that tables load fast."""


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep.

    Attributes:
        storage: where everything is, as an absolute path or URL.
        sweep: the study's name.
        report: the report page, as a path or URL.
        missing: units of the plan that are still missing: those that failed, and those that needed them.
    """

    storage: str
    sweep: str
    report: str
    missing: int


def run_sweep(config: StudyConfig | Mapping[str, Any], storage: str | None = None) -> SweepResult:
    """Compute everything a study still lacks, and write its report.

    Args:
        config: a validated study, or the mapping that a YAML file would hold.
        storage: folder or URL; by default the config's own.

    Raises:
        InputError: the config is wrong, or the storage cannot be written to. Nothing has been started then.
    """
    from raystitch.catalogue import inspect

    study = config if isinstance(config, StudyConfig) else parse_config(config)
    check_installed(study.track)
    for where, folder in study.track.folders.items():
        _lasting(folder, where)
    access.fill_in(study.s3.endpoint, study.s3.region, study.s3.profile)
    store = shared_store(storage or study.storage)
    plan = expand(study, inspect(study, look_at_images=True, poison=True))
    store.check_writable()
    _note_other_definition(store, study)
    publish_study(store, study, plan, {"created": _now(), **provenance()})
    _compute_missing(Job(study, store, provenance(), Access.of_this_process()), plan, find_done(plan, store))
    if len(store.names("fits")) >= MANY_UNITS:
        merge_rows(store)
    report = publish_report(store, study.name, on_damage=store.quarantine)
    left = find_missing(plan, find_done(plan, store))
    return SweepResult(store.url, study.name, report, len(left))


def shared_store(storage: str) -> Store:
    """The store of a sweep.

    Raises:
        InputError: workers could not reach it, or it would not outlive the sweep.
    """
    store = Store(_lasting(storage, "storage"))
    if store.url.startswith("memory:"):
        problem = "is the memory of one process, which no worker reaches; give a folder or URL"
        raise InputError("storage", store.url, problem)
    return store


def _lasting(place: str, where: str) -> str:
    """A place as it is, if it outlives a Ray job, whose working directory is on one node and is deleted after it."""
    if os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") and not _is_absolute(place):
        problem = "would be deleted with the job's working directory; give a URL or the full path of a shared folder"
        raise InputError(where, place, problem)
    return place


def _is_absolute(place: str) -> bool:
    innermost = place.rsplit("::", 1)[-1]  # of a chain such as simplecache::file:///shared/runs
    scheme, given, path = innermost.rpartition("://")
    return scheme not in ("", "file", "local") or Path(path if given else innermost).is_absolute()


def _note_other_definition(store: Store, study: StudyConfig) -> None:
    """Tell the user when a name that is taken gets another meaning: the table shows the newest definition alone."""
    if study.name not in sweep_names(store):
        return
    try:
        known = _as_read_today(read_study(store, study.name).config.model_dump(mode="json", exclude_unset=True))
    except InputError:  # a damaged record: this sweep writes it anew
        return
    if {**known, "resources": None} != {**study_record(study), "resources": None}:
        text = f"sweep {study.name!r} was defined otherwise before; its table now shows this definition (nothing is deleted)"
        print(f"raystitch: {text}", file=sys.stderr)


def _as_read_today(record: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded config with the keys that this version has; as it is, if it cannot be read any more."""
    try:
        return study_record(parse_config(record))
    except InputError:
        return dict(record)


def _compute_missing(job: Job, plan: Plan, done: Done) -> None:
    schedule = Schedule(plan, done)
    if not schedule.fits:
        return
    work: list[Unit | ShardUnit] = [*schedule.models, *schedule.shards, *schedule.iris, *schedule.fits]
    with Board(Counter(unit.kind for unit in work)) as board:
        from raystitch import data, distributed

        try:
            distributed.run(job, plan, schedule, board)
        finally:
            data.clean_scratch()  # workers are killed in the end, with whatever they still held


@lru_cache(1)
def provenance() -> dict[str, str]:
    """Version of the package and, in a git checkout, the commit it is at."""
    try:
        release = version("raystitch")
    except PackageNotFoundError:  # run from a folder that is not installed, as in a Ray job's working directory
        release = "unknown"
    return {"version": release, "git_commit": _git_commit(Path(__file__).parents[1])}


def _git_commit(folder: Path) -> str:
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


if __name__ == "__main__":
    from raystitch.cli import main

    sys.exit(main(["sweep", *sys.argv[1:]]))

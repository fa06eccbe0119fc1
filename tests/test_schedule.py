from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from raystitch.config import FitConfig, IriConfig
from raystitch.plan import Plan
from raystitch.records import UnitRecord
from raystitch.reporting import present_units, settled_units
from raystitch.results import unit_record
from raystitch.schedule import Done, Schedule, find_done, find_missing, list_files
from raystitch.store import Store
from raystitch.units import FitUnit, IriUnit, ModelUnit, ShardUnit

CLEAN = ModelUnit("m-clean", "clean", 0)
PIXEL = ModelUnit("m-pixel", "pixel", 1)
CLEAN_IRIS = IriUnit("i-clean", CLEAN, 1, "layer1", "digits", 10, IriConfig(shard_size=6))
PIXEL_IRIS = IriUnit("i-pixel", PIXEL, 1, "layer1", "digits", 10, IriConfig(shard_size=6))


def fit(name: str, group: str, front: ModelUnit, iris: IriUnit | None = None) -> FitUnit:
    arm = "real" if iris is None else "iri"
    return FitUnit(name, group, front, CLEAN, 1, 1, "dm", arm, 1, "digits", "digits", ("test",), FitConfig(), iris=iris)


SELF_REAL = fit("f1", "g1", CLEAN)
SELF_IRI = fit("f2", "g2", CLEAN, CLEAN_IRIS)
BIAS_REAL = fit("f3", "g3", PIXEL)
BIAS_IRI = fit("f4", "g4", PIXEL, PIXEL_IRIS)
PLAN = Plan((CLEAN, PIXEL), (CLEAN_IRIS, PIXEL_IRIS), (SELF_REAL, SELF_IRI, BIAS_REAL, BIAS_IRI), ())
NOTHING = Done(frozenset(), frozenset())


def take(schedule: Schedule) -> list:
    tasks = []
    while (task := schedule.next_task()) is not None:
        tasks.append(task)
    return tasks


def test_models_come_first_and_nothing_starts_before_its_parents() -> None:
    schedule = Schedule(PLAN, NOTHING)
    assert take(schedule) == [CLEAN, PIXEL]
    assert schedule.next_group() is None
    schedule.finished(CLEAN)
    assert take(schedule) == CLEAN_IRIS.shards
    assert schedule.next_group() == "g1", "a real-image fit of the finished model starts while its IRIs are made"
    assert schedule.next_group() is None


def test_a_fit_starts_when_its_own_set_is_ready_while_others_are_being_made() -> None:
    schedule = Schedule(PLAN, NOTHING)
    take(schedule)
    schedule.finished(CLEAN)
    schedule.finished(PIXEL)
    shards = take(schedule)
    assert len(shards) == 4
    groups = {schedule.next_group() for _ in range(3)}
    assert groups == {"g1", "g3", None}
    schedule.finished(shards[0])
    assert take(schedule) == []
    schedule.finished(shards[1])
    assert take(schedule) == [CLEAN_IRIS], "the last shard makes the closing of its set a task"
    schedule.finished(CLEAN_IRIS)
    assert schedule.next_group() == "g2"
    assert schedule.groups_left, "the other set is not ready"


def test_only_what_missing_fits_need_is_done() -> None:
    done = Done(frozenset({"f3", "f4", "m-clean"}), frozenset({CLEAN_IRIS.shards[0].id}))
    schedule = Schedule(PLAN, done)
    assert schedule.models == []
    assert schedule.iris == [CLEAN_IRIS]
    assert take(schedule) == [CLEAN_IRIS.shards[1]]


def test_a_set_whose_shards_are_all_there_is_only_closed() -> None:
    done = Done(frozenset({"m-clean"}), frozenset(s.id for s in CLEAN_IRIS.shards))
    plan = Plan((CLEAN,), (CLEAN_IRIS,), (SELF_IRI,), ())
    assert take(Schedule(plan, done)) == [CLEAN_IRIS]


def test_a_failed_model_takes_all_that_needs_it_and_nothing_else() -> None:
    schedule = Schedule(PLAN, NOTHING)
    take(schedule)
    failures = schedule.failed(PIXEL, "boom", "trace")
    assert [(f.unit.id, f.error) for f in failures] == [
        ("m-pixel", "boom"),
        ("i-pixel", "not started: model pixel/1 failed"),
        ("f3", "not started: model pixel/1 failed"),
        ("f4", "not started: model pixel/1 failed"),
    ]
    schedule.finished(CLEAN)
    assert take(schedule) == CLEAN_IRIS.shards
    for shard in CLEAN_IRIS.shards:
        schedule.finished(shard)
    take(schedule)
    schedule.finished(CLEAN_IRIS)
    assert {schedule.next_group(), schedule.next_group()} == {"g1", "g2"}
    assert not schedule.groups_left
    assert not schedule.tasks_left


def test_a_failed_shard_fails_its_set_once() -> None:
    schedule = Schedule(PLAN, Done(frozenset({"m-clean", "m-pixel"}), frozenset()))
    shards = [task for task in take(schedule) if isinstance(task, ShardUnit)]
    assert [f.unit.id for f in schedule.failed(shards[0], "nan")] == ["i-clean", "f2"]
    assert schedule.failed(shards[1], "nan") == []
    assert {schedule.next_group(), schedule.next_group()} == {"g1", "g3"}


def test_an_abandoned_schedule_lets_nobody_wait() -> None:
    schedule = Schedule(PLAN, NOTHING)
    schedule.abandon()
    assert not schedule.tasks_left
    assert not schedule.groups_left
    assert schedule.next_task() is None


def test_find_done_lists_published_files_only(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert find_done(PLAN, store) == NOTHING
    for name in (*CLEAN.files, *SELF_REAL.files, BIAS_REAL.marker, CLEAN_IRIS.shards[1].marker):
        store.publish(name, b"x")
    (tmp_path / "fits" / ".tmp-1").write_bytes(b"half")
    assert find_done(PLAN, store) == Done(frozenset({"m-clean", "f1"}), frozenset({CLEAN_IRIS.shards[1].id}))


def test_fits_and_unstitched_ends_are_done_with_their_predictions_and_similarities_without() -> None:
    ends = replace(SELF_REAL, kind="unstitched"), replace(SELF_REAL, kind="similarity")
    for unit in (SELF_REAL, ends[0]):
        assert unit.files == ["predictions/f1.npz", "fits/f1.parquet"], "the marker comes last"
    assert ends[1].files == ["fits/f1.parquet"]


@pytest.mark.parametrize("lost", [PIXEL.weights, PIXEL.marker, PIXEL_IRIS.shards[0].marker, PIXEL_IRIS.marker])
def test_a_unit_that_lost_a_file_is_made_again(tmp_path: Path, lost: str) -> None:
    store = Store(str(tmp_path))
    for unit in (PIXEL, PIXEL_IRIS):
        for name in unit.files:
            store.publish(name, b"x")
    assert find_done(PLAN, store).units == {PIXEL.id, PIXEL_IRIS.id}
    store.remove(lost)
    owner = PIXEL if lost in PIXEL.files else PIXEL_IRIS
    assert find_done(PLAN, store).units == {PIXEL.id, PIXEL_IRIS.id} - {owner.id}


def test_what_no_missing_fit_needs_is_not_missing() -> None:
    fits_done = Done(frozenset(fit.id for fit in PLAN.fits), frozenset())
    assert find_missing(PLAN, fits_done) == set(), "sets and models may be deleted when all is fitted"
    one_left = Done(frozenset(fit.id for fit in PLAN.fits if fit is not BIAS_IRI), frozenset())
    assert find_missing(PLAN, one_left) == {"f4", "i-pixel", "m-pixel", "m-clean"}
    set_kept = Done(one_left.units | {"i-pixel"}, frozenset())
    assert find_missing(PLAN, set_kept) == {"f4", "m-pixel", "m-clean"}


def test_status_misses_what_a_sweep_would_make(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    written = [unit_record(unit, "") for unit in PLAN.units]
    for unit in (*PLAN.models, *PLAN.iris, *PLAN.fits):
        for name in unit.files:
            store.publish(name, b"x")
    every = {unit.id for unit in PLAN.units}

    def settled(written: list[dict]) -> set[str]:
        units = read(written)
        return settled_units(units, present_units(units, list_files(store)))

    def read(written: list[dict]) -> list[UnitRecord]:
        return [UnitRecord.model_validate_json(json.dumps(unit)) for unit in written]

    assert settled(written) == present_units(read(written), list_files(store)) == every
    store.remove(CLEAN_IRIS.shards[0].marker)
    assert present_units(read(written), list_files(store)) == every - {CLEAN_IRIS.id}
    assert settled(written) == every, "no fit needs the set any more"
    store.remove(SELF_IRI.predictions)
    assert settled(written) == every - {SELF_IRI.id, CLEAN_IRIS.id}
    old = [{key: unit[key] for key in ("id", "kind", "marker", "label")} for unit in written]
    assert settled(old) == every, "older records name markers alone"

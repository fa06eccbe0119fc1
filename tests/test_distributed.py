"""What decides over workers, without a Ray: shares of a cluster, deaths told apart, outcomes in one line."""

from __future__ import annotations

import pytest
import ray
import torch
from test_schedule import CLEAN, CLEAN_IRIS, NOTHING, PLAN, take

from raystitch.config import Resources
from raystitch.distributed import outcome
from raystitch.distributed.cluster import actor_options, asked
from raystitch.distributed.deaths import LOST_NODES, RETRIES, Deaths
from raystitch.distributed.outcome import PAUSES_S, attempt, describe
from raystitch.distributed.room import FIRST, PATIENCE_S, Room, Side
from raystitch.errors import DamagedError, InputError
from raystitch.schedule import Schedule
from raystitch.units import IriUnit, ModelUnit, ShardUnit


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sides(*most: int | None, **need: float) -> list[Side]:
    return [Side(f"resources.{n}", Resources(**need), each, since=1000.0) for n, each in enumerate(most)]


def room(clock: Clock, *given: Side) -> Room:
    return Room(given, note=lambda text: pytest.fail(text), clock=clock, lacks=lambda need: None)


def test_on_one_machine_the_number_is_fixed(clock: Clock) -> None:
    (side,) = sides(3)
    made = room(clock, side)
    made.update(side, running=1, pending=1, ready=True)
    assert made.may_ask(side) == 1


def test_on_a_cluster_a_kind_asks_for_as_many_again_as_it_has(clock: Clock) -> None:
    (side,) = sides(None)
    made = room(clock, side)
    assert made.may_ask(side) == FIRST
    made.update(side, running=50, pending=20, ready=True)
    assert made.may_ask(side) == 30
    made.update(side, running=2, pending=FIRST, ready=True)
    assert made.may_ask(side) == 0, "workers that left leave less to ask for"


def starved(clock: Clock, rich: int, poor: int, **need: float) -> tuple[Room, Side, Side]:
    first, second = sides(None, None, **need)
    made = room(clock, first, second)
    made.update(first, running=rich, pending=0, ready=True)
    made.update(second, running=poor, pending=FIRST, ready=True)
    clock.now += PATIENCE_S
    return made, first, second


def test_who_has_more_gives_half_of_the_difference_to_one_that_has_waited_long(clock: Clock) -> None:
    made, rich, poor = starved(clock, 10, 2)
    assert made.yields(rich)
    assert made.may_ask(rich) == 0
    assert not made.yields(poor)
    assert made.to_release(rich) == 4
    assert made.to_release(rich) == 0, "what was let go is on its way"
    clock.now += PATIENCE_S - 1
    made.update(poor, running=3, pending=FIRST, ready=True)
    clock.now += 1
    assert made.to_release(rich) == 0, "it just got one"


def test_nobody_gives_its_only_worker(clock: Clock) -> None:
    made, one, _ = starved(clock, 1, 0)
    assert made.to_release(one) == 0


def test_a_kind_on_cores_does_not_yield_to_one_on_gpus(clock: Clock) -> None:
    cores, gpus = sides(None)[0], Side("resources.fit", Resources(gpus=1), since=1000.0)
    made = room(clock, cores, gpus)
    made.update(cores, running=9, pending=0, ready=True)
    gpus.pending, gpus.ready, gpus.running = 4, True, 0
    clock.now += PATIENCE_S
    assert not made.yields(cores)


def test_waiting_for_a_node_that_is_not_there_is_told_ever_more_rarely(clock: Clock) -> None:
    (side,), told = sides(None, gpus=1), []
    made = Room([side], told.append, clock=clock, lacks=lambda need: ("gpus", need.gpus, "0 GPUs"))
    for _ in range(600):
        made.update(side, running=0, pending=1, ready=True)
        clock.now += 1
    assert told == ["resources.0.gpus = 1.0: no node has that yet (now: 0 GPUs); waiting for one"] * 4
    made.update(side, running=1, pending=1, ready=True)
    clock.now += 10_000
    made.update(side, running=1, pending=1, ready=True)
    assert len(told) == 4, "there is one now"


def test_one_that_has_all_that_it_may_have_is_not_starved(clock: Clock) -> None:
    rich, full = sides(None, 2)
    made = room(clock, rich, full)
    made.update(rich, running=9, pending=0, ready=True)
    made.update(full, running=2, pending=0, ready=True)
    clock.now += PATIENCE_S
    assert made.to_release(rich) == 0


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ray.exceptions.ActorUnavailableError("socket closed", None), "its node was lost"),
        (ray.exceptions.RayActorError(error_msg="The actor died because its node has died."), "its node was lost"),
        (ray.exceptions.RayActorError(error_msg="…", preempted=True), "its node was lost"),
    ],
)
def test_a_lost_node_counts_little(error: Exception, why: str) -> None:
    deaths = Deaths()
    told = [deaths.judge("unit", error) for _ in range(LOST_NODES + 1)]
    assert told[0] == (True, why)
    assert [again for again, _ in told] == [True] * LOST_NODES + [False]
    assert deaths.judge("unit", ray.exceptions.ActorDiedError())[0], "and a worker may still be killed"


def test_a_killed_worker_counts() -> None:
    deaths = Deaths()
    told = [deaths.judge("unit", ray.exceptions.ActorDiedError()) for _ in range(RETRIES + 1)]
    assert [again for again, _ in told] == [True] * RETRIES + [False]
    assert told[-1][1].startswith("its worker was killed or crashed 3 times (most often the system kills it because")
    assert deaths.judge("other", ray.exceptions.ActorDiedError())[0]


def test_memory_that_ray_watches_is_named() -> None:
    died = ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.")
    assert Deaths().judge("unit", died)[1].startswith("out of memory: its worker was stopped because the memory of its")


def too_much_memory() -> BaseException:
    try:
        torch.empty(1 << 60, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    pytest.skip("this machine has an exbibyte to give")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.cuda.OutOfMemoryError("CUDA out of memory. Tried…"), OSError(12, "Cannot allocate memory")],
)
def test_out_of_memory_is_named(error: BaseException) -> None:
    assert describe(error).startswith("out of memory: ")


def test_out_of_memory_of_torch_on_the_cpu_is_named() -> None:
    assert describe(too_much_memory()).startswith("out of memory: ")
    assert describe(RuntimeError("shapes differ\nby 1")) == "RuntimeError: shapes differ by 1"


def test_a_storage_in_trouble_gets_time() -> None:
    slept: list[float] = []
    faults = [ConnectionResetError("reset"), InputError("storage", "s3://b", "cannot be read: timed out"), None]

    def work() -> None:
        if fault := faults.pop(0):
            raise fault

    assert attempt(work, slept.append) == outcome.Outcome()
    assert slept == list(PAUSES_S[:2])
    assert not faults


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (PermissionError("denied"), 1 + len(PAUSES_S)),
        (FileNotFoundError("gone"), 1),
        (DamagedError("torn"), 1),
        (FloatingPointError("nan"), 1),
        (InputError("data.d", "x", "has no images"), 1),
        (OSError(12, "Cannot allocate memory"), 1),
    ],
)
def test_what_will_not_pass_is_not_waited_for(fault: Exception, tries: int) -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise fault

    assert attempt(work, lambda seconds: None).error
    assert len(calls) == tries


def test_needs_in_rays_words() -> None:
    need = Resources(cpus=1 / 3, gpus=0.25, accelerator_type="A100", custom={"slot": 2})
    words = {"CPU": 0.3333, "GPU": 0.25, "accelerator_type:A100": 0.001, "slot": 2}
    assert asked(need) == words
    assert actor_options(need) == {
        "num_cpus": 0.3333,
        "num_gpus": 0.25,
        "resources": {"accelerator_type:A100": 0.001, "slot": 2},
    }


def test_tasks_by_kind_and_tasks_given_back() -> None:
    schedule = Schedule(PLAN, NOTHING)
    inversions = (ShardUnit, IriUnit)
    assert schedule.ready_tasks(9) == 2
    assert schedule.ready_tasks(1) == 1
    assert schedule.next_task(inversions) is None
    assert schedule.next_task((ModelUnit,)) == CLEAN
    schedule.finished(CLEAN)
    assert schedule.ready_tasks(9, inversions) == len(CLEAN_IRIS.shards) == 2
    first = schedule.next_task(inversions)
    assert first == CLEAN_IRIS.shards[0]
    schedule.again(first)
    assert schedule.next_task(inversions) == first
    schedule.failed(CLEAN_IRIS.shards[1], "nan")
    schedule.again(first)
    assert first not in take(schedule), "its set was given up meanwhile"


def test_groups_given_back_and_not_after_the_end() -> None:
    schedule = Schedule(PLAN, NOTHING)
    assert not schedule.group_ready
    schedule.finished(CLEAN)
    assert schedule.group_ready
    group = schedule.next_group()
    assert group == "g1"
    schedule.group_again(group)
    assert schedule.next_group() == group
    schedule.abandon()
    schedule.group_again(group)
    schedule.again(CLEAN)
    assert not schedule.groups_left
    assert not schedule.tasks_left

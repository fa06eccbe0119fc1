"""Two IRI actors on two cores, one thread each, against one on one core: the pool of a sweep on a Ray of its own."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from rich.console import Console

from benchmarks.machine import peak_of_descendants
from benchmarks.outcome import Figure, Outcome, Table, Target, figure
from benchmarks.subjects import Options, study
from benchmarks.turns import Samples, ratios, summary
from raystitch.catalogue import inspect
from raystitch.config import Resources, parse_config
from raystitch.distributed.cluster import connected
from raystitch.distributed.pool import Pool
from raystitch.distributed.room import Room, Side
from raystitch.distributed.team import Team
from raystitch.distributed.watch import Watch
from raystitch.errors import InputError
from raystitch.execute import Bench, Job
from raystitch.iris.compiling import can_compile
from raystitch.plan import Plan, expand
from raystitch.progress import Board
from raystitch.schedule import ALL, Done, Failure, Kinds, Schedule, Task
from raystitch.store import Store
from raystitch.sweep import provenance
from raystitch.units import FitUnit

ACTORS = (1, 2)
RATIO = "throughput of two actors over that of one"
TARGETS: Mapping[str, Target] = {RATIO: Target("at least", 1.8)}


@dataclass(frozen=True)
class Size:
    """What an actor does in a round: one shard to warm up, untimed, then ``shards`` of ``images`` each."""

    images: int = 128
    shards: int = 8
    steps: int = 12
    rounds: int = 5
    point: int = 4


FULL, QUICK = Size(), Size(images=16, shards=2, steps=2, rounds=1)


class Gate(Schedule):
    """Hands every actor a first shard; when all of these are done, starts a clock and hands out the rest.

    Args:
        plan: with one IRI set of at least ``actors`` + ``shards`` shards.
        models: ids of the models, which are there.
        actors: size of the pool.
        shards: to be timed.
    """

    def __init__(self, plan: Plan, models: frozenset[str], actors: int, shards: int) -> None:
        super().__init__(plan, Done(models, frozenset()))
        self._actors, self._total = actors, actors + shards
        self._handed = self._made = 0
        self._begun = self.seconds = 0.0
        self.error = ""
        self.team: Team | None = None
        self.over = threading.Event()

    @property
    def tasks_left(self) -> bool:
        """Whether shards are left to hand out."""
        return self._handed < self._total and not self.over.is_set()

    def next_task(self, kinds: Kinds = ALL) -> Task | None:
        """A shard; None while actors still start or warm up, and at the end."""
        starting = self.team is None or self.team.running < self._actors
        if starting or not self.tasks_left or self._made < self._actors <= self._handed:
            return None
        if self._handed == self._actors:
            self._begun = time.perf_counter()
        task = super().next_task(kinds)
        self._handed += task is not None
        return task

    def finished(self, unit: Task | FitUnit) -> None:
        """Count a shard; the set is never closed."""
        self._made += 1
        if self._made == self._total:
            self.seconds = time.perf_counter() - self._begun
            self.over.set()

    def failed(self, unit: Task | FitUnit, error: str, trace: str = "") -> list[Failure]:
        """Stop."""
        self.error = error
        self.over.set()
        return []

    def abandon(self) -> None:
        """Stop: the pool cannot go on."""
        self.failed(self.shards[0], "the pool of actors stopped")


def run(options: Options) -> Outcome:
    """Images per second of two actors over those of one, start-up left out."""
    size = QUICK if options.quick else FULL
    if len(os.sched_getaffinity(0)) < max(ACTORS):
        return Outcome([Figure(RATIO, "×", None, target=TARGETS[RATIO])], notes=["This machine has one core."])
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the figure is about cores
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        job, plan = _study(options, size, folder)
        models = _make_models(job, plan)
        rates: dict[int, Samples] = dict.fromkeys(ACTORS, ())
        with connected():
            for _ in range(size.rounds):
                for actors in ACTORS:
                    rates[actors] += (_rate(job, plan, models, actors, size),)
            workers = peak_of_descendants("ray::Worker")
    rows = [[actors, *(float(f"{value:.4g}") for value in summary(samples))] for actors, samples in rates.items()]
    return Outcome(
        [figure(RATIO, "×", ratios(rates[2], rates[1]), TARGETS[RATIO])],
        [Table("Images per second", ["actors", "median", "lower quartile", "upper quartile"], rows)],
        [
            f"Shards of {size.images} images, {size.steps} steps, point {size.point}; each actor has one thread.",
            "Steps are compiled in an actor's first shard, which is not timed; as they are written where there is no compiler.",
        ],
        {**asdict(size), "worker_mib": workers},
    )


def _study(options: Options, size: Size, folder: str) -> tuple[Job, Plan]:
    """A study of one IRI set with a shard for every task of the largest pool."""
    shards = max(ACTORS) * (1 + size.shards)
    iri = {
        "steps": size.steps,
        "shard_size": size.images,
        "batch": size.images,
        "compile": can_compile(torch.device("cpu")),
    }
    raw = study(options, {"train": shards * size.images, "test": 1}, iri, [size.point])
    config = parse_config({**raw, "fit": {"batch": 2, "init_images": 2}})
    plan = expand(config, inspect(config))
    if len(plan.iris[0].shards) < shards:
        raise InputError("--data", options.data, f"has fewer than {shards * size.images} training images")
    return Job(config, Store(folder), provenance()), plan


def _make_models(job: Job, plan: Plan) -> frozenset[str]:
    bench = Bench(job, "cpu")
    for model in plan.models:
        bench.make_model(model)
    return frozenset(model.id for model in plan.models)


def _rate(job: Job, plan: Plan, models: frozenset[str], actors: int, size: Size) -> float:
    """Images per second of a pool of ``actors``, from when all are warm to the last shard."""
    shards = actors * size.shards
    gate = Gate(plan, models, actors, shards)
    board = Board({"IRI shard": actors + shards}, console=Console(quiet=True))
    side = Side("resources.iri", Resources(cpus=1), actors)
    gate.team = Team(job, side, ALL)
    with Pool(gate, Watch(gate, board, job.store, {}), Room([side], board.note), [gate.team]):
        gate.over.wait()
    if gate.error:
        raise RuntimeError(f"an actor failed: {gate.error}")
    return shards * size.images / gate.seconds

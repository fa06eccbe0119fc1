"""One flow from base models to fits: a pool makes models and IRI sets while Tune runs every fit whose parents are there."""

from __future__ import annotations

from raystitch.config import ResourcesConfig
from raystitch.distributed.cluster import check_resources, connected, is_cluster, slots
from raystitch.distributed.grid import run_fits
from raystitch.distributed.meters import Meters
from raystitch.distributed.pool import Pool
from raystitch.distributed.room import Room, Side
from raystitch.distributed.team import Team
from raystitch.distributed.tracking import trackers
from raystitch.distributed.watch import Watch
from raystitch.execute import Job
from raystitch.heartbeat import Heartbeat
from raystitch.plan import Plan
from raystitch.progress import Board
from raystitch.results import labelled
from raystitch.schedule import ALL, Kinds, Schedule
from raystitch.units import IriUnit, ModelUnit, ShardUnit


def run(job: Job, plan: Plan, schedule: Schedule, board: Board) -> None:
    """Compute everything that is missing. Units that fail are recorded in the store; the rest goes on."""
    resources = job.config.resources
    labels = {unit.id: label for unit, label in labelled(plan)}
    with connected(), Heartbeat(job.store, job.config.name, board.state, board.note):
        check_resources(resources)
        watch = Watch(schedule, board, job.store, labels, Meters(job.config.name))
        kinds = _pool_kinds(resources)
        fits = Side("resources.fit", resources.fit, None if is_cluster() else slots(resources.fit))
        room = Room([*kinds, fits], board.note, board.set_slots)
        teams = [Team(job, side, takes) for side, takes in kinds.items()]
        with Pool(schedule, watch, room, teams):
            run_fits(job, schedule, watch, room, fits, trackers(job, board.note))


def _pool_kinds(resources: ResourcesConfig) -> dict[Side, Kinds]:
    """The kinds of workers of the pool and the tasks of each; one kind takes all where models ask for nothing else."""

    def most(side: Side) -> Side:
        side.most = resources.iri_actors or (None if is_cluster() else slots(side.need))
        return side

    iri = most(Side("resources.iri", resources.iri))
    if resources.training == resources.iri:
        return {iri: ALL}
    return {most(Side("resources.train", resources.training)): (ModelUnit,), iri: (ShardUnit, IriUnit)}

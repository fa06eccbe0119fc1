"""One flow from base models to fits: a pool makes models and IRI sets while Tune runs every fit whose parents are there."""

from __future__ import annotations

from raystitch.distributed.cluster import check_resources, connected, slots
from raystitch.distributed.grid import run_fits
from raystitch.distributed.pool import Pool
from raystitch.distributed.watch import Watch
from raystitch.execute import Job
from raystitch.plan import Plan
from raystitch.progress import Board
from raystitch.results import labelled
from raystitch.schedule import Schedule


def run(job: Job, plan: Plan, schedule: Schedule, board: Board) -> None:
    """Compute everything that is missing. Units that fail are recorded in the store; the rest goes on."""
    resources = job.config.resources
    labels = {unit.id: label for unit, label in labelled(plan)}
    watch = Watch(schedule, board, job.store, labels)
    with connected():
        check_resources(resources, board.note)
        concurrent, actors = slots(resources.fit), resources.iri_actors or slots(resources.iri)
        board.slots = concurrent + actors
        with Pool(job, schedule, watch, resources.iri, actors):
            run_fits(job, schedule, watch, resources.fit, concurrent)

"""Connect to a running Ray cluster, or start one on this machine for as long as the sweep runs."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from raystitch.config import Resources, ResourcesConfig
from raystitch.errors import InputError

_OBJECT_STORE_BYTES = 256 << 20


@contextmanager
def connected() -> Iterator[None]:
    """Use the cluster at ``RAY_ADDRESS`` (set inside every Ray job), else start a Ray of our own and stop it at the end."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    address = os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    else:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=_OBJECT_STORE_BYTES,
        )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C; Ray would print a stack trace
    try:
        yield
    finally:
        ray.shutdown()


def check_resources(resources: ResourcesConfig, note: Callable[[str], None]) -> None:
    """Compare what workers ask for with what the largest node has.

    On a Ray of our own nothing can change, so asking for more is an error; a cluster may still grow, so there it is noted.

    Raises:
        InputError: this machine cannot start a single worker.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for kind in ("iri", "fit"):
        need: Resources = getattr(resources, kind)
        for field, name, wanted in (("cpus", "CPU", need.cpus), ("gpus", "GPU", need.gpus)):
            largest = max((node.get(name, 0) for node in nodes), default=0)
            if wanted > largest and not os.environ.get("RAY_ADDRESS"):
                raise InputError(f"resources.{kind}.{field}", wanted, f"this machine has {largest:g} {name}s")
            if wanted > largest:
                note(
                    f"resources.{kind}.{field} = {wanted:g}: no node has that yet (largest: {largest:g}); waiting for one"
                )


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def slots(need: Resources) -> int:
    """How many workers of a kind the cluster runs side by side: one per share of a GPU, or per group of whole cores."""
    total = ray.cluster_resources()
    if need.gpus:
        return max(1, int(total.get("GPU", 0) / need.gpus))
    return max(1, int(total.get("CPU", 1) // threads(need)))


def threads(need: Resources) -> int:
    """Torch threads of a worker. They follow from the config alone, so that results do not depend on the machine."""
    return max(1, math.ceil(need.cpus))

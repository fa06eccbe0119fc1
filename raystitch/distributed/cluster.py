"""Connect to a running Ray cluster, or start one on this machine for as long as the sweep runs."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from raystitch.config import Resources

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
    try:
        yield
    finally:
        ray.shutdown()


def slots(need: Resources) -> int:
    """How many workers of a kind the cluster runs side by side: one per share of a GPU, or per group of whole cores."""
    total = ray.cluster_resources()
    if need.gpus:
        return max(1, int(total.get("GPU", 0) / need.gpus))
    return max(1, int(total.get("CPU", 1) // threads(need)))


def threads(need: Resources) -> int:
    """Torch threads of a worker. They follow from the config alone, so that results do not depend on the machine."""
    return max(1, math.ceil(need.cpus))

"""Connect to a running Ray cluster, or start one on this machine for as long as the sweep runs; what its nodes have."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from raystitch.config import Resources, ResourcesConfig
from raystitch.errors import InputError

_OBJECT_STORE_BYTES = 256 << 20
Lack = tuple[str, float | str, str]
"""A field of :class:`~raystitch.config.Resources`, its value, and what the best node has."""


def is_cluster() -> bool:
    """Whether a running cluster is used, whose nodes may come and go, and not a Ray of our own on this machine."""
    return bool(os.environ.get("RAY_ADDRESS"))


@contextmanager
def connected() -> Iterator[None]:
    """Use the cluster at ``RAY_ADDRESS`` (set inside every Ray job), else start a Ray of our own and stop it at the end."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what becomes of trials is told here
    if is_cluster():
        address = os.environ["RAY_ADDRESS"]
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    else:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=_OBJECT_STORE_BYTES,
        )
    _keep_messages_of_nodes_quiet()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C; Ray would print a stack trace
    try:
        yield
    finally:
        ray.shutdown()


def _keep_messages_of_nodes_quiet() -> None:
    """Ray prints dozens of lines for each node that is lost or not there yet; the sweep says both in one."""
    try:
        from ray._private.ray_logging import global_worker_stdstream_dispatcher
    except ImportError:  # another version of Ray has it elsewhere: there are only more lines
        return
    global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def check_resources(resources: ResourcesConfig) -> None:
    """Refuse what a Ray of our own cannot give: nothing can change there, while a cluster may still grow.

    Raises:
        InputError: this machine cannot start a single worker.
    """
    if is_cluster():
        return
    for kind, need in (("iri", resources.iri), ("train", resources.training), ("fit", resources.fit)):
        if lack := what_lacks(need):
            field, wanted, largest = lack
            raise InputError(f"resources.{kind}.{field}", wanted, f"this machine has {largest}")


def what_lacks(need: Resources) -> Lack | None:
    """What no node has enough of for one worker: the field, what it asks for, and what the best node has.

    None if some node is large enough, were it free.
    """
    nodes = _nodes()
    if any(all(node.get(name, 0) >= amount for name, amount in asked(need).items()) for node in nodes):
        return None

    def largest(name: str) -> float:
        return float(max((node.get(name, 0) for node in nodes), default=0))

    for field, name, wanted in (("gpus", "GPU", need.gpus), ("cpus", "CPU", need.cpus)):
        if wanted > largest(name):
            return field, wanted, f"{largest(name):g} {name}s"
    for name, wanted in need.custom.items():
        if wanted > largest(name):
            return f"custom.{name}", wanted, f"{largest(name):g}"
    if need.accelerator_type is not None:
        types = {name.split(":")[1] for node in nodes for name in node if name.startswith("accelerator_type:")}
        if need.accelerator_type not in types:
            return "accelerator_type", need.accelerator_type, ", ".join(sorted(types)) or "none"
    return "cpus", need.cpus, "them, but not on one node with the rest"


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def asked(need: Resources) -> dict[str, float]:
    """A worker's needs in Ray's words, to the four decimals that it counts."""
    found = {"CPU": need.cpus, "GPU": need.gpus, **need.custom}
    if need.accelerator_type is not None:
        found[f"accelerator_type:{need.accelerator_type}"] = 0.001
    return {name: round(amount, 4) for name, amount in found.items() if amount}


def actor_options(need: Resources) -> dict[str, Any]:
    """The same as options of an actor."""
    words = asked(need)
    return {"num_cpus": words.pop("CPU", 0), "num_gpus": words.pop("GPU", 0), "resources": words}


def slots(need: Resources) -> int:
    """How many workers of a kind this machine runs side by side: one per share of a GPU, or per group of whole cores."""
    total = ray.cluster_resources()
    if need.gpus:
        return max(1, int(total.get("GPU", 0) / need.gpus))
    return max(1, int(total.get("CPU", 1) // threads(need)))


def here() -> str:
    """Which process on which node this is, as a person would look for it."""
    return f"{socket.gethostname()} pid {os.getpid()}"


def threads(need: Resources) -> int:
    """Torch threads of a worker. They follow from the config alone, so that results do not depend on the machine."""
    return max(1, math.ceil(need.cpus))

"""Where the time of a loop goes: what torch's profiler saw, grouped by kind of operation.

An operation's own time, without that of the operations that it calls, counts under its own kind. Two parts are told apart by
labels, put around functions of the product from outside while the profiler runs: what the search does with its images, and
the stitch.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.turns import Work, in_turns
from raystitch.iris import optimisers
from raystitch.iris.passes import Passes
from raystitch.stitching.stitch import Stitch

FORWARD, BACKWARD = "convolution forward", "convolution backward"
ELEMENTWISE, REDUCTIONS, COPIES = "elementwise", "reductions", "copies"
SEARCH, STITCH = "search", "stitch"
REST, BETWEEN = "rest", "between operations"
GROUPS = (FORWARD, BACKWARD, ELEMENTWISE, REDUCTIONS, SEARCH, STITCH, COPIES, REST, BETWEEN)

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler reports every start and stop on standard error

RUNS = 3
"""How often the work runs under the profiler."""

_LABELS = {f"benchmark {group}": group for group in (SEARCH, STITCH)}
_KINDS = {
    ELEMENTWISE: """
        abs add addcdiv addcmul clamp clampmax clampmin clampminmaxscalar div eq exp ge gt isfinite le leaky leakyrelu lerp log
        lt maskedfill mul ne neg pow reciprocal relu rsqrt rsub sgn sign sqrt square sub threshold where
    """,
    REDUCTIONS: """
        adaptiveavgpool2d all amax amin any avgpool2d linalgvectornorm logsoftmax logsoftmaxbackwarddata max mean min
        nllloss nlllossforward norm sum
    """,
    COPIES: """
        cat clone constantpadnd contiguous copy fill gather index indexput indexselect ones oneslike pad repeat select slice
        stack to tocopy unsafeindex zero zeros zeroslike
    """,
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}


def shares(work: Work, device: str) -> dict[str, float]:
    """Percent of the time of :data:`RUNS` runs that each of :data:`GROUPS` takes; they sum to 100.

    On a GPU it is the time of kernels, and ``between operations`` is when none runs.
    """
    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with labels(), profile(activities=activities) as found:
        seconds = sum(in_turns({"": work}, RUNS, device, warm_up=False)[""])
    times = dict.fromkeys(GROUPS, 0.0)
    for event in found.events() or ():
        if event.device_type.name == "CPU" and not _label(event.name):
            own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            times[group_of(_lineage(event))] += own * 1e-6
    times[BETWEEN] = max(0.0, seconds - sum(times.values()))
    total = sum(times.values())
    return {group: 100 * time / total for group, time in times.items()}


def group_of(lineage: Sequence[str]) -> str:
    """The group of an operation.

    Args:
        lineage: its name, then that of the one that called it, and so on outwards. A label anywhere decides; else the first
            name of a known kind.
    """
    groups = [*map(_label, lineage), *map(_kind, lineage), REST]
    return next(group for group in groups if group)


@contextmanager
def labels() -> Iterator[None]:
    """Label, for the profiler, the search's updates and records of images, and the stitch's forward and backward passes."""
    invert = importlib.import_module("raystitch.iris.invert")  # the package's attribute of that name is the function
    updates = {name: _labelled_update(one) for name, one in optimisers.OPTIMISERS.items()}
    with ExitStack() as patches:
        patches.enter_context(patch.dict(optimisers.OPTIMISERS, updates))
        patches.enter_context(patch.object(invert, "SHALLOW", _labelled_update(optimisers.SHALLOW)))
        patches.enter_context(patch.object(Passes, "record", _labelled(SEARCH, Passes.record)))
        patches.enter_context(patch.object(Stitch, "apply_trainable", _labelled_stitch(Stitch.apply_trainable)))
        yield


def _label(name: str) -> str | None:
    """The group that a label stands for; torch labels optimisers itself, and only stitches have one of torch's."""
    return STITCH if name.startswith("Optimizer.") else _LABELS.get(name)


def _kind(name: str) -> str | None:
    """``aten::clamp_min_``, ``ClampMinBackward1`` → the kind of ``clampmin``; the engine that calls the latter has none."""
    if name.startswith("autograd::engine"):
        return None
    plain = name.lower().removeprefix("aten::").replace("_", "")
    if "conv" in plain:
        return BACKWARD if "backward" in plain else FORWARD
    return _KIND_OF.get(re.sub(r"(backward)+\d*$", "", plain))


def _lineage(event: Any) -> list[str]:
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return names


def _labelled(group: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with record_function(f"benchmark {group}"):
            return function(*args)

    return call


def _labelled_update(optimiser: optimisers.Optimiser) -> optimisers.Optimiser:
    return replace(optimiser, update=_labelled(SEARCH, optimiser.update))


def _labelled_stitch(apply: Callable[[Stitch, Tensor], Tensor]) -> Callable[[Stitch, Tensor], Tensor]:
    def call(stitch: Stitch, z: Tensor) -> Tensor:
        out: Tensor = _labelled(STITCH, apply)(stitch, z)
        for node in _graph_of(out):
            _label_node(node)
        return out

    return call


def _graph_of(out: Tensor) -> set[Any]:
    """The nodes of autograd behind a tensor."""
    found: set[Any] = set()
    ahead = [out.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in found:
            found.add(node)
            ahead += [before for before, _ in node.next_functions]
    return found


def _label_node(node: Any) -> None:
    label = record_function(f"benchmark {STITCH}")

    def begin(_: Any) -> None:
        label.__enter__()  # type: ignore[no-untyped-call]

    def end(*_: Any) -> None:
        label.__exit__(None, None, None)

    node.register_prehook(begin)
    node.register_hook(end)

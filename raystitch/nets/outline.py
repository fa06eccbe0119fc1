"""Points and cost of a net from shapes alone: no weights are made and no numbers computed.

For planning: a ViT-B at 224 pixels takes a second instead of a minute. That the cut net also computes what the net computes is
not seen here; :func:`~raystitch.nets.find_points` on the net itself checks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import FlopCounterMode

from raystitch.nets.build import NormalisedNet, build_net
from raystitch.nets.cut import CutNet, Point, live_nodes
from raystitch.nets.freeze import freeze
from raystitch.nets.head import find_classifier
from raystitch.nets.points import ShapeRecorder, number_points, shapes_of
from raystitch.nets.tracing import trace

_IMAGES = 2
"""As many as :func:`~raystitch.nets.find_points` takes."""


@dataclass(frozen=True)
class Outline:
    """What a net's shapes tell.

    Attributes:
        points: its stitch points, as :func:`~raystitch.nets.find_points` gives them.
        flops: of one image through each segment; see :func:`segment_flops`.
    """

    points: tuple[Point, ...]
    flops: tuple[int, ...]


def outline(
    arch: str, num_classes: int, args: Mapping[str, Any], size: int, modules: Sequence[str] | None = None
) -> Outline | None:
    """Look at the shapes of an architecture; remembered within a process.

    Args:
        arch: as for :func:`~raystitch.nets.build_net`.
        num_classes: classes of the dataset.
        args: keyword arguments of the architecture.
        size: side of the images in pixels.
        modules: paths of modules to use as points; by default chosen by METHOD §6.

    Returns:
        ``None`` where shapes do not suffice: for ``module:function``, which may do anything, and where something is wrong. The
        net itself will tell then.
    """
    key = _key(arch, args)
    return key and _outline(*key, num_classes, size, None if modules is None else tuple(modules))


def known_to_have_classifier(arch: str, num_classes: int, args: Mapping[str, Any], size: int) -> bool:
    """Whether shapes alone show the linear layer that gives the logits (:func:`~raystitch.nets.head.find_classifier`)."""
    key = _key(arch, args)
    return key is not None and _has_classifier(*key, num_classes, size)


def segment_flops(net: CutNet, size: int) -> tuple[int, ...]:
    """FLOPs (multiply and add are two) of one image of side ``size`` through each segment, image → point 1 … → logits."""
    z, flops = torch.zeros(1, 3, size, size, device=next(net.buffers()).device), []
    with torch.no_grad():
        for segment in net.segments:
            with FlopCounterMode(display=False) as counter:
                z = segment(z)
            flops.append(int(counter.get_total_flops()))
    return tuple(flops)


def _key(arch: str, args: Mapping[str, Any]) -> tuple[str, str] | None:
    written = json.dumps(dict(args))
    return None if ":" in arch or json.loads(written) != dict(args) else (arch, written)


@lru_cache(maxsize=256)
def _outline(arch: str, args: str, num_classes: int, size: int, modules: tuple[str, ...] | None) -> Outline | None:
    try:
        net = _without_weights(arch, args, num_classes)
        traced = trace(net)
        live = live_nodes(net, traced)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            recorder = _CostRecorder(net, traced.graph, counter)
            shapes = shapes_of(recorder, torch.empty(_IMAGES, 3, size, size, device="meta"))
        points, nodes = number_points(net, traced, live, shapes, modules)
    except (
        Exception
    ):  # a step without a rule for shapes alone, or a fault, which the net itself will show when it is built
        return None
    if shapes[live.logits] != (_IMAGES, num_classes):
        return None
    done = [recorder.done[node] // _IMAGES for node in (live.images, *nodes, live.logits)]
    return Outline(points, tuple(after - before for before, after in pairwise(done)))


class _CostRecorder(ShapeRecorder):
    """Also notes how many FLOPs were done up to each node."""

    def __init__(self, net: torch.nn.Module, graph: fx.Graph, counter: FlopCounterMode) -> None:
        super().__init__(net, graph)
        self._counter, self.done = counter, dict[fx.Node, int]()

    def run_node(self, n: fx.Node) -> Any:
        """Compute ``n``, note its shape and the FLOPs so far."""
        value = super().run_node(n)
        self.done[n] = int(self._counter.get_total_flops())
        return value


@lru_cache(maxsize=256)
def _has_classifier(arch: str, args: str, num_classes: int, size: int) -> bool:
    try:
        find_classifier(_without_weights(arch, args, num_classes), size)
    except Exception:  # likewise
        return False
    return True


@lru_cache(maxsize=8)
def _without_weights(arch: str, args: str, num_classes: int) -> NormalisedNet:
    with torch.device("meta"):
        return freeze(build_net(arch, num_classes, json.loads(args), (0,) * 3, (1,) * 3))

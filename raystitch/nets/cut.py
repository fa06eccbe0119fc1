"""Cut a net at its stitch points into a chain of segments that together compute exactly what the net computes.

Each segment is a torch.fx graph holding only what it needs: replace the start by a placeholder and keep the ancestors
of the stop. (Dead-code elimination would keep the images alive through shape assertions.) Parameters are shared with
the net.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Tensor, fx, nn

from raystitch.errors import InputError, did_you_mean
from raystitch.nets.build import NormalisedNet
from raystitch.nets.liveness import Liveness, ancestors, liveness
from raystitch.nets.tracing import Trace, in_place, out_of_place, trace

Kind = Literal["conv", "token", "vector"]


@dataclass(frozen=True)
class Point:
    """A place where a net may be cut.

    Attributes:
        index: number from 1, in execution order.
        module: path of the module, inside the user's net, whose output this is.
        kind: what T must map there.
        shape: of one representation, without the batch: conv (C, H, W); token (N, D) or (H, W, D); vector (D,).
    """

    index: int
    module: str
    kind: Kind
    shape: tuple[int, ...]


class CutNet(nn.Module):
    """A net as a chain of ``n + 1`` segments: images → point 1, point k → point k + 1, …, point n → logits.

    Point 0 is the images (N, 3, H, W) in [0, 1], normalised by the first segment; point n + 1 is the logits (N, C).
    """

    def __init__(self, points: Sequence[Point], segments: Sequence[nn.Module]) -> None:
        super().__init__()
        self.points = tuple(points)
        self.segments = nn.ModuleList(segments)

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.points)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) in [0, 1] → logits (N, C)."""
        return self.run(x, 0, self.n + 1)

    def run(self, z: Tensor, start: int, stop: int) -> Tensor:
        """Return the representation at point ``stop`` computed from ``z``, the representation at point ``start``.

        Raises:
            IndexError: not 0 ≤ start ≤ stop ≤ n + 1.
        """
        for segment in self._between(start, stop):
            z = segment(z)
        return z

    def trace(self, z: Tensor, start: int, stop: int) -> list[Tensor]:
        """Return the representations at points ``start + 1``, …, ``stop``, computed from ``z`` at point ``start``.

        Raises:
            IndexError: not 0 ≤ start ≤ stop ≤ n + 1.
        """
        found = []
        for segment in self._between(start, stop):
            z = segment(z)
            found.append(z)
        return found

    def _between(self, start: int, stop: int) -> list[nn.Module]:
        if not 0 <= start <= stop <= self.n + 1:
            raise IndexError(f"need 0 <= start <= stop <= {self.n + 1}, got start {start}, stop {stop}")
        return list(self.segments)[start:stop]


def cut(net: NormalisedNet, points: Sequence[Point]) -> CutNet:
    """Cut ``net`` at ``points``; the pieces compute what the net computes in eval mode and share its parameters.

    BatchNorm layers stay layers, whose mode can be switched; other behaviour of train mode (dropout written as a
    function, stochastic depth) is left out. Layers keep the mode they have in ``net``.

    Nothing is computed here: that the pieces compute what the net computes is what :func:`~raystitch.nets.find_points` looks
    at, which refuses nets that write into their tensors in ways the graph does not show.

    Args:
        net: the net.
        points: from :func:`~raystitch.nets.find_points` for a net of this architecture, or any part of them, in order.

    Raises:
        InputError: a point is unknown, not the only live tensor, or out of order.
    """
    traced = trace(net)
    live = live_nodes(net, traced)
    stops = [node_at(net, traced, live, point.module) for point in points]
    return CutNet(points, segments_between(net, traced, live, stops))


def live_nodes(net: NormalisedNet, traced: Trace) -> Liveness:
    """Liveness of a traced net, or an :class:`InputError` if its output is not one tensor computed from the images."""
    live = liveness(traced.graph)
    if live is None:
        raise InputError("arch", net.label, "its output is not one tensor of logits computed from the images")
    return live


def segments_between(net: NormalisedNet, traced: Trace, live: Liveness, stops: Sequence[fx.Node]) -> list[nn.Module]:
    """Return the chain images → stops[0] → … → logits."""
    ends = [live.images, *stops, live.logits]
    for before, after in pairwise(ends):
        if live.order[before] >= live.order[after]:
            raise InputError("points", None, "two points are the same value, or they are not in execution order")
    return [_segment(net, traced.graph, a, b) for a, b in pairwise(ends)]


def _segment(net: NormalisedNet, graph: fx.Graph, start: fx.Node, stop: fx.Node) -> nn.Module:
    needed = ancestors(stop, until=start)
    piece = fx.Graph()
    copies = {start: piece.placeholder("z")}
    for node in graph.nodes:
        if node in needed and node is not start:
            copies[node] = piece.node_copy(node, lambda source: copies[source])
    piece.output(copies[stop])
    segment = fx.GraphModule(net, piece, class_name="Segment")
    for place, node in enumerate(piece.nodes):
        if node.op == "call_module" and in_place(layer := segment.get_submodule(str(node.target))):
            # not under its own name, which may lie in a part that is shared with the net
            node.target = f"raystitch_out_of_place_{place}"
            segment.add_submodule(node.target, out_of_place(layer))
    segment.delete_all_unused_submodules()
    segment.recompile()
    return segment


def node_at(net: NormalisedNet, traced: Trace, live: Liveness, module: str) -> fx.Node:
    """Return the node where ``module`` ends, if the net can be cut there.

    Raises:
        InputError: naming the nearest right name, or the value that crosses and the nearest valid points.
    """
    node = traced.outputs.get(module)
    if node is not None and live.is_cut(node):
        return node
    raise InputError("points", module, _why_not(net, traced, live, module, node))


def _why_not(net: NormalisedNet, traced: Trace, live: Liveness, module: str, node: fx.Node | None) -> str:
    known = {name for name, _ in net.net.named_modules() if name}
    if module not in known:
        return f"unknown module{did_you_mean(module, valid_modules(traced, live) or known)}"
    if node is None:
        inside = next((leaf for leaf in sorted(traced.leaves) if module.startswith(f"{leaf}.")), None)
        reason = f"lies inside {inside!r}, which cannot be taken apart" if inside else "is not a step of the net"
        return f"{reason}; valid points: {', '.join(valid_modules(traced, live)[:20])}"
    if node is live.logits:
        return "is the net's output, and a point must lie before it"
    if node not in live.order:
        return "the logits do not depend on its output"
    crossing = live.crossing.get(node)
    if crossing is None:
        return "is the input itself"
    return f"{_describe(traced, crossing)} skips past it; nearest valid points: {_nearest(traced, live, node)}"


def valid_modules(traced: Trace, live: Liveness) -> list[str]:
    """All module paths where the net can be cut, in execution order."""
    paths = [path for path, node in traced.outputs.items() if live.is_cut(node)]
    return sorted(paths, key=lambda path: live.order[traced.outputs[path]])


def why_nowhere(traced: Trace, live: Liveness) -> str:
    """Why no points are found in a net: the value that lives longest, and modules that can be named all the same."""
    spans = {
        node: max((live.order.get(user, 0) for user in node.users), default=0) - live.order[node] for node in live.order
    }
    longest = max(spans, key=lambda node: spans[node])
    last = max(longest.users, key=lambda user: live.order.get(user, 0))
    reason = f"{_describe(traced, longest)} is needed beside others until {_describe(traced, last)}"
    valid = valid_modules(traced, live)
    named = f"; modules that can be named as points: {', '.join(map(repr, valid[-5:]))}" if valid else ""
    return f"where one tensor carries everything: {reason}{named}"


def _describe(traced: Trace, node: fx.Node) -> str:
    names = [path for path, output in traced.outputs.items() if output is node]
    if names:
        return f"the output of {min(names, key=len)!r}"
    return f"the value {node.name!r} computed in {traced.scopes.get(node) or 'the net itself'!r}"


def _nearest(traced: Trace, live: Liveness, node: fx.Node) -> str:
    valid = valid_modules(traced, live)
    place = live.order[node]
    shortest = {traced.outputs[path]: path for path in sorted(valid, key=len, reverse=True)}
    before = [near for near in live.order if near in shortest and live.order[near] < place][-1:]
    after = [near for near in live.order if near in shortest and live.order[near] > place][:1]
    return ", ".join(repr(shortest[near]) for near in before + after) or "none"

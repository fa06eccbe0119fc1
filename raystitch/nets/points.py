"""Find a net's stitch points: number, module, kind and shape (METHOD §6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from raystitch.errors import InputError
from raystitch.modes import evaluating
from raystitch.nets.blocks import Candidates, choose_modules
from raystitch.nets.build import NormalisedNet
from raystitch.nets.cut import CutNet, Kind, Point, live_nodes, node_at, segments_between, valid_modules, why_nowhere
from raystitch.nets.liveness import Liveness
from raystitch.nets.output import check_output
from raystitch.nets.tracing import Trace, trace

TOLERANCE = 1e-4
"""Largest difference between the chain's and the net's logits, relative to the largest logit, that passes as exact."""


def find_points(
    net: NormalisedNet, size: int, modules: Sequence[str] | None = None, num_classes: int | None = None
) -> tuple[Point, ...]:
    """Number the stitch points of ``net`` from 1, in execution order, and check that it can be cut there.

    Two random images go through the net and through the cut chain, which must agree.

    Args:
        net: the net; its modes and weights are left as they were.
        size: side of the square images, in pixels.
        modules: paths of modules inside the user's net, such as ``layer1.0``, each once and in any order; by default
            chosen by METHOD §6. A module that is called several times stands for its last call.
        num_classes: C, where known; the net must give as many logits.

    Raises:
        InputError: a module that is unknown, named twice or crossed by a skip connection; a net that does not take such
            images, gives no finite logits of shape (images, C), or cannot be cut.
    """
    images = torch.rand((2, 3, size, size), generator=torch.Generator().manual_seed(0)).to(net.mean.device)
    logits = check_output(net, images, num_classes)
    traced = trace(net)
    live = live_nodes(net, traced)
    with evaluating(net), torch.no_grad():
        points, nodes = number_points(net, traced, live, shapes_of(ShapeRecorder(net, traced.graph), images), modules)
        _check_chain(net, CutNet(points, segments_between(net, traced, live, nodes)), images, logits)
    return points


def number_points(
    net: NormalisedNet,
    traced: Trace,
    live: Liveness,
    shapes: dict[fx.Node, tuple[int, ...]],
    modules: Sequence[str] | None = None,
) -> tuple[tuple[Point, ...], list[fx.Node]]:
    """:func:`find_points` without looking whether the cut net computes what the net computes; and where the points end.

    Raises:
        InputError: a module that is unknown, named twice or crossed by a skip connection; or a net without any point.
    """
    _check_names(modules)
    kinds = _kinds(net, traced, live, shapes)
    chosen = choose_modules(Candidates(net.net, traced, live, kinds)) if modules is None else list(modules)
    nodes = _distinct({module: node_at(net, traced, live, module) for module in chosen})
    chosen = sorted(nodes, key=lambda module: live.order[nodes[module]])
    points = tuple(_point(i + 1, module, kinds) for i, module in enumerate(chosen))
    if not points:
        raise InputError("arch", net.label, f"no place was found {why_nowhere(traced, live)}")
    return points, [nodes[module] for module in chosen]


def _check_names(modules: Sequence[str] | None) -> None:
    if modules is not None and not modules:
        raise InputError("points", [], "name at least one module, or leave it out")
    for place, module in enumerate(modules or ()):
        if module in (modules or ())[:place]:
            raise InputError("points", module, "is named twice; name each module once, in any order")


def _distinct(nodes: dict[str, fx.Node]) -> dict[str, fx.Node]:
    names: dict[fx.Node, str] = {}
    for module, node in nodes.items():
        if names.setdefault(node, module) != module:
            raise InputError("points", module, f"is the same value as {names[node]!r}: leave one out")
    return nodes


def _point(index: int, module: str, kinds: dict[str, tuple[Kind, tuple[int, ...]]]) -> Point:
    if module not in kinds:
        raise InputError("points", module, "its output is not one floating-point tensor of 2 to 4 dimensions per batch")
    kind, shape = kinds[module]
    return Point(index, module, kind, shape)


class ShapeRecorder(fx.Interpreter):
    """Runs a graph and notes the shape of every floating-point tensor."""

    def __init__(self, net: nn.Module, graph: fx.Graph) -> None:
        super().__init__(net, graph=graph)
        self.extra_traceback = False
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Compute ``n`` and note its shape."""
        value = super().run_node(n)
        if isinstance(value, Tensor) and value.is_floating_point():
            self.shapes[n] = tuple(value.shape)
        return value


def shapes_of(recorder: ShapeRecorder, images: Tensor) -> dict[fx.Node, tuple[int, ...]]:
    """Run the recorder on two images (2, 3, H, W) and return the shapes.

    Raises:
        InputError: the graph does not run.
    """
    try:
        recorder.run(images)
    except Exception as error:
        problem = "its traced graph does not run as the net does, so it cannot be cut"
        raise InputError("arch", getattr(recorder.module, "label", type(recorder.module).__name__), problem) from error
    return recorder.shapes


def _kinds(
    net: NormalisedNet, traced: Trace, live: Liveness, shapes: dict[fx.Node, tuple[int, ...]]
) -> dict[str, tuple[Kind, tuple[int, ...]]]:
    """Module path → kind and shape, for every valid cut whose value is a batch of floating-point tensors."""
    channels_last = getattr(net.net, "output_fmt", "NCHW") == "NHWC"
    found: dict[str, tuple[Kind, tuple[int, ...]]] = {}
    for path in valid_modules(traced, live):
        batch, *rest = shapes.get(traced.outputs[path], (0,))
        if batch == 2 and 1 <= len(rest) <= 3:
            found[path] = (_kind(tuple(rest), channels_last), tuple(rest))
    return found


def _kind(shape: tuple[int, ...], channels_last: bool) -> Kind:
    """Images are square, so two equal sides are spatial; where all three are equal the net's format decides."""
    if len(shape) == 1:
        return "vector"
    if len(shape) == 2:
        return "token"
    last = shape[0] == shape[1] and (shape[1] != shape[2] or channels_last)
    return "token" if last else "conv"


def _check_chain(net: NormalisedNet, chain: CutNet, images: Tensor, expected: Tensor) -> None:
    """The chain must give the net's logits, and no segment may write into its input."""
    z = images
    for segment in chain.segments:
        before = z.clone()
        after = segment(z)
        if not torch.equal(z, before):
            raise InputError("arch", net.label, "a module of it overwrites its input, so it cannot be cut there")
        if not bool(torch.isfinite(after).all()):
            raise InputError("arch", net.label, "computes NaN or infinite values inside from images in [0, 1]")
        z = after
    if not torch.allclose(z, expected, rtol=0, atol=TOLERANCE * max(1.0, float(expected.abs().max()))):
        raise InputError("arch", net.label, "its traced graph does not reproduce its outputs, so it cannot be cut")

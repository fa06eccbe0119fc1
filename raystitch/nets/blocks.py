"""Choose stitch points when the user names none (METHOD §6): after nonlinearities in CNNs, block ends in transformers.

Rules, the first that applies:

1. residual nets with ``layer1``, ``layer2``, …: the stem's activation and block ends (with four stages, the first and
   the last block of each);
2. nets of numbered blocks (``blocks.3``, ``stages.1.blocks.0``, ``s2.b1``): block ends; with tokens then the pooled vector
   before the classifier, in convolutional ones first the stem's activation;
3. plain convolutional nets such as VGG: the first activation, and the one before each pooling and before the head;
4. any other net: every module with parts at which the net can be cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from raystitch.nets.liveness import Liveness
from raystitch.nets.tracing import Trace, inner_path

MANY = 16
"""More block ends than this are thinned to the first and last of each stage."""

_EVENLY = 12
"""How many are left where there are no stages to speak of."""

_BETWEEN = {"stem", "patch_embed", "downsample", "head", "pre_logits"}

WIDE = 768
"""Embedding width (ViT-B) from which only every second transformer block is a point."""


@dataclass(frozen=True)
class Candidates:
    """All modules at which a net can be cut.

    Attributes:
        net: the user's net.
        traced: its graph.
        live: its liveness.
        kinds: module path → kind and shape of its output, in execution order; only valid cuts.
    """

    net: nn.Module
    traced: Trace
    live: Liveness
    kinds: Mapping[str, tuple[str, tuple[int, ...]]]


def choose_modules(found: Candidates) -> list[str]:
    """Return module paths in execution order, each a different value."""
    chosen = _residual(found) or _blocks(found) or _activations(found) or _any_parts(found)
    by_value = {found.traced.outputs[path]: path for path in reversed(chosen)}
    return sorted(by_value.values(), key=lambda path: found.live.order[found.traced.outputs[path]])


def _residual(found: Candidates) -> list[str]:
    children = found.net.named_children()
    stages = {name: stage for name, stage in children if re.fullmatch(r"layer[1-9]\d*", name)}
    groups = [
        [path for i, _ in stage.named_children() if (path := f"{name}.{i}") in found.kinds]
        for name, stage in stages.items()
    ]
    if len(groups) < 2 or not all(groups):
        return []
    blocks = _first_and_last(groups) if len(groups) == 4 else [path for group in groups for path in group]
    return [*_stem(found, blocks[0]), *blocks]


def _blocks(found: Candidates) -> list[str]:
    blocks = _innermost_blocks(found)
    if not blocks:
        return []
    kind, shape = found.kinds[blocks[0]]
    stages = [list(group) for _, group in groupby(blocks, key=lambda path: path.rpartition(".")[0])]
    if kind == "conv":
        return [*_stem(found, blocks[0]), *_thinned(blocks, stages)]
    if len(stages) == 1:
        # one column of equal blocks: METHOD §6 has all 12 of ViT-Tiny, and blocks 1, 3, …, 11 of ViT-B
        step = max(2 if shape[-1] >= WIDE else 1, -(-len(blocks) // 12))
        return [*blocks[::step], *_pooled(found)]
    return [*_thinned(blocks, stages), *_pooled(found)]


def _innermost_blocks(found: Candidates) -> list[str]:
    """Numbered modules with parts. Where some hold a skip connection, their class is the unit, else the innermost."""
    parts = [path for path in _parts(found) if any(map(str.isdigit, path.rpartition(".")[2]))]
    skipping = [path for path in parts if _holds_skip(found, path)]
    units = {type(found.net.get_submodule(p)) for p in skipping if not any(_inside(q, p) for q in skipping)}
    outer = [path for path in parts if type(found.net.get_submodule(path)) in units]
    parts = [path for path in parts if not any(_inside(path, unit) for unit in outer)]
    return [path for path in parts if not any(_inside(other, path) for other in parts)]


def _activations(found: Candidates) -> list[str]:
    """The first activation and each that closes a stage: the last before the resolution falls or the head begins."""
    acts = [path for path, (kind, _) in found.kinds.items() if kind == "conv" and _is_activation(found, path)]
    if len(acts) < 2:
        return []
    sizes = [found.kinds[path][1][1:] for path in acts]
    closing = [path for path, size, later in zip(acts, sizes, [*sizes[1:], None], strict=True) if size != later]
    return [acts[0], *(path for path in closing if path != acts[0])]


def _any_parts(found: Candidates) -> list[str]:
    parts = _parts(found)
    inner = [path for path in parts if not any(_inside(other, path) for other in parts)]
    return inner or [path for path in found.kinds if _is_activation(found, path)]


def _stem(found: Candidates, first_block: str) -> list[str]:
    """The last activation before the first block."""
    outputs, order = found.traced.outputs, found.live.order
    place = order[outputs[first_block]]
    before = [
        path
        for path in found.kinds
        if order[outputs[path]] < place and not _inside(path, first_block) and _is_activation(found, path)
    ]
    return before[-1:]


def _pooled(found: Candidates) -> list[str]:
    """The pooled vector: the last before the classifier (the last step with weights); of equal values, the first."""
    outputs, order = found.traced.outputs, found.live.order
    classifier = max((place for node, place in order.items() if _has_weights(found, node)), default=0)
    vectors = [p for p, (kind, _) in found.kinds.items() if kind == "vector" and order[outputs[p]] < classifier]
    computing = [path for path in vectors if not isinstance(found.net.get_submodule(path), (nn.Identity, nn.Dropout))]
    return computing[-1:] or vectors[:1]


def _thinned(blocks: Sequence[str], stages: Sequence[Sequence[str]]) -> Sequence[str]:
    """At most :data:`MANY`: the first and last block of each stage, or evenly spaced ones where that makes no sense."""
    if len(blocks) <= MANY:
        return blocks
    ends = _first_and_last(stages)
    if len(stages) > 1 and len(ends) <= MANY:
        return ends
    return [blocks[round(k * (len(blocks) - 1) / (_EVENLY - 1))] for k in range(_EVENLY)]


def _first_and_last(stages: Sequence[Sequence[str]]) -> list[str]:
    return [path for stage in stages for path in dict.fromkeys((stage[0], stage[-1]))]


def _parts(found: Candidates) -> list[str]:
    """Modules made of modules, outside the stem, the head and the steps between stages, whose output is no vector."""
    return [
        path
        for path, (kind, _) in found.kinds.items()
        if kind != "vector" and _has_parts(found.net.get_submodule(path)) and not _BETWEEN & set(path.split("."))
    ]


def _has_parts(module: nn.Module) -> bool:
    return not isinstance(module, _BatchNorm) and any(True for _ in module.children())


def _has_weights(found: Candidates, node: fx.Node) -> bool:
    if node.op != "call_module":
        return False
    return any(True for _ in found.net.get_submodule(inner_path(str(node.target))).parameters())


def _is_activation(found: Candidates, path: str) -> bool:
    module = found.net.get_submodule(path)
    if isinstance(module, _BatchNorm):  # timm fuses BatchNorm with its activation in one module
        return not isinstance(getattr(module, "act", nn.Identity()), nn.Identity)
    return type(module).__module__ in ("torch.nn.modules.activation", "timm.layers.activations")


def _holds_skip(found: Candidates, path: str) -> bool:
    """Whether some value computed inside the module is crossed by another."""

    def crossed(node: fx.Node, scope: str) -> bool:
        return node in found.live.crossing and (scope == path or _inside(scope, path))

    return path in found.traced.leaves or any(crossed(node, scope) for node, scope in found.traced.scopes.items())


def _inside(path: str, outer: str) -> bool:
    return path.startswith(f"{outer}.")

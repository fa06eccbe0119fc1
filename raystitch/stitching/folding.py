"""A faster equivalent of a frozen net, for passes that are repeated thousands of times.

Equal up to float rounding, so it serves while a stitch is trained; evaluation uses the net itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.fx.experimental.optimization import fuse
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from raystitch.stitching.frozen import private_copy

if TYPE_CHECKING:
    from raystitch.nets import CutNet


def folded_copy(net: CutNet) -> CutNet:
    """A private copy whose BatchNorm layers are folded into the convolutions before them, where a segment is a graph.

    On the CPU the weights lie in channels-last order, which its convolutions prefer.
    """
    twin = private_copy(net)
    twin.segments = nn.ModuleList(map(_fold, twin.segments))
    twin.eval().requires_grad_(False)
    on_cpu = all(parameter.device.type == "cpu" for parameter in twin.parameters())
    return twin.to(memory_format=torch.channels_last) if on_cpu else twin


def _fold(segment: nn.Module) -> nn.Module:
    """Fold one segment; one that uses a convolution or BatchNorm layer twice cannot be folded and stays as it is."""
    if not isinstance(segment, fx.GraphModule):
        return segment
    layers = dict(segment.named_modules())
    calls = Counter(id(layers[str(node.target)]) for node in segment.graph.nodes if node.op == "call_module")
    if any(calls[id(layer)] > 1 for layer in layers.values() if isinstance(layer, (_ConvNd, _BatchNorm))):
        return segment
    return fuse(segment, inplace=True, no_trace=True)

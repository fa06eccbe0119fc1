"""A faster equivalent of a frozen net: BatchNorm folded into the convolutions before it, a third less work.

Equal up to float rounding, so it serves where passes are repeated thousands of times: inverting a representation, training a
stitch, attacking. The r of an IRI is that of the copy, within 1e-6 of the net's; scores are measured on the net itself.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import fx, nn
from torch.fx.experimental.optimization import fuse
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from raystitch.nets.cut import CutNet
from raystitch.nets.freeze import deep_copy, freeze


def fold_batchnorm(net: CutNet) -> CutNet:
    """A frozen copy of a frozen chain in which every BatchNorm that follows a convolution is part of it.

    The given chain stays as it is and shares no memory with the copy, whose weights lie in channels-last order on the CPU.
    Segments that were not made by :func:`~raystitch.nets.cut` are copied as they are.

    Raises:
        ValueError: a BatchNorm is in train mode, where it is not an affine map.
        InputError: something in the chain cannot be copied.
    """
    if any(layer.training for layer in net.modules() if isinstance(layer, _BatchNorm)):
        raise ValueError("only a frozen net can be folded: call freeze() first")
    twin = deep_copy(net)
    twin.segments = nn.ModuleList(map(_fold, twin.segments))
    freeze(twin)
    for tensor in (*twin.parameters(), *twin.buffers()):
        if tensor.device.type == "cpu" and tensor.dim() == 4:
            tensor.data = tensor.contiguous(memory_format=torch.channels_last)
    return twin


def _fold(segment: nn.Module) -> nn.Module:
    """Fold one segment; one that uses a convolution or BatchNorm layer twice cannot be folded and stays as it is."""
    if not isinstance(segment, fx.GraphModule):
        return segment
    layers = dict(segment.named_modules())
    calls = Counter(id(layers[str(node.target)]) for node in segment.graph.nodes if node.op == "call_module")
    if any(calls[id(layer)] > 1 for layer in layers.values() if isinstance(layer, (_ConvNd, _BatchNorm))):
        return segment
    return fuse(segment.eval(), inplace=True, no_trace=True)

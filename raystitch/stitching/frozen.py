"""Private copies of frozen nets: fitting a stitch can neither change a given net nor leave it in another mode.

A copy has the net's parameters (the same memory, without gradients) and its own buffers, so BatchNorm statistics can
move in the copy alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from raystitch.nets.freeze import deep_copy

NetT = TypeVar("NetT", bound=nn.Module)


def private_copy(net: NetT, device: str | torch.device | None = None) -> NetT:
    """A copy in eval mode, free of gradients, on ``device`` (``None``: where it is).

    On the same device its parameters share the net's memory. The given net is left as it is.

    Raises:
        InputError: something in the net cannot be copied.
    """
    memo: dict[int, object] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in net.parameters()}
    twin = deep_copy(net, memo).eval()
    return twin if device is None else twin.to(device)


def use_batch_statistics(net: nn.Module, move: bool) -> None:
    """Let the BatchNorm layers of a private copy normalise by batch statistics; everything else stays in eval mode.

    Args:
        net: a private copy.
        move: whether the running statistics follow, as in training, or stay where they are.
    """
    for layer in _batchnorms([net]):
        layer.training = True  # not train(): a layer that BatchNorm contains, such as dropout, stays frozen
        layer.track_running_stats = move


def moves(modules: Iterable[nn.Module]) -> bool:
    """Whether running one of the modules would move BatchNorm statistics."""
    return any(layer.training and layer.track_running_stats for layer in _batchnorms(modules))


def _batchnorms(modules: Iterable[nn.Module]) -> list[_BatchNorm]:
    return [layer for module in modules for layer in module.modules() if isinstance(layer, _BatchNorm)]

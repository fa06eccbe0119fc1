"""A prefix whose gradient does not die where its ReLUs are off.

The gradient of a ReLU is zero wherever its input is negative, so a search that starts from noise gets no word from the units
that are off and should be on. A leaky backward pass (the surrogate gradients of spiking nets: Neftci et al. 2019) tells them.
The forward pass, and so every representation and every residual, stays exactly that of the net.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import once_differentiable

from raystitch.nets.cut import CutNet

INNER_SLOPE, LAST_SLOPE = 0.2, 0.5
"""Slopes below zero at full strength, of all ReLUs and of the one that runs last: see the study in docs/inversion.md."""

Slope = float | Tensor


class _LeakyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Slope) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        ctx.slope = slope
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        if isinstance(ctx.slope, Tensor):
            slope = ctx.slope.to(grad.dtype).reshape(-1, *[1] * (grad.dim() - 1))
            return torch.where(y > 0, grad, grad * slope), None
        return torch.ops.aten.leaky_relu_backward(grad, y, ctx.slope, False), None


class SoftReLU(nn.Module):
    """ReLU whose backward pass lets ``slope`` times the gradient through where the unit is off.

    Attributes:
        slope: 0 … 1, for the whole batch or one for each image (B,).
    """

    slope: Slope = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """x (B, …) → max(x, 0)."""
        softened = isinstance(self.slope, Tensor) or self.slope > 0
        out: Tensor = _LeakyBackward.apply(x, self.slope) if softened else torch.relu(x)
        return out


class SoftPrefix:
    """Images (B, 3, H, W) in [0, 1] → representation at a point, with ReLUs that can be softened backwards.

    Shares the net's parameters and leaves the net as it is. Activations other than ReLU keep their own gradients.

    Args:
        net: a frozen chain.
        point: 1 … net.n.
    """

    def __init__(self, net: CutNet, point: int) -> None:
        self._segments = [_with_soft_relus(segment) for segment in net.segments[:point]]
        self._relus = [
            layer for segment in self._segments for layer in segment.modules() if isinstance(layer, SoftReLU)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) in [0, 1] → representation (B, …), exactly the net's."""
        for segment in self._segments:
            x = segment(x)
        return x

    def soften(self, strength: float | Tensor) -> None:
        """Let gradient through where ReLUs are off: from 0, the true gradient, to 1; one for all images or one each (B,)."""
        for layer in self._relus[:-1]:
            layer.slope = INNER_SLOPE * strength
        for layer in self._relus[-1:]:
            layer.slope = LAST_SLOPE * strength


def _with_soft_relus(segment: nn.Module) -> nn.Module:
    """The segment with its ReLUs replaced, in the order in which they run; it shares all other layers."""
    if not isinstance(segment, fx.GraphModule):
        return segment
    twin = fx.GraphModule(segment, copy.deepcopy(segment.graph))
    relus = [node for node in twin.graph.nodes if _is_relu(twin, node)]
    for number, node in enumerate(relus):
        name = f"soft_relu_{number}"
        twin.add_submodule(name, SoftReLU())
        with twin.graph.inserting_before(node):
            soft = twin.graph.call_module(name, (node.args[0] if node.args else node.kwargs["input"],))
        node.replace_all_uses_with(soft)
        twin.graph.erase_node(node)
    twin.delete_all_unused_submodules()
    twin.recompile()
    return twin.eval()


def _is_relu(module: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))) is nn.ReLU
    if node.op == "call_function":
        return node.target in (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)
    return node.op == "call_method" and node.target in ("relu", "relu_")

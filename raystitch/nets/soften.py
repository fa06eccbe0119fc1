"""A prefix whose gradient does not die where its ReLUs are off.

The gradient of a ReLU is zero wherever its input is negative, so a search that starts from noise gets no word from the units
that are off and should be on. A leaky backward pass (the surrogate gradients of spiking nets: Neftci et al. 2019) tells them.
The forward pass, and so every representation and every residual, stays exactly that of the net.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from raystitch.nets.cut import CutNet

INNER_SLOPE, LAST_SLOPE = 0.2, 0.5
"""Slopes below zero at full strength, of all ReLUs and of the one that runs last: see the study in docs/inversion.md."""


class _LeakyBackward(torch.autograd.Function):
    """ReLU with a slope below zero that is seen backwards only: one for all images, or a tensor that broadcasts."""

    @staticmethod
    def forward(x: Tensor, slope: float | Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        slope = inputs[1]
        tensors = (slope,) if isinstance(slope, Tensor) else ()
        ctx.save_for_backward(output, *tensors)
        ctx.slope = None if tensors else slope

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, *tensors = ctx.saved_tensors
        if tensors:  # 1 where y > 0, else the slope; compiled masks of bool are slow
            return grad * torch.maximum(torch.sign(y), tensors[0].to(grad.dtype)), None
        return torch.ops.aten.leaky_relu_backward(grad, y, ctx.slope, False), None


def soft_relu(x: Tensor, slope: float | Tensor) -> Tensor:
    """x (B, …) → max(x, 0); backwards, ``slope`` times the gradient passes where x is not positive.

    Args:
        x: any float tensor.
        slope: 0 … 1, for the whole batch or one for each image (B,).
    """
    if isinstance(slope, Tensor):
        slope = slope.reshape(-1, *[1] * (x.dim() - 1))
    elif slope == 0:
        return torch.relu(x)
    soft: Tensor = _LeakyBackward.apply(x, slope)
    return soft


class SoftPrefix:
    """Images (B, 3, H, W) in [0, 1] → representation at a point, with ReLUs that can be softened backwards.

    Shares the net's parameters and leaves the net as it is. Activations other than ReLU keep their own gradients.

    Args:
        net: a frozen chain.
        point: 1 … net.n.
    """

    def __init__(self, net: CutNet, point: int) -> None:
        segments = list(net.segments)[:point]
        self._softened = [bool(_relus(segment)) for segment in segments]
        last = max((place for place, soft in enumerate(self._softened) if soft), default=None)
        self._segments = [
            _with_soft_relus(segment, place == last) if soft else segment
            for place, (segment, soft) in enumerate(zip(segments, self._softened, strict=True))
        ]

    def __call__(self, x: Tensor, strength: float | Tensor = 0.0) -> Tensor:
        """The representation (B, …), exactly the net's.

        Args:
            x: images.
            strength: of the gradient that passes where ReLUs are off, from 0, none, to 1; for the whole batch or one for each
                image (B,).
        """
        slopes = INNER_SLOPE * strength, LAST_SLOPE * strength
        for segment, soft in zip(self._segments, self._softened, strict=True):
            x = segment(x, *slopes) if soft else segment(x)
        return x


def _with_soft_relus(segment: nn.Module, last: bool) -> nn.Module:
    """The segment with its ReLUs replaced; it takes their slope and, for its last one if ``last``, that of another.

    It shares all other layers.
    """
    twin = fx.GraphModule(segment, copy.deepcopy(cast(fx.GraphModule, segment).graph))
    (images,) = (node for node in twin.graph.nodes if node.op == "placeholder")
    with twin.graph.inserting_after(images):
        last_slope = twin.graph.placeholder("last_slope")
        slope = twin.graph.placeholder("slope")
    relus = _relus(twin)
    for relu in relus:
        with twin.graph.inserting_before(relu):
            x = relu.args[0] if relu.args else relu.kwargs["input"]
            own = last_slope if last and relu is relus[-1] else slope
            soft = twin.graph.call_function(soft_relu, (x, own))
        relu.replace_all_uses_with(soft)
        twin.graph.erase_node(relu)
    twin.delete_all_unused_submodules()
    twin.recompile()
    return twin.eval()


def _relus(segment: nn.Module) -> list[fx.Node]:
    """In the order in which they run."""
    if not isinstance(segment, fx.GraphModule):
        return []
    return [node for node in segment.graph.nodes if _is_relu(segment, node)]


def _is_relu(module: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))) is nn.ReLU
    if node.op == "call_function":
        return node.target in (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)
    return node.op == "call_method" and node.target in ("relu", "relu_")

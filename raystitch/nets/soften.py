"""A prefix whose gradient does not die where its ReLUs are off.

The gradient of a ReLU is zero wherever its input is negative, so a search that starts from noise gets no word from the units
that are off and should be on, and none that a unit which is on by little may go off. A surrogate gradient (those of spiking
nets: Neftci, Mostafa & Zenke 2019) tells it: backwards the step from 0 to 1 is as wide as a share of what inputs are on
noise, and it narrows to nothing in the end. A ReLU6, whose gradient dies at 6 as well, has two such steps. The forward pass,
and so every representation and every residual, stays exactly that of the net.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from raystitch.nets.cut import CutNet
from raystitch.nets.tracing import altered

INNER_WIDTH, LAST_WIDTH = 0.4, 1.0
"""Of the step at full strength, against the scale of a ReLU's inputs: of all ReLUs, and of the one that runs last. See the
study in docs/inversion.md."""
CALIBRATION = 16
"""Images of noise by which scales are measured."""
_TINY = 1e-30  # far below any input; a normal number in bfloat16 too


class _Softened(torch.autograd.Function):
    """ReLU whose steps are soft backwards; the width is one for all images, or a tensor that broadcasts."""

    @staticmethod
    def forward(x: Tensor, width: float | Tensor, ceiling: float) -> Tensor:
        return _clipped(x, ceiling)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, width, ctx.ceiling = inputs
        tensors = (width,) if isinstance(width, Tensor) else ()
        ctx.save_for_backward(x, *tensors)
        ctx.width = None if tensors else width

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, *tensors = ctx.saved_tensors
        width = tensors[0].to(x.dtype) if tensors else ctx.width
        if ctx.ceiling < math.inf:
            x = torch.minimum(x, ctx.ceiling - x)
        x = x - _TINY  # nothing passes at 0 when the width is 0
        return (0.5 + 0.5 * x / (x.abs() + width)) * grad, None, None  # in the layout of x


def soft_relu(x: Tensor, width: float | Tensor, ceiling: float = math.inf) -> Tensor:
    """x (B, …) → min(max(x, 0), ceiling); backwards, the gradient is multiplied by ½ (1 + u / (|u| + ``width``)).

    There u is the distance to where the gradient dies: x, or ceiling − x if that is less.

    Args:
        x: any float tensor.
        width: ≥ 0, for the whole batch or one for each image (B,); at 0 the gradient is that of the ReLU.
        ceiling: 6 for a ReLU6.
    """
    if isinstance(width, Tensor):
        width = width.reshape(-1, *[1] * (x.dim() - 1))
    elif width == 0:
        return _clipped(x, ceiling)
    soft: Tensor = _Softened.apply(x, width, ceiling)
    return soft


def _clipped(x: Tensor, ceiling: float) -> Tensor:
    return torch.relu(x) if ceiling == math.inf else nn.functional.hardtanh(x, 0.0, ceiling)


class _SoftReLU(nn.Module):
    """The same, its width a share of a scale, by default 1; hard if its inputs do not come image by image."""

    def __init__(self, ceiling: float) -> None:
        super().__init__()
        self.ceiling, self.scale, self.hard = ceiling, 1.0, False

    def forward(self, x: Tensor, share: float | Tensor) -> Tensor:
        return _clipped(x, self.ceiling) if self.hard else soft_relu(x, share * self.scale, self.ceiling)

    def measure(self, x: Tensor, images: int) -> None:
        """Take the root mean square of the inputs of so many images for the scale, if they are finite."""
        scale = float(x.float().square().mean().sqrt())
        self.scale = scale if math.isfinite(scale) else 1.0
        self.compare(x, images)

    def compare(self, x: Tensor, images: int) -> None:
        """Be hard from now on, unless the inputs of so many images come one for each."""
        self.hard |= x.dim() == 0 or len(x) != images


class SoftPrefix:
    """Images (B, 3, H, W) in [0, 1] → representation at a point, with ReLUs that can be softened backwards.

    Shares the net's parameters and leaves the net as it is. Activations other than ReLU and ReLU6 keep their own gradients, and
    so do ReLUs with hooks and, once calibrated, those whose inputs have no dimension of images at the front: windows that were
    folded into the batch, tokens before images.

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
            strength: how soft the steps are, from 0, not at all, to 1; for the whole batch or one for each image (B,).
        """
        widths = INNER_WIDTH * strength, LAST_WIDTH * strength
        for segment, soft in zip(self._segments, self._softened, strict=True):
            x = segment(x, *widths) if soft else segment(x)
        return x

    @torch.no_grad()
    def calibrate(self, shape: Sequence[int], device: torch.device) -> None:
        """Measure what the inputs of each ReLU are, on noise of its own, so that widths fit the net, image by image.

        Args:
            shape: of an image, (3, H, W).
            device: of the net.
        """
        relus = [layer for part in self._segments for layer in part.modules() if isinstance(layer, _SoftReLU)]
        if not relus:
            return
        noise = torch.rand(CALIBRATION, *shape, generator=torch.Generator().manual_seed(0)).to(device)
        self._watch(relus, noise, _SoftReLU.measure)
        self._watch(
            relus, noise[:1], _SoftReLU.compare
        )  # of one batch the number of tokens could happen to be the same

    def _watch(self, relus: Sequence[_SoftReLU], images: Tensor, see: Callable[[_SoftReLU, Tensor, int], None]) -> None:
        """Run images, and let each ReLU see its inputs."""
        hooks = [relu.register_forward_pre_hook(lambda relu, given: see(relu, given[0], len(images))) for relu in relus]
        SoftPrefix.__call__(self, images)
        for hook in hooks:
            hook.remove()


def _with_soft_relus(segment: nn.Module, last: bool) -> nn.Module:
    """The segment with its ReLUs replaced; it takes their width and, for its last one if ``last``, that of another.

    It shares all other layers.
    """
    twin = fx.GraphModule(segment, copy.deepcopy(cast(fx.GraphModule, segment).graph))
    (images,) = (node for node in twin.graph.nodes if node.op == "placeholder")
    with twin.graph.inserting_after(images):
        last_width = twin.graph.placeholder("last_width")
        width = twin.graph.placeholder("width")
    relus = _relus(twin)
    for place, (relu, ceiling) in enumerate(relus.items()):
        twin.add_submodule(f"raystitch_soft_relu_{place}", _SoftReLU(ceiling))
        with twin.graph.inserting_before(relu):
            x = relu.args[0] if relu.args else relu.kwargs["input"]
            own = last_width if last and place == len(relus) - 1 else width
            soft = twin.graph.call_module(f"raystitch_soft_relu_{place}", (x, own))
        relu.replace_all_uses_with(soft)
        twin.graph.erase_node(relu)
    twin.delete_all_unused_submodules()
    twin.recompile()
    return twin.eval()


_CEILINGS: dict[Any, float] = {
    **dict.fromkeys(
        (nn.ReLU, torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_, "relu", "relu_"), math.inf
    ),
    **dict.fromkeys((nn.ReLU6, nn.functional.relu6), 6.0),
}


def _relus(segment: nn.Module) -> dict[fx.Node, float]:
    """Each with its ceiling, in the order in which they run."""
    if not isinstance(segment, fx.GraphModule):
        return {}
    found = {node: _CEILINGS.get(_kind(segment, node)) for node in segment.graph.nodes}
    return {node: ceiling for node, ceiling in found.items() if ceiling is not None}


def _kind(module: fx.GraphModule, node: fx.Node) -> Any:
    """What a node is: the type of a layer, a function, or the name of a method."""
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        return None if altered(layer) else type(layer)
    return node.target if node.op in ("call_function", "call_method") else None

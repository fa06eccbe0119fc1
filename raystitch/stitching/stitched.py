"""The stitched net h as one module: what a stitch's gradients, attacks and evaluations run through (METHOD §1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from raystitch.stitching.stitch import Stitch

if TYPE_CHECKING:
    from raystitch.nets import CutNet


class StitchedNet(nn.Module):
    """h(x) = g>j(T(f≤i(x))): images (B, 3, H, W) in [0, 1] on the stitch's device → logits (B, C), differentiable.

    Made of the given parts, not of copies; each runs in the mode that it has.

    Args:
        front: front model f, cut.
        stitch: T.
        end: end model g, cut.
        front_point: i, from 1.
        end_point: j, from 1.
    """

    def __init__(self, front: CutNet, stitch: Stitch, end: CutNet, front_point: int, end_point: int) -> None:
        super().__init__()
        self.front, self.stitch, self.end = front, stitch, end
        self.front_point, self.end_point = front_point, end_point

    def forward(self, images: Tensor) -> Tensor:
        """h(x)."""
        z: Tensor = self.stitch(self.front.run(images, 0, self.front_point))
        return self.end.run(z, self.end_point, self.end.n + 1)

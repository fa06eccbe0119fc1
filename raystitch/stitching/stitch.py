"""The stitch T: an affine map that brings a representation of the front to the shape of one of the end's (METHOD §4).

A stitch is made from two points alone, so an impossible pair is refused before any net has run. Maps between unlike
kinds (conv to token, …) and between different token counts are refused, never guessed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raystitch.errors import InputError

if TYPE_CHECKING:
    from raystitch.nets import Point


class Stitch(nn.Module):
    """Affine map ``z ↦ A z + b``, one for all positions of an image or all tokens; made by :func:`make_stitch`.

    Args:
        in_features: channels (conv) or width (token, vector) of the front's representation.
        out_features: the same of the end's.
        conv: the channels are the first dimension after the batch, (B, C, H, W); otherwise the last, (B, …, D).
        size: (H, W) to which a conv representation is resized first; ``None`` where it has the end's size already.
    """

    def __init__(self, in_features: int, out_features: int, conv: bool, size: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.conv, self.size = conv, size
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def matrix(self) -> Tensor:
        """A, (out, in); detached from the graph, sharing memory with the parameter."""
        return self.weight.detach()

    def resize(self, z: Tensor) -> Tensor:
        """The part without parameters: bilinear resize of (B, C, H, W) to the end's H×W; anything else is unchanged."""
        if self.size is None:
            return z
        return F.interpolate(z, size=self.size, mode="bilinear", align_corners=False, antialias=False)

    def apply_affine(self, z: Tensor) -> Tensor:
        """The trainable part, on an already resized representation."""
        if self.conv:
            return F.conv2d(z, self.weight[:, :, None, None], self.bias)
        return F.linear(z, self.weight, self.bias)

    def forward(self, z: Tensor) -> Tensor:
        """Map the front's representation (B, *front shape) to (B, *end shape)."""
        return self.apply_affine(self.resize(z))

    def rows(self, z: Tensor) -> Tensor:
        """Every position of a representation as one row, (rows, features): what A acts on."""
        return z.movedim(1, -1).flatten(0, -2) if self.conv else z.flatten(0, -2)


def make_stitch(front: Point, end: Point, where: str = "") -> Stitch:
    """The stitch from one point to another, all zeros until :func:`~raystitch.stitching.initialise` fills it.

    conv→conv: bilinear resize if H×W differ, then a 1×1 convolution. token→token: one linear map shared by the tokens.
    vector→vector: one linear map.

    Args:
        front: point of the front model.
        end: point of the end model.
        where: what an error should name, for example a setting and its pair of points.

    Raises:
        InputError: the two kinds differ, or the token layouts do.
    """
    where = where or "stitch"
    pair = f"{front.module} {front.kind} {front.shape} → {end.module} {end.kind} {end.shape}"
    if front.kind != end.kind:
        raise InputError(where, pair, f"a {front.kind} point cannot be stitched to a {end.kind} point; pair like kinds")
    if front.kind == "conv":
        size = (end.shape[1], end.shape[2])
        return Stitch(front.shape[0], end.shape[0], conv=True, size=None if size == front.shape[1:] else size)
    if front.shape[:-1] != end.shape[:-1]:
        raise InputError(where, pair, f"the front's tokens ({_tokens(front)}) are not the end's ({_tokens(end)})")
    return Stitch(front.shape[-1], end.shape[-1], conv=False)


def _tokens(point: Point) -> str:
    layout = "×".join(map(str, point.shape[:-1]))
    return layout if len(point.shape) <= 2 else f"{layout} = {math.prod(point.shape[:-1])}"

"""The stitch T: a map that brings a representation of the front to the shape of one of the end's (METHOD §4).

One map of features, shared by all positions, does what can be learnt between like kinds; positions are resized where they
differ. Between unlike kinds a trainable linear map over the positions comes before it. A stitch is made from two points
alone, so an impossible pair is refused before any net has run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raystitch.config import StitchConfig
from raystitch.errors import InputError
from raystitch.stitching.channels import ChannelMap, Same, make_channels
from raystitch.stitching.layout import connected, layout_map, layout_of

if TYPE_CHECKING:
    from raystitch.nets import Point

AFFINE = StitchConfig()
"""The stitch of the method."""


class Stitch(nn.Module):
    """A map from one representation to another; made by :func:`make_stitch`.

    Args:
        front: the front's point.
        end: the end's point.
        channels: the map of features.

    Attributes:
        channels: the map of features, one for all positions.
        mix: M (end positions, front positions), trainable, between unlike kinds that are not merely rearranged; starts as
            :func:`~raystitch.stitching.layout.layout_map`. Otherwise ``None``.
    """

    _resize: Tensor | None
    _place: Tensor

    def __init__(self, front: Point, end: Point, channels: ChannelMap) -> None:
        super().__init__()
        self.channels, self._front, self._end = channels, front, end
        self._conv = front.kind == end.kind == "conv"
        before, after = layout_of(front), layout_of(end)
        same = before == after or front.shape[:-1] == end.shape[:-1]
        mixed = front.kind != end.kind and not isinstance(channels, Same)
        self.mix = nn.Parameter(layout_map(before, after)) if mixed else None
        self.register_buffer("_resize", None if same or mixed or self._conv else layout_map(before, after), False)
        self.register_buffer("_place", torch.empty(0), False)

    @property
    def matrix(self) -> Tensor | None:
        """A (out, in) of the map of features, detached; ``None`` if that is not affine."""
        return self.channels.matrix

    @property
    def device(self) -> torch.device:
        """Where the stitch computes."""
        return self._place.device

    def resize(self, z: Tensor) -> Tensor:
        """The part without parameters: (B, *front shape) → what :meth:`apply` takes.

        conv→conv: bilinear resize to the end's H×W. token→token: the same for tokens on a grid, (B, tokens, D). Unlike kinds:
        (B, positions, D). Where nothing differs, ``z`` itself.
        """
        if self._conv:
            size = self._end.shape[1:]
            return z if z.shape[2:] == size else F.interpolate(z, size=size, mode="bilinear", align_corners=False)
        if self._front.kind != self._end.kind:
            return _positions(z, self._front)
        return z if self._resize is None else self._resize @ _positions(z, self._front)

    def apply_trainable(self, z: Tensor) -> Tensor:
        """The trainable part, on an already resized representation: M, then the map of features."""
        if self._conv:
            mapped: Tensor = self.channels(z, conv=True)
            return mapped
        z = self.channels(self._mixed(z), conv=False)
        return (z.transpose(1, 2) if self._end.kind == "conv" else z).reshape(len(z), *self._end.shape)

    def forward(self, z: Tensor) -> Tensor:
        """Map the front's representation (B, *front shape) to (B, *end shape)."""
        return self.apply_trainable(self.resize(z))

    def rows(self, z: Tensor) -> Tensor:
        """What the map of features acts on: a resized representation's positions, (B·positions, in), M applied."""
        return z.movedim(1, -1).flatten(0, -2) if self._conv else self._mixed(z).flatten(0, -2)

    def end_rows(self, z: Tensor) -> Tensor:
        """A representation of the end in the same order, (B·positions, out)."""
        return z.movedim(1, -1).flatten(0, -2) if self._end.kind == "conv" else z.flatten(0, -2)

    def _mixed(self, z: Tensor) -> Tensor:
        return z if self.mix is None else self.mix @ z


def make_stitch(front: Point, end: Point, where: str = "", config: StitchConfig = AFFINE) -> Stitch:
    """The stitch from one point to another; its map of features is zero until it is initialised.

    Like kinds: conv→conv bilinear resize if H×W differ, then a 1×1 convolution; token→token the same on the grid of patches,
    class tokens to class tokens, one map shared by all tokens; vector→vector one map. Unlike kinds: a linear map over the
    positions, then one map shared by all positions (see :mod:`raystitch.stitching.layout`).

    Args:
        front: point of the front model.
        end: point of the end model.
        where: what an error should name, for example a setting and its pair of points.
        config: what the map of features can express.

    Raises:
        InputError: tokens that lie on no grid would have to be resized; ``identity`` between different shapes; or a rank
            that is no restriction.
    """
    pair = f"{front.module} {front.kind} {front.shape} → {end.module} {end.kind} {end.shape}"
    widths = _width(front), _width(end)
    problem = _why_not(front, end, *widths, config)
    if problem is not None:
        raise InputError(where or "stitch", pair, problem)
    return Stitch(front, end, make_channels(*widths, config))


def _why_not(front: Point, end: Point, in_features: int, out_features: int, config: StitchConfig) -> str | None:
    before, after = layout_of(front), layout_of(end)
    if front.shape[:-1] != end.shape[:-1] and not connected(before, after):
        return f"{before} cannot be brought to {after}: only patches on a square grid can be resized"
    if config.kind == "identity" and (before, in_features) != (after, out_features):
        return "an identity stitch needs equal shapes; use fit.stitch affine here, or pair other points"
    most = min(in_features, out_features)
    if config.rank is not None and config.rank > most:
        return f"fit.stitch has rank {config.rank}, more than these widths allow; use a rank up to {most}, or affine"
    return None


def _width(point: Point) -> int:
    return point.shape[0] if point.kind == "conv" else point.shape[-1]


def _positions(z: Tensor, point: Point) -> Tensor:
    """(B, *shape) → (B, positions, features)."""
    if point.kind == "conv":
        return z.flatten(2).transpose(1, 2)
    return z[:, None] if point.kind == "vector" else z.flatten(1, -2)

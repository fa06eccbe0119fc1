"""Where the positions of a representation lie, and the fixed linear map that brings one layout to another.

A representation is a row of features at each position: first the prefix tokens (class token, registers), then the patches,
row by row. A conv map has patches alone; a vector is one prefix token alone. From layout to layout:

- patches to patches: bilinear resize of the grid, as conv maps are resized;
- prefix token to prefix token: kept in order; of further ones of the end, each takes the front's first;
- patches to a prefix token, where the front has none: their mean;
- a prefix token to patches, where the front has none: the first one, everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from raystitch.nets import Point

MOST_PREFIX_TOKENS = 8
"""More tokens than this beyond a square are no prefix: such tokens have no grid."""


@dataclass(frozen=True)
class Layout:
    """Positions of a representation: ``prefix`` tokens, then ``patches``, on a ``grid`` (rows, columns) if they have one."""

    prefix: int
    patches: int
    grid: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """Number of positions."""
        return self.prefix + self.patches

    def __str__(self) -> str:
        patches = f"{self.grid[0]}×{self.grid[1]} patches" if self.grid else f"{self.patches} tokens without a grid"
        return f"{self.prefix} prefix tokens and {patches}" if self.prefix else patches


def layout_of(point: Point) -> Layout:
    """The layout of a stitch point.

    Images are square, so N tokens are the largest square number of patches up to N, after the rest as prefix tokens. That is
    right as long as these are at most twice the grid's side: 65 = 1 + 8×8, 261 = 5 + 16×16.
    """
    if point.kind == "vector":
        return Layout(1, 0)
    if point.kind == "conv":
        return Layout(0, math.prod(point.shape[1:]), (point.shape[1], point.shape[2]))
    if len(point.shape) == 3:
        return Layout(0, math.prod(point.shape[:2]), (point.shape[0], point.shape[1]))
    count = point.shape[0]
    side = math.isqrt(count)
    prefix = count - side * side
    return Layout(prefix, side * side, (side, side)) if prefix <= MOST_PREFIX_TOKENS else Layout(0, count)


def connected(front: Layout, end: Layout) -> bool:
    """Whether a map from the front's layout to the end's is defined: patches without a grid cannot be resized."""
    return front == end or not (front.patches and end.patches) or None not in (front.grid, end.grid)


def layout_map(front: Layout, end: Layout) -> Tensor:
    """M (end positions, front positions), float32: each position of the end as a mean of the front's; rows sum to 1."""
    if front == end:
        return torch.eye(front.count)
    rows = torch.zeros(end.count, front.count)
    for token in range(end.prefix):
        _fill_prefix(rows[token], token, front)
    if not front.patches:
        rows[end.prefix :, 0] = 1
    elif end.patches:
        rows[end.prefix :, front.prefix :] = _grid_map(front, end)
    return rows


def _fill_prefix(row: Tensor, token: int, front: Layout) -> None:
    if front.prefix:
        row[token if token < front.prefix else 0] = 1
    else:
        row[:] = 1 / front.patches


def _grid_map(front: Layout, end: Layout) -> Tensor:
    """Bilinear resize as a matrix: the two sides are resized one by one."""
    if front.grid is None or end.grid is None:
        return torch.eye(front.patches)
    rows, columns = (_side_map(a, b) for a, b in zip(front.grid, end.grid, strict=True))
    return torch.kron(rows, columns)


def _side_map(before: int, after: int) -> Tensor:
    return F.interpolate(torch.eye(before)[:, None], size=after, mode="linear", align_corners=False)[:, 0].T

"""Which front point is stitched to which end point (METHOD §6)."""

from __future__ import annotations

from raystitch.config import Grid
from raystitch.errors import InputError


def pair_points(grid: Grid, n: int, m: int) -> list[tuple[int, int]]:
    """(front point, end point) pairs of a setting whose front has n points and whose end has m.

    Nets of different depth are paired by rounded linear interpolation (METHOD §6).

    Raises:
        InputError: a point outside 1 … n, or 1 … m.
    """
    if grid.points == "cross":
        return [(i, j) for i in range(1, n + 1) for j in range(1, m + 1)]
    wanted = range(1, n + 1) if grid.points == "all" else grid.points
    pairs = [(p, interpolate(p, n, m)) if isinstance(p, int) else p for p in wanted]
    for i, j in pairs:
        for side, point, count in (("front", i, n), ("end", j, m)):
            if not 1 <= point <= count:
                raise InputError(grid.points_where, point, f"the {side} has stitch points 1 to {count}")
    return list(dict.fromkeys(pairs))


def interpolate(point: int, n: int, m: int) -> int:
    """Point of a net with m points at the same relative depth as ``point`` of a net with n points."""
    return 1 if n == 1 else int(1 + (point - 1) * (m - 1) / (n - 1) + 0.5)

"""``dm_exact``: direct matching solved instead of trained. Its optimum is a linear least-squares problem (METHOD §3).

The affine map with intercept that minimises ‖T(f≤i(x)) − g≤j(x)‖² over all stitching images together, in float64 and one pass
over them; no weight decay, no epochs. A low-rank stitch gets the best map of its rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from raystitch.config import EXACT, why_not_exact
from raystitch.errors import InputError
from raystitch.stitching.moments import InitReport, solve, sum_moments
from raystitch.stitching.stitch import Stitch

Pairs = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Goes over batches of the front's representations, already resized, and the end's."""


def check_exact(stitch: Stitch, kind: str, moving: bool, attacked: bool = False) -> None:
    """Refuse what has no closed-form solution.

    Raises:
        InputError: an mlp; a map over positions that is trained too; or images and nets that change (``moving``, ``attacked``).
    """
    problem = why_not_exact([EXACT], kind, moving)
    if problem is None and stitch.mix is not None:
        problem = "between unlike kinds the map over positions is trained too, which has no closed form; use dm here"
    if problem is None and attacked:
        problem = "is solved, not trained: nothing can be attacked"
    if problem is not None:
        raise InputError("objectives", EXACT, problem)


@torch.no_grad()
def solve_exactly(stitch: Stitch, pairs: Pairs) -> tuple[InitReport, float]:
    """Fill the stitch with the optimum.

    Args:
        stitch: affine, low-rank, or identity, which stays as it is.
        pairs: the stitching images, gone over twice.

    Returns:
        What the centred front representations are like, and ‖z − ẑ‖_F / ‖ẑ‖_F over all images with the stitch as it now is.

    Raises:
        FloatingPointError: a representation holds NaN or infinity.
    """
    channels = stitch.channels
    x0, y0 = (rows.double().mean(0) for rows in next(_rows(stitch, pairs)))
    shifted = ((_with_ones(x - x0), _with_ones(y - y0)) for x, y in _rows(stitch, pairs))
    square, cross = sum_moments(
        shifted, channels.in_features + 1, channels.out_features + 1, stitch.device, "stitching"
    )
    count = square[-1, -1]
    x_mean, y_mean = square[-1, :-1] / count, cross[-1, :-1] / count
    square, cross = (m[:-1, :-1] - count * torch.outer(x_mean, mean) for m, mean in ((square, x_mean), (cross, y_mean)))
    matrix, report = solve(square, cross, channels.most_rank)
    channels.set_affine(matrix, y_mean + y0.cpu() - matrix @ (x_mean + x0.cpu()))
    return report, _relative_error(stitch, pairs)


def _rows(stitch: Stitch, pairs: Pairs) -> Iterator[tuple[Tensor, Tensor]]:
    return ((stitch.rows(z), stitch.end_rows(z_hat)) for z, z_hat in pairs())


def _with_ones(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def _relative_error(stitch: Stitch, pairs: Pairs) -> float:
    error = size = 0.0
    for z, z_hat in pairs():
        error += float((stitch.apply_trainable(z) - z_hat).double().square().sum())
        size += float(z_hat.double().square().sum())
    return math.sqrt(error / size)

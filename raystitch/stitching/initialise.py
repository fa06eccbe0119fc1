"""Where a stitch starts: least squares (``pinv``), at random, or as the identity (METHOD §4).

The least-squares problem is solved in float64 from centred second moments, with eigenvalues and a small ridge, so dead
channels or fewer samples than features give a finite, smallest-norm solution instead of an error. Moments are summed
over batches: the representations of all images need not be in memory together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from raystitch.stitching.stitch import Stitch

Init = Literal["pinv", "random", "identity"]

ZERO = 1e-12
"""Variances up to this fraction of the largest are rounding errors: such a direction is absent (10⁻⁶ in amplitude)."""
RIDGE = 1e-10
"""Added to every variance, as a fraction of the largest: bounds the solution along directions with hardly any variance,
whose weights would otherwise amplify the rounding errors of float32 representations."""


class InitReport(NamedTuple):
    """The least-squares problem from front to end, whichever way the stitch was initialised.

    Attributes:
        rank: number of directions in which the front's centred representation varies, 0 … its features.
        condition: largest over smallest standard deviation among those directions, ≥ 1; ``inf`` if there is none.
    """

    rank: int
    condition: float


class Moments:
    """Centred second moments of the front's rows X (rows, p), and with the end's rows Y (rows, q), in float64.

    Rows are shifted by the first batch's mean before they are summed, which keeps the later centring accurate.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sums: list[Tensor] = []
        self._shifts: list[Tensor] = []

    def add(self, x: Tensor, y: Tensor | None) -> None:
        """Take in the rows of one batch; ``y`` is ``None`` in every batch where only X matters."""
        rows = [part.double() for part in (x, y) if part is not None]
        if not self._shifts:
            self._shifts = [part.mean(0) for part in rows]
        rows = [part - shift for part, shift in zip(rows, self._shifts, strict=True)]
        sums = [part.sum(0) for part in rows] + [rows[0].T @ part for part in rows]
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums
        self.count += len(x)

    def finish(self) -> tuple[list[Tensor], list[Tensor]]:
        """Means [x̄ (p), ȳ (q)] and covariances [XᵀX/rows (p, p), XᵀY/rows (p, q)]; without the second if no Y."""
        half = len(self._sums) // 2
        offsets = [total / self.count for total in self._sums[:half]]
        products = [total / self.count for total in self._sums[half:]]
        covariances = [p - torch.outer(offsets[0], o) for p, o in zip(products, offsets, strict=True)]
        means = [shift + offset for shift, offset in zip(self._shifts, offsets, strict=True)]
        if not all(torch.isfinite(part).all() for part in covariances):
            raise FloatingPointError("representations of the initialisation images are not finite")
        return [m.cpu() for m in means], [c.cpu() for c in covariances]


def initialise(stitch: Stitch, how: Init, z_front: Tensor, z_end: Tensor | None, seed: int) -> InitReport:
    """Fill the stitch's matrix and bias in place; see :func:`initialise_from` for the meaning of ``how``.

    Args:
        stitch: the stitch to fill.
        how: ``pinv``, ``random`` or ``identity``.
        z_front: the front's representations (B, *front shape), not resized.
        z_end: the end's representations (B, *end shape) of the same images; ``pinv`` alone needs them.
        seed: of ``random``.

    Raises:
        FloatingPointError: a representation holds NaN or infinity.
    """
    return initialise_from(stitch, how, [(z_front, z_end)], seed)


def initialise_from(stitch: Stitch, how: Init, pairs: Iterable[tuple[Tensor, Tensor | None]], seed: int) -> InitReport:
    """:func:`initialise` from batches of representations, so that not all of them are needed at once.

    ``pinv``: A and b that minimise ‖A x + b − y‖² over all rows, smallest norm of A where there are many.
    ``random``: uniform in ±1/√in, as :class:`torch.nn.Linear`. ``identity``: ones on the main diagonal, b = 0; features
    beyond the narrower side's width are zero or dropped.
    """
    moments = Moments()
    with torch.no_grad():
        for z_front, z_end in pairs:
            target = stitch.rows(z_end) if z_end is not None and how == "pinv" else None
            moments.add(stitch.rows(stitch.resize(z_front)), target)
        means, covariances = moments.finish()
        variances, directions = torch.linalg.eigh(covariances[0])
        if how == "pinv":
            _least_squares(stitch, means, covariances[1], variances, directions)
        elif how == "random":
            _random(stitch, seed)
        else:
            _identity(stitch)
    return _report(variances)


def _least_squares(stitch: Stitch, means: list[Tensor], cross: Tensor, variances: Tensor, directions: Tensor) -> None:
    """A = (Σ_xx + ridge)⁺ Σ_xy transposed, b = ȳ − A x̄."""
    largest = variances[-1]
    inverse = torch.where(variances > ZERO * largest, 1 / (variances + RIDGE * largest), torch.zeros_like(variances))
    matrix = ((directions * inverse) @ (directions.T @ cross)).T
    stitch.weight.copy_(matrix)
    stitch.bias.copy_(means[1] - matrix @ means[0])


def _random(stitch: Stitch, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(stitch.weight.shape[1])
    for parameter in (stitch.weight, stitch.bias):
        parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)


def _identity(stitch: Stitch) -> None:
    stitch.weight.copy_(torch.eye(*stitch.weight.shape))
    stitch.bias.zero_()


def _report(variances: Tensor) -> InitReport:
    present = variances[variances > ZERO * variances[-1].clamp_min(0)]
    if not len(present) or present[-1] <= 0:
        return InitReport(0, math.inf)
    return InitReport(len(present), math.sqrt((present[-1] / present[0]).item()))

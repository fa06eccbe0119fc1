"""Linear least squares from second moments, summed over batches in float64, so that not all rows are needed at once.

Solved with eigenvalues and a small ridge: dead channels or fewer samples than features give a finite, smallest-norm
solution instead of an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

ZERO = 1e-12
"""Second moments up to this fraction of the largest are rounding errors: that direction is absent (10⁻⁶ in amplitude)."""
RIDGE = 1e-12
"""Added to every second moment, as a fraction of the largest: bounds the weights along directions that hardly occur,
which would otherwise amplify the rounding errors of float32 representations."""


class InitReport(NamedTuple):
    """The least-squares problem X A = Y from front to end, whichever way the stitch was initialised.

    Attributes:
        rank: number of directions present in the front's representation X (rows, features), 0 … features.
        condition: largest over smallest singular value of X among those directions, ≥ 1; ``inf`` if there is none.
    """

    rank: int
    condition: float


def sum_moments(
    rows: Iterable[tuple[Tensor, Tensor | None]],
    in_features: int,
    out_features: int,
    device: torch.device,
    source: str = "initialisation",
) -> tuple[Tensor, Tensor]:
    """Float64 sums XᵀX (in, in) and XᵀY (in, out) over all rows, on the CPU; the second lacks rows without Y.

    ``source`` says in an error which images these are.

    Raises:
        FloatingPointError: a row holds NaN or infinity.
    """
    square = torch.zeros(in_features, in_features, dtype=torch.float64, device=device)
    cross = torch.zeros(in_features, out_features, dtype=torch.float64, device=device)
    for front, end in rows:
        x = front.double()
        square += x.T @ x
        if end is not None:
            cross += x.T @ end.double()
    if not (torch.isfinite(square).all() and torch.isfinite(cross).all()):
        raise FloatingPointError(f"representations of the {source} images are not finite")
    return square.cpu(), cross.cpu()


def solve(square: Tensor, cross: Tensor, rank: int) -> tuple[Tensor, InitReport]:
    """The A (out, in) of at most ``rank`` that minimises ‖X Aᵀ − Y‖_F, and what X is like.

    Without restriction A = ((XᵀX + ridge)⁺ XᵀY)ᵀ, the smallest where there are many. Of lower rank it is the unrestricted one
    with its *predictions* X Aᵀ cut to their leading singular directions (Eckart & Young 1936; reduced-rank regression, Izenman
    1975): a cut in the metric of the activations, not of the weights.
    """
    moments, directions = torch.linalg.eigh(square)
    present = moments > ZERO * moments[-1]
    scale = torch.where(present, 1 / (moments + RIDGE * moments[-1]), torch.zeros_like(moments))
    if rank >= min(cross.shape):
        return ((directions * scale) @ (directions.T @ cross)).T, describe(moments)
    whitened = scale.sqrt()[:, None] * (directions.T @ cross)
    left, values, right = torch.linalg.svd(whitened, full_matrices=False)
    best = (left[:, :rank] * values[:rank]) @ right[:rank]
    return ((directions * scale.sqrt()) @ best).T, describe(moments)


def describe(moments: Tensor) -> InitReport:
    """Rank and condition of X from the eigenvalues of XᵀX, ascending."""
    largest = moments[-1]
    present = moments[moments > ZERO * largest]
    if largest <= 0 or not len(present):
        return InitReport(0, math.inf)
    return InitReport(len(present), math.sqrt(float(largest / present[0])))

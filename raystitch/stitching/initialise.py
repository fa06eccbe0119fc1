"""Where a stitch starts: least squares (``pinv``), at random, or as the identity (METHOD §4).

``pinv`` is the linear map A = Y X⁺ with b = 0, the start that reproduces the method's reference values (an intercept,
fitted as well, gives other ones). It is solved in float64 from second moments, with eigenvalues and a small ridge, so
dead channels or fewer samples than features give a finite, smallest-norm solution instead of an error. Moments are
summed over batches: the representations of all images need not be in memory together.
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


@torch.no_grad()
def initialise_from(stitch: Stitch, how: Init, pairs: Iterable[tuple[Tensor, Tensor | None]], seed: int) -> InitReport:
    """:func:`initialise` from batches of representations, so that not all of them are needed at once.

    ``pinv``: the A that minimises ‖A x − y‖² over all positions of all images, the smallest where there are many; b = 0.
    ``random``: uniform in ±1/√in, as :class:`torch.nn.Linear`. ``identity``: ones on the main diagonal, b = 0; features
    beyond the narrower side's width are zero or dropped.
    """
    square, cross = _moments(stitch, pairs, with_end=how == "pinv")
    moments, directions = torch.linalg.eigh(square)
    if how == "random":
        _fill_random(stitch, seed)
        return _report(moments)
    stitch.bias.zero_()
    if how == "pinv":
        stitch.weight.copy_(_solve(moments, directions, cross))
    else:
        stitch.weight.copy_(torch.eye(*stitch.weight.shape))
    return _report(moments)


def _moments(stitch: Stitch, pairs: Iterable[tuple[Tensor, Tensor | None]], with_end: bool) -> tuple[Tensor, Tensor]:
    """Float64 sums XᵀX (in, in) and XᵀY (in, out) over all rows, on the CPU; the second is zero unless ``with_end``."""
    out_features, in_features = stitch.weight.shape
    square = stitch.weight.new_zeros(in_features, in_features, dtype=torch.float64)
    cross = stitch.weight.new_zeros(in_features, out_features, dtype=torch.float64)
    for z_front, z_end in pairs:
        x = stitch.rows(stitch.resize(z_front)).double()
        square += x.T @ x
        if with_end and z_end is not None:
            cross += x.T @ stitch.rows(z_end).double()
    if not (torch.isfinite(square).all() and torch.isfinite(cross).all()):
        raise FloatingPointError("representations of the initialisation images are not finite")
    return square.cpu(), cross.cpu()


def _solve(moments: Tensor, directions: Tensor, cross: Tensor) -> Tensor:
    """A (out, in) = ((XᵀX + ridge)⁺ XᵀY)ᵀ from the eigenvalues (ascending) and eigenvectors of XᵀX."""
    largest = moments[-1]
    inverse = torch.where(moments > ZERO * largest, 1 / (moments + RIDGE * largest), torch.zeros_like(moments))
    return ((directions * inverse) @ (directions.T @ cross)).T


def _fill_random(stitch: Stitch, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(stitch.weight.shape[1])
    for parameter in (stitch.weight, stitch.bias):
        parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)


def _report(moments: Tensor) -> InitReport:
    largest = moments[-1]
    present = moments[moments > ZERO * largest]
    if largest <= 0 or not len(present):
        return InitReport(0, math.inf)
    return InitReport(len(present), math.sqrt(float(largest / present[0])))

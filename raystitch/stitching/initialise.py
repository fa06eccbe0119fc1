"""Where a stitch starts: least squares (``pinv``), at random, or as the identity (METHOD §4).

``pinv`` is the linear map A = Y X⁺ with b = 0, the start that reproduces the method's reference values (an intercept,
fitted as well, gives other ones); see :mod:`raystitch.stitching.moments`. A map over positions always starts as
:func:`~raystitch.stitching.layout.layout_map`, and A is solved behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor

from raystitch.stitching.moments import InitReport, describe, solve, sum_moments
from raystitch.stitching.stitch import Stitch

Init = Literal["pinv", "random", "identity"]


def initialise(stitch: Stitch, how: Init, z_front: Tensor, z_end: Tensor | None, seed: int) -> InitReport:
    """Fill the stitch's map of features in place; see :func:`initialise_from` for the meaning of ``how``.

    Args:
        stitch: the stitch to fill.
        how: ``pinv``, ``random`` or ``identity``.
        z_front: the front's representations (B, *front shape), not resized.
        z_end: the end's representations (B, *end shape) of the same images; ``pinv`` alone needs them.
        seed: of what is random.

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

    A low-rank stitch starts as the best A of its rank, or with the first features alone as identity. An mlp starts as that
    affine map too, of rank ⌊width / 2⌋ at most; hidden units left over start with random inputs and no output.
    """
    channels = stitch.channels
    shape, rank = (channels.out_features, channels.in_features), channels.most_rank
    square, cross = sum_moments(_rows(stitch, pairs, how == "pinv"), channels.in_features, shape[0], stitch.device)
    channels.randomise(torch.Generator().manual_seed(seed))
    if how == "pinv":
        matrix, report = solve(square, cross, rank)
        channels.set_affine(matrix, torch.zeros(shape[0]))
        return report
    if how == "identity":
        channels.set_affine(torch.eye(*shape) * (torch.arange(shape[1]) < rank), torch.zeros(shape[0]))
    return describe(torch.linalg.eigh(square)[0])


def _rows(
    stitch: Stitch, pairs: Iterable[tuple[Tensor, Tensor | None]], with_end: bool
) -> Iterator[tuple[Tensor, Tensor | None]]:
    for z_front, z_end in pairs:
        y = stitch.end_rows(z_end) if with_end and z_end is not None else None
        yield stitch.rows(stitch.resize(z_front)), y

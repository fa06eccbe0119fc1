"""How degenerate a trained stitch is: numerical rank and condition number of its matrix (METHOD §7)."""

from __future__ import annotations

import math

import torch

from raystitch.stitching.stitch import Stitch

RANK_TOLERANCE = 1e-3
"""Singular values above this fraction of the largest count towards the rank of a stitch (METHOD §7)."""


def affine_diagnostics(stitch: Stitch) -> tuple[int, float] | tuple[None, None]:
    """Numerical rank and condition number of the stitch's matrix A (out, in); bias and map over positions play no part.

    Returns:
        rank: number of singular values above 1e-3·σ_max, in 0 … min(out, in).
        condition: σ_max / σ_min over all min(out, in) singular values, ≥ 1; ``inf`` if the smallest is zero.

        Neither for an mlp, which has no such matrix.
    """
    if stitch.matrix is None:
        return None, None
    values = torch.linalg.svdvals(stitch.matrix.double().cpu())
    largest, smallest = values[0].item(), values[-1].item()
    rank = int((values > RANK_TOLERANCE * largest).sum())
    return rank, largest / smallest if smallest > 0 else math.inf

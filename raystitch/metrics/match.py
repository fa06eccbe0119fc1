"""How well a stitched stream matches the end model's own representation, over a set that comes in batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class MatchError:
    """Relative Frobenius error ‖z − ẑ‖_F / ‖ẑ‖_F over everything given to :meth:`update` (METHOD §3, §7).

    Squared norms are summed in float64 on the tensors' device, so the value does not depend on how the set is cut into
    batches, and no update waits for the device.
    """

    def __init__(self) -> None:
        self._error: Tensor | None = None
        self._norm: Tensor | None = None

    @torch.no_grad()
    def update(self, z: Tensor, target: Tensor) -> None:
        """Add a batch: stitched representation ``z`` and end representation ``target``, float, of one shape."""
        if z.shape != target.shape:
            raise ValueError(f"representations differ in shape: {tuple(z.shape)} and {tuple(target.shape)}")
        error = torch.linalg.vector_norm(z.float() - target.float(), dtype=torch.float64).square()
        norm = torch.linalg.vector_norm(target.float(), dtype=torch.float64).square()
        self._error = error if self._error is None else self._error + error
        self._norm = norm if self._norm is None else self._norm + norm

    def compute(self) -> float:
        """The error ≥ 0; if every target is zero, 0 when ``z`` is zero too and else infinity.

        Raises:
            ValueError: no batch was given.
        """
        if self._error is None or self._norm is None:
            raise ValueError("no batch was given to the match error")
        error, norm = float(self._error), float(self._norm)
        if norm == 0:
            return math.inf if error > 0 else 0.0
        return math.sqrt(error / norm)

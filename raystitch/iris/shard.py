"""One shard of an IRI set: a fixed index range of a dataset, with every sample's seed derived from its index.

So a shard's content does not depend on which worker makes it, on its neighbours, or on how often it is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris.invert import Prefix, invert, residual
from raystitch.iris.start import sample_seed


@dataclass(frozen=True)
class Shard:
    """IRIs as they are stored.

    Attributes:
        images: uint8 (n, 3, H, W), rounded; or float32 in [0, 1].
        labels: int64 (n,), those of the images that the IRIs mimic.
        index: int64 (n,), rows of the dataset.
        residual: float32 (n,), r of ``images`` as stored: the one to report.
        residual_float: float32 (n,), r before rounding.
    """

    images: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    residual: npt.NDArray[np.float32]
    residual_float: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.images)


def make_shard(
    prefix: Prefix,
    images: Tensor,
    labels: Tensor,
    first_index: int,
    config: IriConfig,
    device: torch.device | str | None = None,
) -> Shard:
    """Invert consecutive rows of a dataset, round for storage, and measure r again.

    Args:
        prefix: see :func:`~raystitch.iris.invert`; on ``device``.
        images: uint8 (n, 3, H, W), the rows from ``first_index`` on.
        labels: integer (n,).
        first_index: row of the first image; with ``config.seed`` it decides the noise.
        config: how to invert, and ``dtype`` to store; searched in batches of ``config.batch``.
        device: where to compute; by default where ``images`` are.

    Raises:
        FloatingPointError: a representation is not finite.
    """
    seeds = [sample_seed(config.seed, first_index + row) for row in range(len(images))]
    kept, after, before = [], [], []
    for first in range(0, len(images), config.batch):
        batch = images[first : first + config.batch].to(device or images.device).float() / 255
        found = invert(prefix, batch, seeds[first : first + config.batch], config)
        stored = (found.images * 255).round().to(torch.uint8) if config.dtype == "uint8" else found.images
        kept.append(stored.cpu())
        before.append(found.residual.cpu())
        after.append(_stored_residual(prefix, stored, batch).cpu() if config.dtype == "uint8" else before[-1])
    return Shard(
        images=torch.cat(kept).numpy(),
        labels=labels.cpu().numpy().astype(np.int64),
        index=np.arange(first_index, first_index + len(images), dtype=np.int64),
        residual=torch.cat(after).numpy(),
        residual_float=torch.cat(before).numpy(),
    )


@torch.no_grad()
def _stored_residual(prefix: Prefix, stored: Tensor, originals: Tensor) -> Tensor:
    return residual(prefix, stored.float() / 255, prefix(originals))

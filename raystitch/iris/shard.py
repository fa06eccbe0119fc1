"""Shards of an IRI set: a fixed index range of a dataset, with every sample's seed derived from its index.

One run of the optimiser leaves a shard as good as it gets, and one for each residual level it passes. What they hold does not
depend on which worker makes them, on their neighbours, or on how often it is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris.invert import Inversion, invert, residual
from raystitch.iris.search import Prefix
from raystitch.iris.start import sample_seed

# images as stored, their r, and r before rounding
_Kept = tuple[npt.NDArray[Any], npt.NDArray[np.float32], npt.NDArray[np.float32]]


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


def make_shards(
    prefix: Prefix,
    images: Tensor,
    labels: Tensor,
    first_index: int,
    config: IriConfig,
    device: torch.device | str | None = None,
) -> dict[float | None, Shard]:
    """Invert consecutive rows of a dataset, round for storage, and measure r again.

    Args:
        prefix: see :func:`~raystitch.iris.invert`; on ``device``.
        images: uint8 (n, 3, H, W), the rows from ``first_index`` on.
        labels: integer (n,).
        first_index: row of the first image; with ``config.seed`` it decides the noise.
        config: how to invert, and ``dtype`` to store; searched in batches of ``config.batch``.
        device: where to compute; by default where ``images`` are.

    Returns:
        The best of each image under None, and a shard of the same rows for each of ``config.levels``. A level is reached
        before rounding: ``residual``, measured after it, may lie above.

    Raises:
        FloatingPointError: a representation is not finite.
    """
    seeds = [sample_seed(config.seed, first_index + row) for row in range(len(images))]
    batches = []
    for first in range(0, len(images), config.batch):
        batch = images[first : first + config.batch].to(device or images.device).float() / 255
        found = invert(prefix, batch, seeds[first : first + config.batch], config)
        batches.append(_stored(prefix, batch, found, config.dtype))
    shards = [_joined(kept, labels, first_index) for kept in zip(*batches, strict=True)]
    return dict(zip((None, *config.levels), shards, strict=True))


@torch.no_grad()
def _stored(prefix: Prefix, originals: Tensor, found: Inversion, dtype: str) -> list[_Kept]:
    """What is stored of a batch: of its best iterates, then of those of each level."""
    kept = (found, *found.levels)
    if dtype == "float32":
        return [_on_cpu(one.images, one.residual, one.residual) for one in kept]
    rounded = [(one.images * 255).round().to(torch.uint8) for one in kept]
    target = prefix(originals)
    after = [residual(prefix, images.float() / 255, target) for images in rounded]
    return [_on_cpu(images, r, one.residual) for images, r, one in zip(rounded, after, kept, strict=True)]


def _on_cpu(images: Tensor, after: Tensor, before: Tensor) -> _Kept:
    return images.cpu().numpy(), after.cpu().numpy(), before.cpu().numpy()


def _joined(batches: Sequence[_Kept], labels: Tensor, first_index: int) -> Shard:
    images, after, before = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    index = np.arange(first_index, first_index + len(images), dtype=np.int64)
    return Shard(images, labels.cpu().numpy().astype(np.int64), index, after, before)

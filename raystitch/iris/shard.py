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

from raystitch.iris.invert import Inverter, residual
from raystitch.iris.start import sample_seed
from raystitch.modes import plainly

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
    inverter: Inverter,
    images: Tensor,
    labels: Tensor,
    first_index: int,
    device: torch.device | str | None = None,
) -> dict[float | None, Shard]:
    """Invert consecutive rows of a dataset, round for storage, and measure r again.

    Args:
        inverter: with the set's configuration and a prefix on ``device``.
        images: uint8 (n, 3, H, W), the rows from ``first_index`` on.
        labels: integer (n,).
        first_index: row of the first image; with the configuration's ``seed`` it decides the noise.
        device: where to compute; by default where ``images`` are.

    Returns:
        The best of each image under None, and a shard of the same rows for each of the configuration's ``levels``. A level is
        reached before rounding: ``residual``, measured after it, may lie above.

    Raises:
        TypeError: images that are not uint8.
        ValueError: another number of labels than of images; and see :func:`~raystitch.iris.invert`.
        FloatingPointError: a representation is not finite, or too small to measure.
    """
    if images.dtype != torch.uint8:
        raise TypeError(f"images of a dataset are uint8, not {images.dtype}")
    if len(labels) != len(images):
        raise ValueError(f"{len(images)} images need as many labels, not {len(labels)}")
    config = inverter.config
    seeds = [sample_seed(config.seed, first_index + row) for row in range(len(images))]
    originals = images.to(device or images.device).float() / 255
    found = inverter(originals, seeds)
    kept = (found, *found.levels)
    if config.dtype == "uint8":
        rounded = [(one.images * 255).round().to(torch.uint8) for one in kept]
        after = _measured(inverter, originals, rounded)
        stored = [_on_cpu(images, r, one.residual) for images, r, one in zip(rounded, after, kept, strict=True)]
    else:
        stored = [_on_cpu(one.images, one.residual, one.residual) for one in kept]
    shards = [_shard(one, labels, first_index) for one in stored]
    return dict(zip((None, *config.levels), shards, strict=True))


def _measured(inverter: Inverter, originals: Tensor, stored: Sequence[Tensor]) -> list[Tensor]:
    """r of what is stored of each image, (n,), for the best of each and for each level."""
    parts: list[list[Tensor]] = [[originals.new_empty(0)] for _ in stored]
    batch = inverter.batch(originals) if len(originals) else 1
    for first in range(0, len(originals), batch):
        part = slice(first, first + batch)
        with plainly(gradients=False):
            target = inverter.prefix(originals[part])
        for measured, images in zip(parts, stored, strict=True):
            measured.append(residual(inverter.prefix, images[part].float() / 255, target))
    return [torch.cat(measured) for measured in parts]


def _on_cpu(images: Tensor, after: Tensor, before: Tensor) -> _Kept:
    return images.cpu().numpy(), after.cpu().numpy(), before.cpu().numpy()


def _shard(kept: _Kept, labels: Tensor, first_index: int) -> Shard:
    images, after, before = kept
    index = np.arange(first_index, first_index + len(images), dtype=np.int64)
    return Shard(images, labels.cpu().numpy().astype(np.int64), index, after, before)

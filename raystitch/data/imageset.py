"""A labelled image set as tensors, and the rule that picks rows when a set is limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Split = Literal["train", "test"]

MAX_LABEL = 1_000_000
"""A larger label is taken for a mistake: a number of the image, say."""


@dataclass(frozen=True)
class ImageSet:
    """Images and labels in a fixed order; a sample's index is its position here.

    Attributes:
        images: uint8 (N, 3, H, W), RGB; never to be written to.
        labels: int64 (N,), each in 0 … num_classes - 1.
        num_classes: C, the classes of the whole dataset, also those that a limit leaves out.
        key: of a mapped set, text that says which images these are; ``None`` where they are held in memory.
    """

    images: Tensor
    labels: Tensor
    num_classes: int
    key: str | None = None

    def __len__(self) -> int:
        return len(self.labels)


def to_float(images: Tensor) -> Tensor:
    """Pixels uint8 0 … 255 → float32 in [0, 1]."""
    return images.float() / 255


def evenly_spaced(total: int, count: int | None) -> NDArray[np.int64]:
    """Rows ⌊k · total / count⌋ for k = 0 … count - 1; all rows where ``count`` is ``None`` or not below ``total``.

    A set sorted by class, with classes of equal size, keeps every class as long as ``count`` ≥ C.
    """
    if count is None or count >= total:
        return np.arange(total, dtype=np.int64)
    return np.arange(count, dtype=np.int64) * total // count

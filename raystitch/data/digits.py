"""The built-in set: scikit-learn's 1,797 handwritten digits, 8×8, with a fixed stratified split (1,437 / 360)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from raystitch.data.decode import Picture
from raystitch.data.imageset import Split, evenly_spaced

_TEST_COUNT = 360


@dataclass(frozen=True)
class DigitsSource:
    """Digits as a source of pictures; grey levels 0 … 16 become 0 … 255, the three channels are equal."""

    num_classes: int = 10

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        from sklearn.datasets import load_digits  # here, because it is slow to import and few studies need it

        digits = load_digits()
        return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.int64)

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels int64 of all rows of a split, in row order."""
        labels = self._arrays[1]
        return labels[split_rows(labels, split)]

    def class_names(self) -> Sequence[Sequence[str]]:
        """The digits."""
        return tuple((str(digit),) for digit in range(10))

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Every row by itself."""
        return np.arange(len(self.labels(split)), dtype=np.int64)

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The images at ``rows`` of a split."""
        images, labels = self._arrays
        for row in split_rows(labels, split)[rows]:
            yield f"digit {row}", Image.fromarray(images[row])

    def identity(self, split: Split) -> str:
        """What the pixels and labels depend on: this file's own rule, by its version."""
        return f"digits-1-{split}"


def split_rows(labels: NDArray[np.int64], split: Split) -> NDArray[np.int64]:
    """Rows of a split: one in five of each class is a test row; rows are in a fixed random order.

    The order matters: scikit-learn's file goes through the classes cyclically, so evenly spaced rows would miss some.
    """
    by_class = np.argsort(labels, kind="stable")
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[by_class[evenly_spaced(len(labels), _TEST_COUNT)]] = True
    order = np.random.RandomState(0).permutation(len(labels))  # the legacy stream never changes between versions
    return np.asarray(order[is_test[order] == (split == "test")], dtype=np.int64)

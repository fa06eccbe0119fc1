"""What a source of labelled pictures offers; every kind of file is one, and so is a subset of the classes of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from raystitch.data.decode import Picture
from raystitch.data.imageset import Split


class Source(Protocol):
    """Two splits of labelled pictures, numbered by row."""

    @property
    def num_classes(self) -> int:
        """Classes of the dataset."""
        ...

    def class_names(self) -> Sequence[Sequence[str]]:
        """All names of each class, such as its word and its WordNet id, main name first; fewer than C where unknown."""
        ...

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels of all rows."""
        ...

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """First rows, ascending from 0, of the runs of rows that are cheap to read together and dear to read apart."""
        ...

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The pictures at ascending rows."""
        ...

    def identity(self, split: Split) -> str:
        """Text that changes when the split's content does."""
        ...


def blocks_of_rows(blocks: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """First positions of the blocks of a selection: ``rows`` are ascending rows of the source whose ``blocks`` are given."""
    number = np.searchsorted(blocks, rows, side="right")
    return np.flatnonzero(np.diff(number, prepend=-1)).astype(np.int64)

"""Facts about a dataset that a user wants to see before using it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raystitch.config import DataConfig
from raystitch.data.imageset import Split
from raystitch.data.load import chosen_rows, first_side, open_source
from raystitch.remote import NO_OPTIONS


@dataclass(frozen=True)
class SplitFacts:
    """One split after class list and limit.

    Attributes:
        split: ``train`` or ``test``.
        count: images.
        num_classes: classes of the dataset.
        present: classes that have an image in the split.
        smallest: images of the smallest class, 0 where one is missing.
        largest: images of the largest class.
        side: of the images in pixels, as they will be loaded.
    """

    split: Split
    count: int
    num_classes: int
    present: int
    smallest: int
    largest: int
    side: int


def describe(
    config: DataConfig, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS
) -> tuple[SplitFacts, SplitFacts]:
    """Facts of the train and the test split; one image of each is opened.

    Raises:
        InputError: files are missing, malformed or empty, or the first image is not square and no size is set.
    """
    source = open_source(config, where, storage_options)

    def facts(split: Split) -> SplitFacts:
        labels = source.labels(split)
        kept = labels[chosen_rows(config, split, where, len(labels))]
        counts = np.bincount(kept, minlength=source.num_classes)
        return SplitFacts(
            split=split,
            count=len(kept),
            num_classes=source.num_classes,
            present=int((counts > 0).sum()),
            smallest=int(counts.min()),
            largest=int(counts.max()),
            side=first_side(source, config, split, where),
        )

    return facts("train"), facts("test")

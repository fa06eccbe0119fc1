"""Datasets of a config: their images, number of classes, image size, and a fingerprint of what they hold.

Every fault of the user's files becomes one :class:`~raystitch.errors.InputError` that names the config field or file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from raystitch.config import DataConfig
from raystitch.data.decode import Picture, decode_pictures, square_side
from raystitch.data.digits import DigitsSource
from raystitch.data.folder import open_folder
from raystitch.data.imageset import ImageSet, Split, evenly_spaced
from raystitch.data.parquet import open_parquet
from raystitch.errors import InputError

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Source(Protocol):
    """Two splits of labelled pictures, numbered by row."""

    @property
    def num_classes(self) -> int:
        """Classes of the dataset."""
        ...

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels of all rows."""
        ...

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The pictures at ascending rows."""
        ...

    def identity(self, split: Split) -> str:
        """Text that changes when the split's content does."""
        ...


def open_source(config: DataConfig, where: str, storage_options: Mapping[str, Any] = _NO_OPTIONS) -> Source:
    """Find the files of a dataset without decoding any image; raises InputError where they are missing or malformed."""
    if config.source == "digits":
        return DigitsSource()
    return (open_parquet if config.source == "parquet" else open_folder)(config, where, storage_options)


def load_images(
    config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = _NO_OPTIONS
) -> ImageSet:
    """Read a split: decoded, resized to ``config.size``, limited to evenly spaced rows, without any cue.

    Args:
        config: the dataset.
        split: ``train`` or ``test``.
        where: config path of the dataset for error messages, such as ``data.cifar10``.
        storage_options: passed to fsspec with the dataset's URLs.

    Returns:
        Images uint8 (N, 3, S, S) and labels int64 (N,).

    Raises:
        InputError: files are missing, empty, malformed or undecodable, or images differ in size and none is set.
    """
    source = open_source(config, where, storage_options)
    labels = source.labels(split)
    rows = _rows(config, split, where, len(labels))
    images = decode_pictures(source.pictures(split, rows.tolist()), len(rows), config.size, where)
    return ImageSet(images, torch.from_numpy(labels[rows]), source.num_classes)


def num_classes(config: DataConfig, where: str, storage_options: Mapping[str, Any] = _NO_OPTIONS) -> int:
    """Number of classes C, from both splits' labels (Parquet) or the train split's folders; decodes nothing.

    Raises:
        InputError: as :func:`load_images`, for missing or malformed files.
    """
    return open_source(config, where, storage_options).num_classes


def count(config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = _NO_OPTIONS) -> int:
    """Number of images N that :func:`load_images` returns, after the limit; decodes nothing.

    Raises:
        InputError: files are missing, malformed or empty.
    """
    source = open_source(config, where, storage_options)
    return len(_rows(config, split, where, len(source.labels(split))))


def image_size(config: DataConfig, where: str, storage_options: Mapping[str, Any] = _NO_OPTIONS) -> int:
    """Side S of the images that :func:`load_images` returns: ``config.size``, else read from the first train image.

    Raises:
        InputError: there is no image, or it is not square and no size is set.
    """
    if config.size is not None:
        return config.size
    source = open_source(config, where, storage_options)
    first = _rows(config, "train", where, len(source.labels("train")))[:1]
    return square_side(next(source.pictures("train", first.tolist())), where)


def fingerprint(config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = _NO_OPTIONS) -> str:
    """SHA-256 (64 hex digits) of what determines :func:`load_images`: content, classes, size, rows; decodes nothing.

    Content is the bytes of Parquet files, and names and sizes of files in folders. Where the files lie does not count.

    Raises:
        InputError: files are missing, malformed or empty.
    """
    source = open_source(config, where, storage_options)
    facts = {
        "source": config.source,
        "content": source.identity(split),
        "classes": source.num_classes,
        "size": config.size,
        "rows": len(_rows(config, split, where, len(source.labels(split)))),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _rows(config: DataConfig, split: Split, where: str, total: int) -> NDArray[np.int64]:
    if total == 0:
        raise InputError(where, None, f"the {split} split has no images")
    return evenly_spaced(total, config.limit.train if split == "train" else config.limit.test)

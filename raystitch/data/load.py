"""Datasets of a config: their images, number of classes, image size, and a fingerprint of what they hold.

Every fault of the user's files becomes one :class:`~raystitch.errors.InputError` that names the config field or file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raystitch.config import DataConfig
from raystitch.data.cifar import open_cifar
from raystitch.data.classes import choose_classes
from raystitch.data.decode import check_pictures, decoded, square_side
from raystitch.data.digits import DigitsSource
from raystitch.data.folder import open_folder
from raystitch.data.guard import reading
from raystitch.data.hold import fits_in_memory, hold
from raystitch.data.imageset import ImageSet, Split, evenly_spaced
from raystitch.data.noise import DEFAULT_SIDE, NoiseSource
from raystitch.data.parquet import open_parquet
from raystitch.data.source import Source
from raystitch.data.webdataset import open_webdataset
from raystitch.errors import InputError
from raystitch.remote import NO_OPTIONS

_READERS: Mapping[str, Callable[[DataConfig, str, Mapping[str, Any]], Source]] = {
    "parquet": open_parquet,
    "folder": open_folder,
    "webdataset": open_webdataset,
}
_NOISE_CLASSES = 10
MAX_CHECKED = 20_000
"""Images of a split that are decoded to check them; larger splits are checked as they are read."""


def open_source(config: DataConfig, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS) -> Source:
    """Find the files of a dataset without decoding any image, and keep the classes that the config lists.

    Raises:
        InputError: files are missing or malformed, or the class list does not fit them.
    """
    if config.source == "noise":
        classes = config.classes if isinstance(config.classes, int) else _NOISE_CLASSES
        return NoiseSource(config.kind, config.count, config.size or DEFAULT_SIDE, classes, config.seed)
    with reading(config, where):
        whole = _open_whole(config, where, storage_options)
        if config.classes is None or isinstance(config.classes, int):
            return whole
        return choose_classes(whole, config.classes, where, storage_options)


def load_images(
    config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS
) -> ImageSet:
    """Read a split: decoded, resized to ``config.size``, limited to the rows of ``config.limit``, without any cue.

    A split too large for memory is decoded piece by piece into a mapped file (:mod:`raystitch.data.hold`).

    Args:
        config: the dataset.
        split: ``train`` or ``test``.
        where: config path of the dataset for error messages, such as ``data.cifar10``.
        storage_options: passed to fsspec with the dataset's URLs.

    Returns:
        Images uint8 (N, 3, S, S) and labels int64 (N,).

    Raises:
        InputError: files are missing, empty, malformed or undecodable, or images differ in size and none is set; or there
            is no room for the mapped file.
    """
    source = open_source(config, where, storage_options)
    labels = source.labels(split)
    rows = chosen_rows(config, split, where, len(labels))
    side = first_side(source, config, split, where)
    shape = (len(rows), 3, side, side)

    def parts() -> Iterator[NDArray[np.uint8]]:
        with reading(config, where):
            pictures = source.pictures(split, rows.tolist())
            yield from (pixels[None] for pixels in decoded(pictures, config.size, where, config.greyscale))

    key = None if fits_in_memory(shape) else _identity(source, config, split, where)
    return ImageSet(hold(shape, parts, key), torch.from_numpy(labels[rows]), source.num_classes, key)


def check_images(config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS) -> None:
    """Decode every image that :func:`load_images` would give, keeping none, so that a bad one is found before work starts.

    A split of more than 20,000 images is not read; nor is a built-in set, which has no files.

    Raises:
        InputError: as :func:`load_images`, for the first image that is at fault.
    """
    if config.source in ("digits", "noise"):
        return
    source = open_source(config, where, storage_options)
    rows = chosen_rows(config, split, where, len(source.labels(split)))
    if len(rows) <= MAX_CHECKED:
        with reading(config, where):
            check_pictures(source.pictures(split, rows.tolist()), config.size, where, config.greyscale)


def num_classes(config: DataConfig, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS) -> int:
    """Number of classes C: of the class list, else from both splits' labels, the index or the folders; decodes nothing.

    Raises:
        InputError: as :func:`load_images`, for missing or malformed files.
    """
    return open_source(config, where, storage_options).num_classes


def count(config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS) -> int:
    """Number of images N that :func:`load_images` returns, after the limit; decodes nothing.

    Raises:
        InputError: files are missing, malformed or empty.
    """
    source = open_source(config, where, storage_options)
    return len(chosen_rows(config, split, where, len(source.labels(split))))


def image_size(config: DataConfig, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS) -> int:
    """Side S of the images that :func:`load_images` returns: ``config.size``, else read from the first train image.

    Raises:
        InputError: there is no image, or it is not square and no size is set.
    """
    if config.size is not None:
        return config.size
    return first_side(open_source(config, where, storage_options), config, "train", where)


def first_side(source: Source, config: DataConfig, split: Split, where: str) -> int:
    """Side of the images of a split: ``config.size``, else that of the first one."""
    if config.size is not None:
        return config.size
    first = chosen_rows(config, split, where, len(source.labels(split)))[:1]
    with reading(config, where):
        return square_side(next(iter(source.pictures(split, first.tolist()))), where)


def fingerprint(config: DataConfig, split: Split, where: str, storage_options: Mapping[str, Any] = NO_OPTIONS) -> str:
    """SHA-256 (64 hex digits) of what determines :func:`load_images`: content, classes, size, rows; decodes nothing.

    Content is the bytes of Parquet files and indexed shards, the pixels of CIFAR, and names and sizes of files in folders
    or of entries in shards without an index. Where the files lie does not count.

    Raises:
        InputError: files are missing, malformed or empty.
    """
    return _identity(open_source(config, where, storage_options), config, split, where)


def _identity(source: Source, config: DataConfig, split: Split, where: str) -> str:
    with reading(config, where):
        content = source.identity(split)
    facts: dict[str, Any] = {
        "source": config.source,
        "content": content,
        "classes": source.num_classes,
        "size": config.size,
        "rows": len(rows := chosen_rows(config, split, where, len(source.labels(split)))),
    }
    if config.limit.rows == "first" and len(rows) < len(source.labels(split)):
        facts["first"] = True
    if config.greyscale:
        facts["greyscale"] = True
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def chosen_rows(config: DataConfig, split: Split, where: str, total: int) -> NDArray[np.int64]:
    """Ascending rows of a source that the config's limit leaves.

    Raises:
        InputError: the split is empty.
    """
    if total == 0:
        raise InputError(where, None, f"the {split} split has no images")
    count = config.limit.train if split == "train" else config.limit.test
    if config.limit.rows == "first":
        return np.arange(total if count is None else min(count, total), dtype=np.int64)
    return evenly_spaced(total, count)


def _open_whole(config: DataConfig, where: str, options: Mapping[str, Any]) -> Source:
    if config.source == "digits":
        return DigitsSource()
    if config.source == "cifar":
        return open_cifar(config.path or "", where, options)
    return _READERS[config.source](config, where, options)

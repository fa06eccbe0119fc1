"""Image sets as WebDataset tar shards on any fsspec URL, read as data: nothing is unpickled, nothing is unpacked to disk.

With the index of ``raystitch data import`` only the samples that are needed are fetched, and each is checked. Without one, the
tars' headers are scanned: a sample is an image (``jpg``, ``jpeg``, ``png``, ``webp``, or ``npy`` uint8) and a label
(``cls``, ``label``, ``txt``: a number; ``json``: its ``label``; ``labels.npy``), and a ``npy`` may pack several of both.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raystitch import tarball
from raystitch.config import DataConfig
from raystitch.data.decode import Picture, open_picture
from raystitch.data.files import find_files
from raystitch.data.imageset import Split
from raystitch.data.shards import INDEX_NAME, ShardIndex, SplitEntry, read_index
from raystitch.data.tarscan import scan_shard
from raystitch.errors import InputError
from raystitch.remote import locate

_FETCH_BYTES = 32 << 20  # fetched together: one round trip on an object store


class _Place(NamedTuple):
    """Where the images of one sample lie; ``packed`` for npy files, ``crc32`` where the index tells it."""

    path: str
    offset: int
    size: int
    images: int
    packed: bool
    crc32: int | None


@dataclass(frozen=True)
class _Shards:
    """One split: file system, samples and labels in row order, and what identifies the content."""

    fs: Any
    places: Sequence[_Place]
    labels: NDArray[np.int64]
    content: str

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of each sample, and the row after the last."""
        return np.cumsum([0, *(place.images for place in self.places)], dtype=np.int64)


@dataclass(frozen=True)
class WebDatasetSource:
    """Both splits; labels are read, images are not yet. ``names`` is empty where there is no index."""

    splits: Mapping[Split, _Shards]
    names: Sequence[Sequence[str]]

    @property
    def num_classes(self) -> int:
        """Classes of the index; without one, the largest label of either split + 1."""
        largest = max((int(split.labels.max()) for split in self.splits.values() if len(split.labels)), default=-1)
        return len(self.names) or 1 + largest

    def class_names(self) -> Sequence[Sequence[str]]:
        """Names in the index."""
        return self.names

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels int64 of all rows, in the order of shards and samples."""
        return self.splits[split].labels

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Samples: one image each, or the images packed together."""
        return self.splits[split].starts[:-1]

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The images at ascending ``rows``; samples that hold none of them are not fetched."""
        shards, wanted = self.splits[split], np.asarray(rows, dtype=np.int64)
        starts = shards.starts
        numbers, firsts = np.unique(np.searchsorted(starts, wanted, side="right") - 1, return_index=True)
        parts = iter(np.split(wanted, firsts[1:]))
        for group in _groups(numbers, shards.places):
            places = [shards.places[number] for number in group]
            for number, place, data in zip(group, places, _fetch(shards.fs, places), strict=True):
                yield from _open_sample(place, data, next(parts) - starts[number])

    def identity(self, split: Split) -> str:
        """Of indexed shards their bytes; else names and sizes of the entries, and the labels."""
        return self.splits[split].content


def open_webdataset(config: DataConfig, where: str, options: Mapping[str, Any]) -> WebDatasetSource:
    """Read the index, or scan the shards, of both splits.

    Raises:
        InputError: there are no shards, one is not a whole tar, or a sample lacks an image or a label.
    """
    if config.path is not None and config.train is None and config.test is None:
        fs, root = _open_folder(config.path, where, options)
        if fs.isfile(f"{root}/{INDEX_NAME}"):
            return _open_index(fs, root)
    splits: dict[Split, _Shards] = {}
    for split in ("train", "test"):
        fs, paths = find_files(config, split, where, options, ".tar")
        splits[split] = _scan(fs, paths)
    return WebDatasetSource(splits, ())


def _open_folder(url: str, where: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        fs, root = locate(url, options)
    except (ValueError, ImportError) as error:
        raise InputError(f"{where}.path", url, f"cannot be opened: {error}") from error
    return fs, root.rstrip("/")


def _open_index(fs: Any, root: str) -> WebDatasetSource:
    path = f"{root}/{INDEX_NAME}"
    index = read_index(bytes(fs.cat_file(path)), path)
    splits: dict[Split, _Shards] = {split: _indexed(fs, root, index, entry) for split, entry in index.splits.items()}
    return WebDatasetSource(splits, index.classes)


def _indexed(fs: Any, root: str, index: ShardIndex, entry: SplitEntry) -> _Shards:
    path = f"{root}/{entry.labels}"
    content = bytes(fs.cat_file(path))
    if hashlib.sha256(content).hexdigest() != entry.labels_sha256:
        raise InputError(path, None, "is not the file that the index describes; import the data again")
    labels = tarball.read_npy(content, path)
    if labels.shape != (entry.count,) or labels.dtype != np.int64 or not _within(labels, len(index.classes)):
        raise InputError(path, None, "does not hold one label per image of the index")
    places = [
        _Place(f"{root}/{shard.name}", *sample[:3], packed=True, crc32=sample.crc32)
        for shard in entry.shards
        for sample in shard.samples
    ]
    facts = [entry.labels_sha256, *(shard.sha256 for shard in entry.shards)]
    return _Shards(fs, places, labels, hashlib.sha256(json.dumps(facts).encode()).hexdigest())


def _within(labels: NDArray[np.int64], count: int) -> bool:
    return not len(labels) or bool(0 <= labels.min() <= labels.max() < count)


def _scan(fs: Any, paths: Sequence[str]) -> _Shards:
    places, labels, facts = [], [np.empty(0, np.int64)], []
    for path in paths:
        for sample in scan_shard(fs, path):
            places.append(_Place(path, sample.offset, sample.size, len(sample.labels), sample.packed, None))
            labels.append(sample.labels)
            facts.append([sample.key, sample.size, sample.labels.tolist()])
    return _Shards(fs, places, np.concatenate(labels), hashlib.sha256(json.dumps(facts).encode()).hexdigest())


def _groups(numbers: NDArray[np.int64], places: Sequence[_Place]) -> Iterator[list[int]]:
    """Consecutive samples of at most about 32 MiB together."""
    group: list[int] = []
    held = 0
    for number in numbers.tolist():
        if group and held + places[number].size > _FETCH_BYTES:
            yield group
            group, held = [], 0
        group.append(number)
        held += places[number].size
    if group:
        yield group


def _fetch(fs: Any, places: Sequence[_Place]) -> list[bytes]:
    ends = [place.offset + place.size for place in places]
    try:
        found = fs.cat_ranges([p.path for p in places], [p.offset for p in places], ends, on_error="raise")
    except FileNotFoundError as error:
        raise InputError(str(error.filename or places[0].path), None, "the shard is missing") from error
    return [bytes(data) for data in found]


def _open_sample(place: _Place, data: bytes, rows: NDArray[np.int64]) -> Iterator[Picture]:
    name = f"{place.path} at byte {place.offset}"
    if place.crc32 is not None and zlib.crc32(data) != place.crc32:
        raise InputError(name, None, "is not what the index describes; import the data again")
    if not place.packed:
        yield open_picture(data, name)
        return
    images = _as_batch(tarball.read_npy(data, name), name)
    if len(images) != place.images:
        raise InputError(name, None, f"holds {len(images)} images but {place.images} labels")
    for row in rows.tolist():
        yield f"{name}, image {row}", images[row]


def _as_batch(values: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """uint8 (n, 3, H, W) from that, (n, H, W, 3), one image of either, or one grey (H, W)."""
    batch = values[None] if values.ndim == 3 else values
    batch = np.repeat(values[None, None], 3, axis=1) if values.ndim == 2 else batch
    if batch.ndim == 4 and batch.shape[1] != 3 and batch.shape[3] == 3:
        batch = batch.transpose(0, 3, 1, 2)
    if batch.ndim != 4 or batch.shape[1] != 3 or batch.dtype != np.uint8:
        problem = f"has dtype {values.dtype} and shape {values.shape}; expected uint8 RGB, (3, H, W) or (n, 3, H, W)"
        raise InputError(name, None, problem)
    return batch

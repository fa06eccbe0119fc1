"""What lies where in a WebDataset tar that has no index: its headers and labels are read, its images are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raystitch import tarball
from raystitch.data.imageset import MAX_LABEL
from raystitch.errors import InputError

_PICTURES = ("jpg", "jpeg", "png", "webp")
_TEXT_LABELS = ("cls", "label", "cls.txt", "label.txt", "txt")
_ARRAY_LABELS = ("labels.npy", "label.npy", "cls.npy")


@dataclass(frozen=True)
class ScannedSample:
    """One sample: its key, where its image entry lies, whether that is an npy file, and its labels (one unless packed)."""

    key: str
    offset: int
    size: int
    packed: bool
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class _Entry:
    key: str
    kind: str
    offset: int
    size: int


def scan_shard(fs: Any, path: str) -> Iterator[ScannedSample]:
    """The samples of a tar in order.

    Raises:
        InputError: there is no such file, it is not a whole tar, an entry is a link or leads out of the tar, or a sample
            lacks an image or a label or has several.
    """
    try:
        stream = fs.open(path, "rb")
    except FileNotFoundError as error:
        raise InputError(path, None, "no such shard") from error
    with stream:
        entries = [
            _entry(member.name, member.offset_data, member.size, path)
            for member in tarball.members(stream, path)
            if member.isreg()
        ]
        for key, group in groupby(entries, key=lambda entry: entry.key):
            yield _sample(stream, path, key, list(group))


def _entry(name: str, offset: int, size: int, path: str) -> _Entry:
    """WebDataset's rule: the key ends at the first dot of the file's own name."""
    folder, _, base = name.rpartition("/")
    if name.startswith("/") or ".." in folder.split("/") or not base or "\\" in name:
        raise InputError(path, name, "the entry's name leads out of the tar")
    stem, _, kind = base.partition(".")
    return _Entry(f"{folder}/{stem}", kind.lower(), offset, size)


def _sample(stream: Any, path: str, key: str, entries: list[_Entry]) -> ScannedSample:
    images = [entry for entry in entries if _is_image(entry.kind)]
    labels = [entry for entry in entries if entry.kind in _TEXT_LABELS + _ARRAY_LABELS]
    labels = labels or [entry for entry in entries if entry.kind == "json"]
    for found, what in ((images, "image"), (labels, "label")):
        if len(found) != 1:
            kinds = ", ".join(entry.kind for entry in entries)
            raise InputError(path, key.lstrip("/"), f"the sample has {len(found)} {what} entries, not one: {kinds}")
    image, label = images[0], labels[0]
    stream.seek(label.offset)
    values = _read_labels(label.kind, stream.read(label.size), path, key.lstrip("/"))
    return ScannedSample(key.lstrip("/"), image.offset, image.size, image.kind.endswith("npy"), values)


def _is_image(kind: str) -> bool:
    return kind.rpartition(".")[2] in _PICTURES or (kind.endswith("npy") and kind not in _ARRAY_LABELS)


def _read_labels(kind: str, content: bytes, path: str, key: str) -> NDArray[np.int64]:
    if kind in _ARRAY_LABELS:
        values = np.atleast_1d(tarball.read_npy(content, path, key))
    else:
        try:
            text = json.loads(content)  # a number, in a cls entry as in json
            values = np.array([text["label"] if kind == "json" else text])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(path, key, f"its {kind} entry is no label: expected a number") from error
    if values.ndim != 1 or values.dtype.kind not in "iu" or (len(values) and values.min() < 0):
        raise InputError(path, key, f"its {kind} entry is no label: expected whole numbers from 0 on")
    if len(values) and values.max() > MAX_LABEL:
        raise InputError(path, key, f"its {kind} entry has the label {values.max()}, above {MAX_LABEL}")
    return values.astype(np.int64)

"""CIFAR-10 and CIFAR-100 as distributed and as torchvision keeps them: the python (pickled) or the binary batches.

``path`` is the folder of the batches, the folder that holds it (torchvision's root), or the ``.tar.gz`` itself. Pickled
batches are read by an unpickler that permits arrays of numbers only, so no file can run code. CIFAR-100 has its fine labels.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray

from raystitch.data.decode import Picture
from raystitch.data.imageset import Split
from raystitch.data.unpickle import read_plain_pickle
from raystitch.errors import InputError, MissingError
from raystitch.remote import locate

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_Rows = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True)
class _Layout:
    """One of the four distributions: its folder, files by split, file of class names, and how many label bytes a row has."""

    folder: str
    files: Mapping[Split, tuple[str, ...]]
    names: str
    classes: int
    labels: int = 0  # bytes before the pixels of a binary row; 0 for a pickle


_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_LAYOUTS = (
    _Layout("cifar-10-batches-py", {"train": _TRAIN, "test": ("test_batch",)}, "batches.meta", 10),
    _Layout(
        "cifar-10-batches-bin",
        {"train": tuple(f"{name}.bin" for name in _TRAIN), "test": ("test_batch.bin",)},
        "batches.meta.txt",
        10,
        labels=1,
    ),
    _Layout("cifar-100-python", {"train": ("train",), "test": ("test",)}, "meta", 100),
    _Layout(
        "cifar-100-binary", {"train": ("train.bin",), "test": ("test.bin",)}, "fine_label_names.txt", 100, labels=2
    ),
)


@dataclass(frozen=True)
class CifarSource:
    """Both splits in memory, in the order of the files."""

    images: Mapping[Split, NDArray[np.uint8]]
    targets: Mapping[Split, NDArray[np.int64]]
    names: tuple[str, ...]
    num_classes: int

    def class_names(self) -> Sequence[Sequence[str]]:
        """One name per class."""
        return tuple((name,) for name in self.names)

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels int64, fine ones for CIFAR-100."""
        return self.targets[split]

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Every row by itself."""
        return np.arange(len(self.targets[split]), dtype=np.int64)

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The images at ``rows``."""
        for row in rows:
            yield f"CIFAR {split} image {row}", self.images[split][row]

    def identity(self, split: Split) -> str:
        """SHA-256 of pixels and labels: the same for the python and the binary files."""
        return sha256(self.images[split].tobytes() + self.targets[split].tobytes()).hexdigest()


def find_cifar(url: str, options: Mapping[str, Any]) -> tuple[Any, str, _Layout] | None:
    """File system, folder and layout of the batches at, or directly in, ``url``; ``None`` if there are none."""
    fs, root = locate(url, options)
    if url.endswith((".tar.gz", ".tgz")):
        fs, root = fsspec.filesystem("tar", fo=fs.open(root, "rb"), compression="gzip", skip_instance_cache=True), ""
    for layout in _LAYOUTS:
        for folder in (posixpath.join(root, layout.folder), root):
            first = layout.files["train"][0], layout.names
            if all(fs.isfile(posixpath.join(folder, name)) for name in first):
                return fs, folder, layout
    return None


def open_cifar(url: str, where: str, options: Mapping[str, Any]) -> CifarSource:
    """Read all batches.

    Raises:
        MissingError: there are none.
        InputError: one is missing, or is not as distributed.
    """
    try:
        found = find_cifar(url, options)
    except Exception as error:  # what an archive or a remote folder raises depends on its file system
        kind = MissingError if isinstance(error, FileNotFoundError) else InputError
        raise kind(f"{where}.path", url, f"cannot be read: {error}") from error
    if found is None:
        expected = ", ".join(layout.folder for layout in _LAYOUTS)
        raise MissingError(f"{where}.path", url, f"holds no CIFAR batches; expected one of {expected}, or its .tar.gz")
    fs, folder, layout = found

    def read(name: str) -> bytes:
        try:
            return bytes(fs.cat_file(posixpath.join(folder, name)))
        except FileNotFoundError as error:
            raise InputError(f"{where}.path", url, f"the batch {name} of {layout.folder} is missing") from error

    parts: dict[Split, _Rows] = {split: _read_split(layout, split, read) for split in ("train", "test")}
    return CifarSource(
        {split: rows[0] for split, rows in parts.items()},
        {split: rows[1] for split, rows in parts.items()},
        _class_names(layout, read(layout.names)),
        layout.classes,
    )


def _read_split(layout: _Layout, split: Split, read: Callable[[str], bytes]) -> _Rows:
    decode = _binary_rows if layout.labels else _pickled_rows
    images, labels = zip(*(decode(read(name), layout, name) for name in layout.files[split]), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _binary_rows(data: bytes, layout: _Layout, name: str) -> _Rows:
    width = layout.labels + _PIXELS
    if not data or len(data) % width:
        raise InputError(name, None, f"has {len(data)} bytes, not a multiple of {width}")
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    return _checked(rows[:, layout.labels :], rows[:, layout.labels - 1].astype(np.int64), layout, name)


def _pickled_rows(data: bytes, layout: _Layout, name: str) -> _Rows:
    batch = read_plain_pickle(data, name)
    pixels, labels = batch.get("data"), batch.get("labels", batch.get("fine_labels"))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not isinstance(labels, list):
        raise InputError(name, None, "is not a CIFAR batch: expected a uint8 array 'data' and a list of labels")
    return _checked(pixels, np.array(labels), layout, name)


def _checked(pixels: NDArray[np.uint8], labels: NDArray[Any], layout: _Layout, name: str) -> _Rows:
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or labels.shape != pixels.shape[:1] or labels.dtype.kind != "i":
        problem = f"has pixels of shape {pixels.shape} and labels of shape {labels.shape}, not (N, {_PIXELS}) and (N,)"
        raise InputError(name, None, problem)
    if len(labels) and not 0 <= labels.min() <= labels.max() < layout.classes:
        raise InputError(name, None, f"has labels outside 0 to {layout.classes - 1}")
    return pixels.reshape(-1, 3, _SIDE, _SIDE), labels.astype(np.int64)


def _class_names(layout: _Layout, data: bytes) -> tuple[str, ...]:
    if layout.labels:
        return tuple(data.decode("utf-8", errors="replace").split())
    meta = read_plain_pickle(data, layout.names)
    names = meta.get("label_names", meta.get("fine_label_names", []))
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)

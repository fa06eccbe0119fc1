"""Image sets as folders ``train/<class>/*`` and ``test/<class>/*``; classes are numbered in order of their names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raystitch.config import DataConfig
from raystitch.data.decode import Picture, open_picture
from raystitch.data.files import find_class_root
from raystitch.data.imageset import Split
from raystitch.errors import InputError, MissingError, did_you_mean

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
_CHUNK = 256  # files fetched together: one round trip on an object store


@dataclass(frozen=True)
class _Tree:
    """The images of one split: relative paths ``class/…/file`` in sorted order with their sizes in bytes."""

    fs: Any
    root: str
    files: Mapping[str, int]

    @property
    def classes(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self.files})


@dataclass(frozen=True)
class FolderSource:
    """Both splits of a dataset; files are listed, not yet read."""

    trees: Mapping[Split, _Tree]

    @property
    def num_classes(self) -> int:
        """Class folders of the train split."""
        return len(self.trees["train"].classes)

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels int64 of all images of a split, in the order of their paths."""
        number = {name: index for index, name in enumerate(self.trees["train"].classes)}
        return np.array([number[path.partition("/")[0]] for path in self.trees[split].files], dtype=np.int64)

    def class_names(self) -> Sequence[Sequence[str]]:
        """Names of the train split's folders."""
        return tuple((name,) for name in self.trees["train"].classes)

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Every file by itself."""
        return np.arange(len(self.trees[split].files), dtype=np.int64)

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The images at ``rows`` of a split."""
        tree = self.trees[split]
        paths = [f"{tree.root}/{path}" for path in tree.files]
        for start in range(0, len(rows), _CHUNK):
            chunk = [paths[row] for row in rows[start : start + _CHUNK]]
            contents = tree.fs.cat_ranges(chunk, None, None, on_error="raise")  # `cat` takes [ and * for patterns
            for path, content in zip(chunk, contents, strict=True):
                yield open_picture(content, path)

    def identity(self, split: Split) -> str:
        """SHA-256 of the train split's class names and of the split's relative paths and file sizes."""
        facts = [self.trees["train"].classes, list(self.trees[split].files.items())]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def open_folder(config: DataConfig, where: str, options: Mapping[str, Any]) -> FolderSource:
    """List both splits.

    Raises:
        InputError: a split's folder is missing or has no images, or the test split has a class that train lacks.
    """
    trees: dict[Split, _Tree] = {s: _list_tree(config, s, where, options) for s in ("train", "test")}
    known = trees["train"].classes
    for name in trees["test"].classes:
        if name not in known:
            problem = f"class {name!r} is not among the classes of the train split{did_you_mean(name, known)}"
            raise InputError(trees["test"].root, None, problem)
    return FolderSource(trees)


def _list_tree(config: DataConfig, split: Split, where: str, options: Mapping[str, Any]) -> _Tree:
    fs, root, field = find_class_root(config, split, where, options)
    found = {path.removeprefix(root).lstrip("/"): info["size"] for path, info in fs.find(root, detail=True).items()}
    files = {path: found[path] for path in sorted(found) if _is_class_image(path)}
    if not files:
        raise MissingError(field, root, f"the {split} split has no images: expected one sub-folder of images per class")
    return _Tree(fs, root, files)


def _is_class_image(path: str) -> bool:
    parts = path.split("/")
    return len(parts) > 1 and path.lower().endswith(_SUFFIXES) and not any(part.startswith(".") for part in parts)

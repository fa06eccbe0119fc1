"""Class lists: a few classes of a dataset, by name, WordNet id or label, numbered anew in the order of the list."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raystitch.data.decode import Picture
from raystitch.data.imageset import Split
from raystitch.data.source import Source, blocks_of_rows
from raystitch.errors import InputError, did_you_mean
from raystitch.remote import NO_OPTIONS, read_url


@dataclass(frozen=True)
class Subset:
    """The rows of some classes of ``whole``, in its order; class k here is class ``kept[k]`` there."""

    whole: Source
    kept: tuple[int, ...]

    @property
    def num_classes(self) -> int:
        """Classes in the list."""
        return len(self.kept)

    def class_names(self) -> Sequence[Sequence[str]]:
        """Names of the kept classes."""
        names = self.whole.class_names()
        return tuple(names[label] if label < len(names) else () for label in self.kept)

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels as positions in the list."""
        return self._selection[split][1]

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Those of the whole, without the rows left out."""
        return blocks_of_rows(self.whole.blocks(split), self._selection[split][0])

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The pictures at ascending rows of the subset."""
        return self.whole.pictures(split, self._selection[split][0][rows].tolist())

    def identity(self, split: Split) -> str:
        """SHA-256 of the whole's identity and the labels kept."""
        facts = [self.whole.identity(split), self.whole.num_classes, self.kept]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @cached_property
    def _selection(self) -> Mapping[Split, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of the whole and new labels of each split."""
        position = np.full(self.whole.num_classes, -1, dtype=np.int64)
        position[list(self.kept)] = np.arange(len(self.kept))
        chosen: dict[Split, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for split in ("train", "test"):
            labels = position[self.whole.labels(split)]
            rows = np.flatnonzero(labels >= 0).astype(np.int64)
            chosen[split] = rows, labels[rows]
        return chosen


def choose_classes(
    source: Source, classes: str | Sequence[int | str], where: str, options: Mapping[str, Any]
) -> Subset:
    """The subset of a source that a class list names.

    Args:
        source: the whole dataset.
        classes: labels, names or WordNet ids; or the path or URL of a text file with one of these per line.
        where: config path of the dataset.
        options: passed to fsspec with a URL.

    Raises:
        InputError: the file cannot be read; an entry is unknown, ambiguous or there twice; a class has no training image.
    """
    field = f"{where}.classes"
    wanted = listed_classes(classes, where, options)
    find = _Finder(source, field)
    kept: dict[int, int | str] = {}
    for entry in wanted:
        label = find(entry)
        if label in kept:
            raise InputError(field, entry, f"names the same class as {kept[label]!r}; list each class once")
        kept[label] = entry
    present = set(source.labels("train").tolist())
    for label, entry in kept.items():
        if label not in present:
            raise InputError(field, entry, f"the train split has no image of this class (label {label})")
    return Subset(source, tuple(kept))


def listed_classes(classes: str | Sequence[int | str], where: str, options: Mapping[str, Any]) -> Sequence[int | str]:
    """The entries of a class list, or of the text file that it names.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    return _read_list(classes, f"{where}.classes", options) if isinstance(classes, str) else tuple(classes)


class _Finder:
    """Labels by the names that a source knows; case does not matter."""

    def __init__(self, source: Source, field: str) -> None:
        self.count, self.field = source.num_classes, field
        self.known: dict[str, set[int]] = {}
        for label, names in enumerate(source.class_names()):
            for name in names:
                self.known.setdefault(name.casefold(), set()).add(label)

    def __call__(self, entry: int | str) -> int:
        labels = self.known.get(entry.strip().casefold(), set()) if isinstance(entry, str) else set()
        if len(labels) > 1:
            raise InputError(
                self.field, entry, f"names several classes, with labels {sorted(labels)}; give one of these"
            )
        if labels:
            return next(iter(labels))
        if isinstance(entry, int) or re.fullmatch(r"\d{1,18}", entry.strip(), re.ASCII):
            if 0 <= int(entry) < self.count:
                return int(entry)
            raise InputError(self.field, entry, f"is no label of this dataset, which has 0 to {self.count - 1}")
        if not self.known:
            problem = f"the files name no classes; give labels, 0 to {self.count - 1}"
            raise InputError(self.field, entry, problem)
        raise InputError(self.field, entry, f"unknown class{did_you_mean(entry.casefold(), self.known)}")


def _read_list(url: str, field: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Lines of a text file; blank ones and those that begin with # do not count."""
    try:
        text = read_url(url, options if "://" in url else NO_OPTIONS).decode("utf-8")
        lines = [line.strip() for line in text.splitlines()]
    except Exception as error:  # what a remote file raises depends on its file system
        reason = str(error) or type(error).__name__
        problem = f"cannot be read ({reason}); give a list of classes or a text file with one per line"
        raise InputError(field, url, problem) from error
    entries = tuple(line for line in lines if line and not line.startswith("#"))
    if not entries:
        raise InputError(field, url, "lists no classes")
    return entries

"""Image sets in the Hugging Face hub's Parquet layout: a struct column with ``bytes``, and an integer label column.

Classes are named by the hub's metadata, where the files have it, and by the WordNet ids with which images' paths may begin.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raystitch.config import DataConfig
from raystitch.data.decode import Picture, open_picture
from raystitch.data.files import find_files
from raystitch.data.imageset import MAX_LABEL, Split
from raystitch.errors import InputError

_LABEL_NAMES = ("label", "labels", "fine_label", "coarse_label", "class", "target", "y")
_NUMBERINGS = ("id", "idx", "index", "__index_level_0__")  # columns of integers that are no labels
_CELLS = 256  # rows whose bytes are in memory at once
_WORDNET = re.compile(r"n\d{8}(?!\d)")


@dataclass(frozen=True)
class _Table:
    """One Parquet file: where it is, its image column, all its labels, rows of each row group, names of its classes."""

    fs: Any
    path: str
    image_column: str
    labels: NDArray[np.int64]
    groups: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class ParquetSource:
    """Both splits of a dataset; labels are read, images are not yet."""

    tables: Mapping[Split, Sequence[_Table]]

    @property
    def num_classes(self) -> int:
        """Largest label of either split + 1."""
        return 1 + max(
            (int(t.labels.max()) for tables in self.tables.values() for t in tables if len(t.labels)), default=0
        )

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels int64 of all rows of a split: its files in the order of their names."""
        return np.concatenate([table.labels for table in self.tables[split]])

    def class_names(self) -> Sequence[Sequence[str]]:
        """The hub's names, each also by its synonyms (``tench, Tinca tinca``), and WordNet ids from the images' paths."""
        names: list[dict[str, None]] = [{} for _ in range(self.num_classes)]
        for table in self.tables["train"]:
            for known, name in zip(names, table.names, strict=False):
                known.update(dict.fromkeys([name, *name.split(", ")]))
            for label, wordnet in _wordnet_ids(table):
                names[label][wordnet] = None
        return tuple(tuple(known) for known in names)

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Row groups."""
        sizes = [rows for table in self.tables[split] for rows in table.groups if rows]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int64)

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The images at ascending ``rows`` of a split; only row groups that hold some are read."""
        wanted = np.asarray(rows, dtype=np.int64)
        start = 0
        for table in self.tables[split]:
            stop = start + len(table.labels)
            mine = wanted[(wanted >= start) & (wanted < stop)] - start
            if len(mine):
                yield from _pictures_in(table, mine)
            start = stop

    def identity(self, split: Split) -> str:
        """SHA-256 of the bytes of the split's files, in order; names do not count."""
        whole = hashlib.sha256()
        for table in self.tables[split]:
            whole.update(_digest(table.fs, table.path))
        return whole.hexdigest()


def open_parquet(config: DataConfig, where: str, options: Mapping[str, Any]) -> ParquetSource:
    """Find both splits and read their labels.

    Raises:
        InputError: a split is missing, a file is not Parquet or damaged, a column is missing, or a label is null, negative or
            above 1,000,000.
    """
    tables: dict[Split, list[_Table]] = {}
    for split in ("train", "test"):
        fs, files = find_files(config, split, where, options, ".parquet")
        tables[split] = [_open_table(fs, path) for path in files]
    return ParquetSource(tables)


@contextmanager
def _opened(fs: Any, path: str) -> Iterator[Any]:
    """A Parquet file; whatever Arrow finds wrong inside the block names it."""
    with fs.open(path, "rb") as stream:
        try:
            yield pq.ParquetFile(stream)
        except (pa.ArrowException, OSError, ValueError, KeyError, UnicodeError) as error:  # OSError: a damaged page
            raise InputError(path, None, f"is not a readable Parquet file: {error}") from error


def _open_table(fs: Any, path: str) -> _Table:
    with _opened(fs, path) as file:
        image, label = _columns(file.schema_arrow, path)
        labels = _labels(file.read(columns=[label]).column(label), label, path)
        groups = tuple(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        return _Table(fs, path, image, labels, groups, _hub_names(file.schema_arrow.metadata, label))


def _labels(column: Any, name: str, path: str) -> NDArray[np.int64]:
    if column.null_count:
        raise InputError(path, None, f"column {name!r} has {column.null_count} missing labels")
    values = column.to_numpy()
    if len(values) and values.min() < 0:
        problem = f"column {name!r} has negative labels (hidden test labels?); choose a split whose labels are known"
        raise InputError(path, int(values.min()), problem)
    if len(values) and values.max() > MAX_LABEL:
        raise InputError(
            path, int(values.max()), f"column {name!r} has labels above {MAX_LABEL}, so they are no classes"
        )
    return np.asarray(values, dtype=np.int64)


def _columns(schema: Any, path: str) -> tuple[str, str]:
    """Names of the image column (first struct with ``bytes``) and label column (a usual name, else the only integers)."""
    images = [f.name for f in schema if pa.types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0]
    if not images:
        raise InputError(path, schema.names, "has no image column: expected a struct with a field 'bytes'")
    integers = [f.name for f in schema if pa.types.is_integer(f.type)]
    named = [name for name in _LABEL_NAMES if name in integers]
    others = [name for name in integers if name.casefold() not in _NUMBERINGS]
    if not named and len(others) != 1:
        several = f", and {' and '.join(map(repr, others))} may each be it" if others else ""
        problem = f"has no label column: expected a column of integers called {', '.join(_LABEL_NAMES)}{several}"
        raise InputError(path, schema.names, problem)
    return images[0], (named or others)[0]


def _hub_names(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """Class names in what the hub's ``datasets`` library writes beside a schema; empty where there are none."""
    try:
        facts = json.loads((metadata or {})[b"huggingface"])
        names = facts["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _wordnet_ids(table: _Table) -> set[tuple[int, str]]:
    """Label and WordNet id of the images whose paths begin with one."""
    with _opened(table.fs, table.path) as file:
        if file.schema_arrow.field(table.image_column).type.get_field_index("path") < 0:
            return set()
        cells = file.read(columns=[f"{table.image_column}.path"]).column(0).to_pylist()
    begins = (_WORDNET.match((cell or {}).get("path") or "") for cell in cells)
    return {(int(label), match[0]) for label, match in zip(table.labels, begins, strict=True) if match}


def _pictures_in(table: _Table, rows: NDArray[np.int64]) -> Iterator[Picture]:
    with _opened(table.fs, table.path) as file:
        start = 0
        for group in range(file.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            mine = rows[(rows >= start) & (rows < stop)]
            if len(mine):
                yield from _pictures_of_group(file, group, table, mine, start)
            start = stop


def _pictures_of_group(file: Any, group: int, table: _Table, rows: NDArray[np.int64], start: int) -> Iterator[Picture]:
    """The images at some rows of a row group that begins at row ``start``, a few cells in memory at a time."""
    for batch in file.iter_batches(_CELLS, row_groups=[group], columns=[table.image_column]):
        mine = rows[(rows >= start) & (rows < start + len(batch))]
        for row, cell in zip(mine, batch.column(0).take(pa.array(mine - start)).to_pylist(), strict=True):
            yield _open_cell(cell, f"{table.path} row {row}")
        start += len(batch)


def _open_cell(cell: Mapping[str, Any] | None, name: str) -> Picture:
    data = cell["bytes"] if cell else None
    if data is None:
        raise InputError(name, None, "holds no image bytes; embed the images in the Parquet file")
    return open_picture(data, name)


def _digest(fs: Any, path: str) -> bytes:
    digest = hashlib.sha256()
    with fs.open(path, "rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.digest()

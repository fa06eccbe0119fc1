"""Parquet files of rows in a store: many small ones, one per unit, and the large one into which :func:`compact` merges them.

The merged file is a copy that saves readers thousands of requests; the small ones stay, and they alone say what is done. So
merging may happen at any time, also while sweeps write and while another merges: whoever reads takes from the merged file
the rows whose small file is still the one that they are from, and the rest from the small ones. That a listing tells, with
no request of its own: column ``source`` keeps the stamp (:meth:`Store.stamps`) that the small file had just before it was
read. Rows of merged files of older versions, which lack the column, may be outdated, so they are read from the small ones.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from raystitch.errors import InputError
from raystitch.store import Store

FOLDER, MANIFEST = "compact", "compact/manifest.json"
_TRIES, _AT_ONCE = 3, 1000
_SOURCE = pa.field("source", pa.string())
_COLUMNS = b"raystitch.columns"
_NAME = re.compile(r"[0-9a-f]{20}\.parquet")

Damaged = Callable[[str], None]
"""Is given the name of each file that could not be read."""
Sound = Callable[[str, pa.Table], bool]
"""Whether what a file of that name holds can be what was written there."""


@dataclass(frozen=True)
class Merged:
    """What :func:`compact` did: units in the merged file, how many of them are new in it, and its name in the store."""

    units: int
    added: int
    name: str


def read_rows(store: Store, units: Collection[str], schema: pa.Schema, damaged: Damaged) -> pa.Table:
    """Rows of those of the units that are done, in no certain order.

    Args:
        store: where ``fits/<unit>.parquet`` lie.
        units: ids.
        schema: of the rows; columns that older files lack are null.
        damaged: called for each unreadable file.
    """
    stamps = _stamps(store)
    wanted = {unit: stamps[unit] for unit in units if unit in stamps}
    merged = _current(_read_merged(store, schema, damaged), wanted).drop_columns([_SOURCE.name])
    rest = wanted.keys() - set(merged["unit"].to_pylist())
    return pa.concat_tables([merged, *_read_units(store, rest, schema, damaged)])


def compact(store: Store, schema: pa.Schema, damaged: Damaged) -> Merged | None:
    """Merge the rows of all units into one file. Returns ``None`` where nothing is done yet.

    Files of earlier merges are deleted, but for the one before this, which somebody may be reading.
    """
    stamps = _stamps(store)
    before = _current(_read_merged(store, schema, damaged), stamps)
    known = set(before["unit"].to_pylist())
    new = [_with_source(rows, stamps) for rows in _read_units(store, stamps.keys() - known, schema, damaged)]
    table = pa.concat_tables([before, *new]).combine_chunks()
    units = len(set(table["unit"].to_pylist()))
    if not units:
        return None
    content = encode(table)
    name = f"{hashlib.sha256(content).hexdigest()[:20]}.parquet"
    last = _manifest(store)
    if name != last or not known:  # also where the file of this name is lost or damaged
        store.replace(f"{FOLDER}/{name}", content)
        store.replace(MANIFEST, json.dumps({"file": name, "units": units}).encode())
        for old in store.names(FOLDER) - {name, last, MANIFEST.rsplit("/", 1)[-1]}:
            store.remove(f"{FOLDER}/{old}")
    return Merged(units, units - len(known), f"{FOLDER}/{name}")


def _stamps(store: Store) -> dict[str, str]:
    """The units that are done, each with the stamp of its file."""
    found = store.stamps("fits").items()
    return {name.removesuffix(".parquet"): stamp for name, stamp in found if name.endswith(".parquet")}


def _current(merged: pa.Table, stamps: Mapping[str, str]) -> pa.Table:
    """The rows that are from these very files; a file without a stamp may be any other."""
    origins = zip(merged["unit"].to_pylist(), merged[_SOURCE.name].to_pylist(), strict=True)
    return merged.filter(
        pa.array([bool(source) and stamps.get(unit) == source for unit, source in origins], pa.bool_())
    )


def _with_source(rows: pa.Table, stamps: Mapping[str, str]) -> pa.Table:
    return rows.append_column(_SOURCE, pa.array([stamps[unit] for unit in rows["unit"].to_pylist()], _SOURCE.type))


def _read_merged(store: Store, schema: pa.Schema, damaged: Damaged) -> pa.Table:
    """All rows of the merged file with their source; none where there is no such file."""
    wanted = schema.append(_SOURCE)
    for _ in range(_TRIES):  # a file that goes while it is about to be read has a successor
        name = _manifest(store)
        if name is None:
            break
        try:
            content = store.read(f"{FOLDER}/{name}")
        except FileNotFoundError:
            continue
        except InputError:  # a copy that cannot be read is no worse than one that is damaged
            damaged(f"{FOLDER}/{name}")
            break
        table = _decode(f"{FOLDER}/{name}", content, wanted, damaged, _has_rows_of_units)
        return wanted.empty_table() if table is None else table
    return wanted.empty_table()


def read_tables(store: Store, names: Collection[str], schema: pa.Schema, damaged: Damaged) -> list[pa.Table]:
    """Files as tables of exactly the schema, without those that are damaged; one that is not there counts as such."""
    contents = store.read_many(names)
    for name in sorted(set(names).difference(contents)):
        damaged(name)
    return _decode_all(contents, schema, damaged, _has_rows_of_units)


def _read_units(store: Store, units: Collection[str], schema: pa.Schema, damaged: Damaged) -> list[pa.Table]:
    """Files some at a time, as one table each: thousands of tables of one row would take gibibytes.

    One that was put aside since it was listed is left out.
    """
    names, tables = [f"fits/{unit}.parquet" for unit in sorted(units)], []
    for begin in range(0, len(names), _AT_ONCE):
        contents = store.read_many(names[begin : begin + _AT_ONCE])
        if found := _decode_all(contents, schema, damaged, _has_its_own_rows):
            tables.append(pa.concat_tables(found).combine_chunks())
    return tables


def _decode_all(contents: Mapping[str, bytes], schema: pa.Schema, damaged: Damaged, sound: Sound) -> list[pa.Table]:
    tables = (_decode(name, content, schema, damaged, sound) for name, content in contents.items())
    return [table for table in tables if table is not None]


def _decode(name: str, content: bytes, schema: pa.Schema, damaged: Damaged, sound: Sound) -> pa.Table | None:
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        read = file.read(use_threads=False)
        table = _fit_schema(read, schema)
        table.validate(full=True)
        if _has_its_columns(read) and sound(name, table):
            return table
    except (pa.ArrowException, OSError, KeyError, ValueError):
        pass  # no Parquet file, other columns or one twice, bytes that are no text
    damaged(name)
    return None


def _has_its_columns(table: pa.Table) -> bool:
    """Whether columns have the names that they were written with: a changed one would pass for one that is not there."""
    written = (table.schema.metadata or {}).get(_COLUMNS)
    return written in (None, _digest_of_columns(table))  # files of older versions have none


def _digest_of_columns(table: pa.Table) -> bytes:
    return hashlib.sha256("\n".join(table.column_names).encode()).hexdigest()[:20].encode()


def _has_its_own_rows(name: str, table: pa.Table) -> bool:
    unit = name.rsplit("/", 1)[-1].removesuffix(".parquet")
    return set(table["unit"].to_pylist()) == {unit} and _has_no_row_twice(table)


def _has_rows_of_units(name: str, table: pa.Table) -> bool:
    return not table["unit"].null_count and _has_no_row_twice(table)


def _has_no_row_twice(table: pa.Table) -> bool:
    """A unit has one row for each evaluation set."""
    keys = [key for key in ("unit", "eval_set") if key in table.column_names]
    return "eval_set" not in keys or len(table.group_by(keys).aggregate([])) == len(table)


def _manifest(store: Store) -> str | None:
    """Name of the merged file inside its folder; ``None`` without any, or where the manifest is damaged."""
    try:
        name = json.loads(store.read(MANIFEST))["file"]
    except (FileNotFoundError, InputError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) and _NAME.fullmatch(name) else None


def encode(table: pa.Table) -> bytes:
    """A table as one Parquet file, whose pages have checksums, and whose footer has one of the columns' names."""
    stream = io.BytesIO()
    marked = table.replace_schema_metadata({_COLUMNS: _digest_of_columns(table)})
    pq.write_table(marked, stream, compression="zstd", row_group_size=1 << 20, write_page_checksum=True)
    return stream.getvalue()


def _fit_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Files of older versions may lack columns: they become null."""
    if table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)

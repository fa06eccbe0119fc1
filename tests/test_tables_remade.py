"""Units whose rows were merged and whose files were then made anew: tables show the new rows, from the first moment on."""

from __future__ import annotations

import io
import json
import os
import threading
import uuid
from collections.abc import Collection
from pathlib import Path
from secrets import token_hex

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3server import BUCKET
from test_plan import CATALOGUE, study
from test_results import row

from raystitch.plan import expand
from raystitch.results import encode_rows, load_table, merge_rows, publish_study
from raystitch.store import Store
from raystitch.tables import MANIFEST
from raystitch.units import FitUnit

UNITS = [fit for fit in expand(study(), CATALOGUE).fits if fit.kind == "fit"][:4]


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.xdist_group("s3"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that records a study of which four fits are done, with agreements of 0 to 3 percent."""
    if request.param == "s3":
        request.getfixturevalue("s3")
    places = {"local": str(tmp_path), "memory": f"memory://{uuid.uuid4().hex}"}
    store, config = Store(places.get(request.param, f"s3://{BUCKET}/remade/{uuid.uuid4().hex}")), study()
    publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    for number, unit in enumerate(UNITS):
        store.publish(unit.marker, rows(unit, number))
    return store


def rows(unit: FitUnit, agreement: int) -> bytes:
    """A file of its own length for each agreement: these tests write faster than the clocks of some filesystems tick."""
    return encode_rows([{**row(unit, agreement), "device": token_hex(8 * (1 + agreement))}])


def agreements(store: Store) -> list[float]:
    """Of the four fits, in their order."""
    table = load_table(store, on_damage=lambda name: pytest.fail(f"{name} counts as damaged"))
    by_unit: dict[str, float] = dict(zip(table["unit"], table["agreement"], strict=True))
    return [by_unit[unit.id] for unit in UNITS if unit.id in by_unit]


def read_singly(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of units that a table is read from, beside the merged file."""
    asked: list[str] = []
    real = Store.read_many
    with monkeypatch.context() as patch:
        patch.setattr(Store, "read_many", lambda self, names: asked.extend(names) or real(self, names))
        agreements(store)
    return [name for name in asked if name.startswith("fits/")]


def test_a_unit_that_is_made_again_shows_its_new_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    merge_rows(store)
    assert read_singly(store, monkeypatch) == []
    store.quarantine(UNITS[1].marker)
    assert agreements(store) == [0, 2, 3]
    store.publish(UNITS[1].marker, rows(UNITS[1], 7))
    assert agreements(store) == [0, 7, 2, 3]
    assert read_singly(store, monkeypatch) == [UNITS[1].marker]
    merged = merge_rows(store)
    assert merged is not None
    assert (merged.units, merged.added) == (4, 1)
    assert agreements(store) == [0, 7, 2, 3]
    assert read_singly(store, monkeypatch) == []


def test_a_file_that_is_replaced_or_damaged_in_place_is_looked_at(store: Store) -> None:
    merge_rows(store)
    store.replace(UNITS[0].marker, rows(UNITS[0], 9))
    store.replace(UNITS[2].marker, b"torn")
    damaged: list[str] = []
    table = load_table(store, on_damage=damaged.append)
    assert damaged == [UNITS[2].marker]
    assert sorted(table["agreement"]) == [1, 3, 9]


def test_a_unit_that_is_gone_is_merged_no_more(store: Store) -> None:
    merge_rows(store)
    store.remove(UNITS[3].marker)
    merged = merge_rows(store)
    assert merged is not None
    assert (merged.units, merged.added) == (3, 0)
    store.publish(UNITS[3].marker, rows(UNITS[3], 8))
    assert agreements(store) == [0, 1, 2, 8]


def test_a_unit_that_is_made_again_while_it_is_merged_counts_as_new(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Store.read_many

    def late(self: Store, names: Collection[str]) -> dict[str, bytes]:
        found = read(self, names)
        store.replace(UNITS[1].marker, rows(UNITS[1], 5))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Store, "read_many", late)
        merge_rows(store)
    assert agreements(store) == [0, 5, 2, 3]


def test_a_merged_file_of_an_older_version_is_not_believed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = merge_rows(store)
    assert merged is not None
    table, older = pq.read_table(io.BytesIO(store.read(merged.name))).drop_columns(["source"]), io.BytesIO()
    outdated = pa.array([50.0] * len(table), pa.float64())
    table = table.set_column(table.column_names.index("agreement"), "agreement", outdated)
    pq.write_table(table.replace_schema_metadata(None), older)
    store.replace("compact/0123456789abcdef0123.parquet", older.getvalue())
    store.replace(MANIFEST, json.dumps({"file": "0123456789abcdef0123.parquet", "units": 4}).encode())
    assert agreements(store) == [0, 1, 2, 3]
    assert len(read_singly(store, monkeypatch)) == 4
    merge_rows(store)
    assert agreements(store) == [0, 1, 2, 3]
    assert read_singly(store, monkeypatch) == []


def test_where_a_listing_tells_nothing_the_small_files_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raystitch.store._VERSIONS", ())
    merge_rows(store)
    store.replace(UNITS[1].marker, rows(UNITS[1], 5))
    assert agreements(store) == [0, 5, 2, 3]
    assert set(read_singly(store, monkeypatch)) == {unit.marker for unit in UNITS}


def test_units_are_made_again_while_others_read_and_merge(store: Store) -> None:
    """Each unit's agreement only grows, so a table with a smaller one than before would show an outdated row."""

    def make_again() -> None:
        for number in range(4, 24):
            store.replace(UNITS[number % 4].marker, rows(UNITS[number % 4], number))

    threads = [threading.Thread(target=work) for work in (make_again, lambda: [merge_rows(store) for _ in range(6)])]
    for thread in threads:
        thread.start()
    last = agreements(store)
    while any(map(threading.Thread.is_alive, threads)):
        now = agreements(store)
        assert all(new >= old for new, old in zip(now, last, strict=True))
        last = now
    assert agreements(store) == [20, 21, 22, 23]
    merge_rows(store)
    assert agreements(store) == [20, 21, 22, 23]


def test_a_copy_of_a_storage_has_the_same_table(tmp_path: Path) -> None:
    """Times of change differ in a copy, so the small files are read; a merge there helps again."""
    first, copy = Store(str(tmp_path / "first")), Store(str(tmp_path / "copy"))
    publish_study(first, study(), expand(study(), CATALOGUE), {"created": "now", "version": "1"})
    for number, unit in enumerate(UNITS):
        first.publish(unit.marker, rows(unit, number))
    merge_rows(first)
    for name in first.tree(""):
        copy.replace(name, first.read(name))
        os.utime(tmp_path / "copy" / name, (1, 1))
    pd.testing.assert_frame_equal(load_table(copy), load_table(first))


def test_a_file_of_the_same_size_and_time_is_another_one_still(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    publish_study(store, study(), expand(study(), CATALOGUE), {"created": "now", "version": "1"})
    file = tmp_path / UNITS[0].marker
    store.publish(UNITS[0].marker, encode_rows([row(UNITS[0], 12.5)]))
    merge_rows(store)
    before = file.stat()
    file.write_bytes(encode_rows([row(UNITS[0], 25.0)]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as rsync and cp -p leave it
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert agreements(store) == [25.0]


def test_a_merged_file_that_cannot_be_read_is_no_worse_than_a_damaged_one(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    publish_study(store, study(), expand(study(), CATALOGUE), {"created": "now", "version": "1"})
    store.publish(UNITS[0].marker, encode_rows([row(UNITS[0], 12.5)]))
    merged = merge_rows(store)
    assert merged is not None
    (tmp_path / merged.name).unlink()
    (tmp_path / merged.name).mkdir()
    named: list[str] = []
    assert load_table(store, on_damage=named.append)["agreement"].tolist() == [12.5]
    assert named == [merged.name]

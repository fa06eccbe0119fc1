"""Tables in which a bit has changed: they are damaged, or the change is without consequence."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_plan import CATALOGUE, study
from test_results import row

from raystitch.plan import expand
from raystitch.results import encode_rows, load_table, publish_study
from raystitch.store import Store
from raystitch.tables import encode, read_tables

UNIT = next(fit for fit in expand(study(), CATALOGUE).fits if fit.kind == "fit")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that records a study of which nothing is done."""
    store, config = Store(str(tmp_path)), study()
    publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    return store


def test_a_flipped_bit_is_told_or_is_without_consequence(store: Store) -> None:
    content = encode_rows([row(UNIT, 50.0)])
    store.replace(UNIT.marker, content)
    whole = load_table(store)
    for place in range(0, len(content), 61):
        for bit in (0, 6):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            store.replace(UNIT.marker, bytes(flipped))
            damaged: list[str] = []
            table = load_table(store, on_damage=damaged.append)
            assert len(table) == (0 if damaged else 1)
            if not damaged:
                pd.testing.assert_frame_equal(table, whole)


def test_text_that_is_none_is_damage(store: Store) -> None:
    table = pq.read_table(io.BytesIO(encode_rows([row(UNIT, 50.0)])))
    no_text = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    stream = io.BytesIO()
    pq.write_table(table.set_column(table.column_names.index("objective"), "objective", no_text), stream)
    store.replace(UNIT.marker, stream.getvalue())
    damaged: list[str] = []
    assert len(load_table(store, on_damage=damaged.append)) == 0
    assert damaged == [UNIT.marker]


def test_no_bit_of_a_footer_changes_a_table_unseen(tmp_path: Path) -> None:
    schema = pa.schema([("unit", pa.string()), ("agreement", pa.float64()), ("later", pa.list_(pa.float64()))])
    rows = [{"unit": "x", "agreement": 50.0, "later": [0.5, 0.25]}, {"unit": "y", "agreement": 60.0, "later": []}]
    table = pa.Table.from_pylist(rows, schema=schema)
    store, content = Store(str(tmp_path)), encode(table)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for place in range(footer, len(content)):
        for bit in (0, 1, 4, 5):  # bit 5 makes small letters large
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            store.replace("x.parquet", bytes(flipped))
            damaged: list[str] = []
            found = read_tables(store, ["x.parquet"], schema, damaged.append)
            assert damaged == ["x.parquet"] if not found else found == [table]


def test_a_column_with_a_changed_name_is_damage_and_not_one_that_is_lacking(store: Store) -> None:
    content = encode_rows([row(UNIT, 50.0)])
    store.publish(UNIT.marker, content.replace(b"agreement", b"agreemenu"))
    damaged: list[str] = []
    assert len(load_table(store, on_damage=damaged.append)) == 0
    assert damaged == [UNIT.marker]


def test_a_column_that_a_version_lacked_or_has_no_more_is_no_damage(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.replace("x.parquet", encode(pa.table({"unit": ["x"], "kept": [1.0], "dropped": [2.0]})))
    schema = pa.schema([("unit", pa.string()), ("kept", pa.float64()), ("new", pa.float64())])
    (table,) = read_tables(store, ["x.parquet"], schema, lambda name: pytest.fail(f"{name} counts as damaged"))
    assert table.to_pylist() == [{"unit": "x", "kept": 1.0, "new": None}]

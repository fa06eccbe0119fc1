"""Merging the rows of many units into one file: readers see the same table before, during and after."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_plan import CATALOGUE, study
from test_results import row

from raystitch.cli import main
from raystitch.damage import DamageWarning
from raystitch.plan import expand
from raystitch.reporting import publish_report
from raystitch.results import MEASURED, encode_rows, load_results, load_table, merge_rows, publish_study
from raystitch.store import Store
from raystitch.tables import MANIFEST, compact
from raystitch.units import FitUnit

PROVENANCE = {"created": "now", "version": "1"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that records a study of which nothing is done."""
    store, config = Store(str(tmp_path)), study()
    publish_study(store, config, expand(config, CATALOGUE), PROVENANCE)
    return store


def _units() -> list[FitUnit]:
    return [fit for fit in expand(study(), CATALOGUE).fits if fit.kind == "fit"]


def _finish(store: Store, units: list[FitUnit], first: float = 0.0) -> None:
    for number, unit in enumerate(units):
        store.publish(unit.marker, encode_rows([row(unit, first + number)]))


def _damage_is_an_error(name: str) -> None:
    raise AssertionError(f"{name} counts as damaged")


def _table(store: Store) -> pd.DataFrame:
    return load_table(store, on_damage=_damage_is_an_error)


def _merged_files(store: Store) -> set[str]:
    return {name for name in store.names("compact") if name.endswith(".parquet")}


def test_many_files_are_read_some_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    units = _units()
    _finish(store, units)
    at_once = _table(store)
    assert len(at_once) == len(units) > 5
    monkeypatch.setattr("raystitch.tables._AT_ONCE", 2)
    pd.testing.assert_frame_equal(_table(store), at_once, check_exact=True)
    damaged: list[str] = []
    for unit in units[:2]:
        store.replace(unit.marker, b"torn")
    assert len(load_table(store, on_damage=damaged.append)) == len(units) - 2
    assert sorted(damaged) == sorted(unit.marker for unit in units[:2])


def test_the_table_is_the_same_before_and_after_and_as_more_is_done(store: Store) -> None:
    units = _units()
    assert merge_rows(store) is None
    _finish(store, units[:5])
    before = _table(store)
    merged = merge_rows(store)
    assert merged is not None
    assert (merged.units, merged.added) == (5, 5)
    pd.testing.assert_frame_equal(_table(store), before)
    _finish(store, units[5:8], first=50.0)
    grown = _table(store)
    assert len(grown) > len(before)
    again = merge_rows(store)
    assert again is not None
    assert (again.units, again.added) == (8, 3)
    pd.testing.assert_frame_equal(_table(store), grown)


def test_rows_come_from_the_merged_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    units = _units()
    _finish(store, units[:6])
    merge_rows(store)
    _finish(store, units[6:7])
    asked: list[str] = []
    real = Store.read_many
    monkeypatch.setattr(Store, "read_many", lambda self, names: asked.extend(names) or real(self, names))
    _table(store)
    assert [name for name in asked if name.startswith("fits/")] == [units[6].marker]


def test_merging_changes_nothing_that_says_what_is_done(store: Store) -> None:
    units = _units()
    _finish(store, units[:4])
    files = store.tree("fits")
    merge_rows(store)
    assert store.tree("fits") == files
    store.remove(units[0].marker)  # to be made again: the table has it no more
    assert units[0].id not in set(_table(store)["unit"])


def test_merging_twice_writes_nothing_new_and_old_files_go(store: Store) -> None:
    units, seen = _units(), []
    for count in (2, 4, 6, 6):
        _finish(store, units[:count])
        merge_rows(store)
        seen.append(_merged_files(store))
    assert [len(files) for files in seen] == [1, 2, 2, 2]  # the newest, and the one before it
    assert seen[3] == seen[2]


def test_a_lost_or_damaged_merged_file_costs_time_only(store: Store) -> None:
    _finish(store, _units()[:4])
    before = _table(store)
    merged = merge_rows(store)
    assert merged is not None
    whole = store.read(merged.name)
    store.replace(merged.name, whole[: len(whole) // 2])
    damaged: list[str] = []
    pd.testing.assert_frame_equal(load_table(store, on_damage=damaged.append), before)
    assert damaged == [merged.name]
    store.remove(merged.name)
    pd.testing.assert_frame_equal(_table(store), before)
    store.replace(MANIFEST, b"{")
    pd.testing.assert_frame_equal(_table(store), before)
    store.replace(MANIFEST, json.dumps({"file": "../fits/x.parquet"}).encode())
    pd.testing.assert_frame_equal(_table(store), before)
    assert merge_rows(store) is not None
    pd.testing.assert_frame_equal(_table(store), before)


def test_a_damaged_unit_is_left_out_and_merged_once_it_is_made_again(store: Store) -> None:
    units = _units()
    _finish(store, units[:3])
    store.replace(units[1].marker, b"PAR1 no more")
    names: list[str] = []
    schema = pa.schema([("unit", pa.string()), ("agreement", pa.float64())])
    merged = compact(store, schema, names.append)
    assert names == [units[1].marker]
    assert merged is not None
    assert merged.units == 2
    store.remove(units[1].marker)
    _finish(store, units[1:2], first=1.0)
    again = compact(store, schema, names.append)
    assert again is not None
    assert (again.units, again.added) == (3, 1)


def test_readers_and_other_merges_go_on_while_a_sweep_writes(store: Store) -> None:
    units = _units()
    assert len(units) > 30
    writer = threading.Thread(target=_finish, args=(store, units))
    others = [threading.Thread(target=lambda: [merge_rows(store) for _ in range(6)]) for _ in range(2)]
    for thread in (writer, *others):
        thread.start()
    counts = []
    while writer.is_alive() or any(map(threading.Thread.is_alive, others)):
        counts.append(_table(store)["unit"].nunique())
    assert counts == sorted(counts), "what was seen is never lost again"
    merge_rows(store)
    table = _table(store)
    assert set(table["unit"]) == {unit.id for unit in units}
    assert not table.duplicated().any()


def test_the_command_says_what_it_did(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    _finish(store, _units()[:3])
    assert main(["compact", "--storage", store.url]) == 0
    assert "3 units in compact/" in capsys.readouterr().out


def test_a_file_with_rows_of_another_unit_is_damaged_and_never_doubles_any(store: Store) -> None:
    units = _units()
    _finish(store, units[:3])
    store.replace(units[0].marker, store.read(units[1].marker))
    names: list[str] = []
    for _ in range(3):
        compact(store, MEASURED, names.append)
        table = load_table(store, on_damage=names.append)
        assert set(table["unit"]) == {units[1].id, units[2].id}
        assert not table.duplicated(["setting", "unit", "eval_set"]).any()
    assert set(names) == {units[0].marker}


def test_a_unit_with_an_evaluation_set_twice_is_damaged_and_never_merged(store: Store) -> None:
    units = _units()
    _finish(store, units[:3])
    store.replace(units[0].marker, encode_rows([row(units[0], 1.0), row(units[0], 2.0)]))
    names: list[str] = []
    for _ in range(2):
        compact(store, MEASURED, names.append)
        assert set(load_table(store, on_damage=names.append)["unit"]) == {units[1].id, units[2].id}
    assert set(names) == {units[0].marker}, "the merged file never is"


@pytest.mark.parametrize("foreign", [{"x": [1]}, {"unit": pa.array([None], pa.string()), "eval_set": ["test"]}])
def test_a_merged_file_of_something_else_adds_nothing(store: Store, foreign: dict[str, object]) -> None:
    _finish(store, _units()[:3])
    before, merged, other = _table(store), merge_rows(store), io.BytesIO()
    assert merged is not None
    pq.write_table(pa.table(foreign), other)
    store.replace(merged.name, other.getvalue())
    names: list[str] = []
    pd.testing.assert_frame_equal(load_table(store, on_damage=names.append), before)
    again = compact(store, MEASURED, names.append)
    assert again is not None
    assert (again.units, again.added) == (3, 3)
    assert set(names) == {merged.name}


def test_damage_is_one_line_of_the_command_and_a_warning_at_the_line_that_called(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    units = _units()
    _finish(store, units[:3])
    store.replace(units[1].marker, b"PAR1")
    line = f"{units[1].marker} is damaged or missing, and left out; run the sweep again to have it made"
    for command in ("results", "compact", "report"):
        assert main([command, "--storage", store.url]) == 0
        assert capsys.readouterr().err == f"raystitch: {line}\n"
    for call in (load_results, lambda url: merge_rows(Store(url)), lambda url: publish_report(Store(url), "study")):
        with pytest.warns(DamageWarning) as caught:
            call(store.url)
        assert [(str(each.message), each.filename) for each in caught] == [(line, __file__)]


def test_a_merged_file_with_a_row_twice_is_damaged_and_made_again(store: Store) -> None:
    _finish(store, _units()[:3])
    before = _table(store)
    merged = merge_rows(store)
    assert merged is not None
    rows = pq.read_table(io.BytesIO(store.read(merged.name)))
    doubled = io.BytesIO()
    pq.write_table(pa.concat_tables([rows, rows]), doubled)
    store.replace(merged.name, doubled.getvalue())
    names: list[str] = []
    pd.testing.assert_frame_equal(load_table(store, on_damage=names.append), before)
    assert names == [merged.name]
    with pytest.warns(UserWarning, match="raystitch compact"):
        merge_rows(store)
    pd.testing.assert_frame_equal(_table(store), before)


@pytest.mark.parametrize("name", ["", "..", "a\u0000b.parquet", "x" * 5000, "manifest.json", 7, None])
def test_a_manifest_that_names_no_merged_file_counts_as_none(store: Store, name: object) -> None:
    _finish(store, _units()[:3])
    merge_rows(store)
    before = _table(store)
    store.replace(MANIFEST, json.dumps({"file": name}).encode())
    pd.testing.assert_frame_equal(_table(store), before)
    store.replace(MANIFEST, b"[" * 100_000)
    pd.testing.assert_frame_equal(_table(store), before)


def test_a_file_that_is_put_aside_while_tables_are_read_is_absent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = _units()
    _finish(store, units)
    read, gone = Store.read_many, units[1].marker

    def late(self: Store, names: list[str]) -> dict[str, bytes]:
        if gone in names and self.exists(gone):
            self.remove(gone)
        return read(self, names)

    monkeypatch.setattr(Store, "read_many", late)
    assert set(_table(store)["unit"]) == {unit.id for unit in units} - {units[1].id}

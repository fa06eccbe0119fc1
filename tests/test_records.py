"""Records of another shape than a sweep writes: a damaged one is named in one line and hides no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_plan import CATALOGUE, study
from test_results import parquet, row

from raystitch.cli import main
from raystitch.plan import expand
from raystitch.records import StudyRecord, read_record
from raystitch.results import encode_rows, load_results, publish_study, read_study
from raystitch.store import Store

PLAN = expand(study(), CATALOGUE)
FIRST, LATER = PLAN.models[0], PLAN.fits[-1]
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two studies that share their units; a few fits are done."""
    store = Store(str(tmp_path))
    for name in ("first", "second"):
        publish_study(store, study(name=name), PLAN, {"created": "now", "version": "1"})
    for place, unit in enumerate([fit for fit in PLAN.fits if fit.kind == "fit"][:4]):
        store.publish(unit.marker, encode_rows([row(unit, 50.0 + place)]))
    return store


def edit(store: Store, change: Edit) -> None:
    record = json.loads(store.read("sweeps/first/study.json"))
    change(record)
    store.replace("sweeps/first/study.json", json.dumps(record).encode())


def run(store: Store, command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, list[str]]:
    code = main([command, "--storage", store.url])
    shown = capsys.readouterr()
    return code, shown.out, shown.err.splitlines()


def without(name: str, *path: str) -> Edit:
    def change(record: dict[str, Any]) -> None:
        for each in path:
            record = record[each]
        del record[name]

    return change


SPOILED: dict[str, Edit] = {
    "files a number": lambda r: r["units"][0].update(files=3),
    "files of mappings": lambda r: r["units"][0].update(files=[{}]),
    "files elsewhere": lambda r: r["units"][0].update(files=["models/../../x"]),
    "marker elsewhere": lambda r: r["units"][0].update(marker="/etc/passwd"),
    "parents a number": lambda r: r["units"][-1].update(parents=3),
    "parents null": lambda r: r["units"][-1].update(parents=None),
    "parents of mappings": lambda r: r["units"][-1].update(parents=[{}]),
    "parents unknown": lambda r: r["units"][-1].update(parents=["nope"]),
    "id no name": lambda r: r["units"][0].update(id="../x"),
    "id of a line": lambda r: r["units"][0].update(id="x\n"),
    "id too long": lambda r: r["units"][0].update(id="x" * 1000),
    "point huge": lambda r: r["units"][6].update(point=2**62),
    "config its name alone": lambda r: r.update(config={"name": "first"}),
    "no settings": without("settings", "config"),
    "no protocol": without("protocol", "config"),
    "unknown protocol": lambda r: r["config"].update(protocol="x"),
    "settings a list": lambda r: r["config"].update(settings=[1]),
    "a setting a number": lambda r: r["config"]["settings"].update(identical=3),
    "objectives a number": lambda r: r["config"].update(objectives=3),
    "objectives of a setting": lambda r: r["config"]["settings"]["identical"].update(objectives=[3]),
    "title a number": lambda r: r["config"].update(title=3),
    "title null": lambda r: r["config"].update(title=None),
    "title no text": lambda r: r["config"].update(title="\ud800"),
    "notes a list": lambda r: r["config"].update(notes=[1]),
    "unknown published": lambda r: r["config"].update(published="x"),
    "no created": without("created"),
    "created a number": lambda r: r.update(created=3),
    "version null": lambda r: r.update(version=None),
}


@pytest.mark.parametrize("change", SPOILED.values(), ids=SPOILED)
def test_a_damaged_study_is_one_line_and_hides_no_other(
    store: Store, change: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(store, change)
    line = f"raystitch: {store.url}/sweeps/first/study.json: is damaged; run the sweep again"
    code, out, err = run(store, "status", capsys)
    assert (code, err) == (2, [line])
    assert "second" in out
    code, out, err = run(store, "report", capsys)
    assert (code, err) == (2, [line])
    assert out == f"{store.url}/reports/second/index.html\n"
    for command in ("results", "compact"):
        code, _, err = run(store, command, capsys)
        assert (code, err) == (0, []), "the rows of a study lie elsewhere"


def test_a_record_of_an_earlier_version_is_read(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    def age(record: dict[str, Any]) -> None:
        for unit in record["units"]:
            for key in ("files", "parents", "front", "dataset", "point"):
                unit.pop(key, None)
        for key in ("published", "notes", "similarity", "robust", "eval"):
            del record["config"][key]
        for setting in record["config"]["settings"].values():
            del setting["protocol"], setting["objectives"]

    edit(store, age)
    units = read_study(store, "first").units
    assert units[0].needed == (FIRST.marker,)
    assert all(unit.parents == () for unit in units)
    assert run(store, "status", capsys)[::2] == (1, [])
    assert run(store, "report", capsys)[::2] == (0, [])


def test_a_record_of_a_later_version_is_read(store: Store) -> None:
    edit(store, lambda r: r.update(more=1))
    edit(store, lambda r: r["config"].update(more={"a": [1]}))
    edit(store, lambda r: r["units"][0].update(more=1))
    config = read_study(store, "first").config.model_dump(mode="json", exclude_unset=True)
    assert config == json.loads(store.read("sweeps/first/study.json"))["config"], "the config as it was written"


FAILURE = {"id": LATER.id, "kind": LATER.kind, "label": "x", "error": "ValueError: no", "trace": "in a line"}
SPOILED_FAILURES = {
    "empty": b"{}",
    "list": b"[1]",
    "half": json.dumps(FAILURE).encode()[:-4],
    "nested": b"[" * 100_000,
    **{
        f"no {key}": json.dumps({k: v for k, v in FAILURE.items() if k != key}).encode()
        for key in ("id", "kind", "error")
    },
    **{f"{key} a list": json.dumps({**FAILURE, key: []}).encode() for key in ("id", "kind", "error", "trace")},
}


@pytest.mark.parametrize("content", SPOILED_FAILURES.values(), ids=SPOILED_FAILURES)
def test_a_damaged_failure_is_named_and_left_out(
    store: Store, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    store.replace(f"failures/{LATER.id}.json", content)
    store.replace(f"failures/{FIRST.id}.json", json.dumps({**FAILURE, "id": FIRST.id, "kind": "model"}).encode())
    code, out, err = run(store, "status", capsys)
    assert code == 1
    assert out.count(f"failed: model {FIRST.ref} ({FIRST.id}): ValueError: no") == 2
    assert f"failures/{LATER.id}.json is damaged or missing, and left out; run the sweep again" in err[0]
    code, out, err = run(store, "report", capsys)
    assert code == 0
    assert "ValueError: no" in store.read("reports/first/index.html").decode()


def test_a_failure_is_shown_as_the_study_names_its_unit(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.replace(f"failures/{LATER.id}.json", json.dumps({**FAILURE, "id": "other", "kind": "model"}).encode())
    _, out, _ = run(store, "status", capsys)
    assert f"failed: {LATER.kind} " in out
    assert f"({LATER.id}): ValueError: no" in out


def with_column(table: pa.Table, name: str, value: object) -> pa.Table:
    column = pa.array([value] * len(table), table.schema.field(name).type)
    return table.set_column(table.column_names.index(name), name, column)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("front_point", 2**62),
        ("end_point", -3),
        ("setting", "x" * 100_000),
        ("front_module", "x" * 100_000),
        ("sweep", "second"),
        ("sweep", None),
    ],
)
def test_names_that_no_study_gives_are_damage(
    store: Store, column: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "sweeps/first/rows.parquet"
    table = pq.read_table(pa.BufferReader(store.read(name)))
    store.replace(name, parquet(with_column(table, column, value)))
    with pytest.warns(UserWarning, match=f"{name} is damaged or missing"):
        assert set(load_results(store.url)["sweep"]) == {"second"}
    for command in ("results", "report"):
        code, _, err = run(store, command, capsys)
        assert code == 0
        assert err == [f"raystitch: {name} is damaged or missing, and left out; run the sweep again to have it made"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"null", b"3", b'"x"', b"[" * 100_000, b'{"config": {}}'])
def test_what_is_no_record_is_none(content: bytes) -> None:
    assert read_record(StudyRecord, content) is None

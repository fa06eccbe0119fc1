"""Reports of a storage in which files of IRI sets are damaged: they are named and left out, and the rest is shown."""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_plan import CATALOGUE, study
from test_report_page import Page

from raystitch.cli import main
from raystitch.gallery import decode_gallery
from raystitch.plan import expand
from raystitch.reporting import publish_report
from raystitch.results import publish_study
from raystitch.store import Store
from raystitch.units import IriUnit

STATISTICS = {"median": 0.1, "p90": 0.2, "mean": 0.1, "max": 0.3}
INDEX: dict[str, Any] = {
    "module": "block1", "count": 2, "shape": [3, 4, 4], "dtype": "uint8", "optimiser": "adam", "steps": 300,
    "residual": STATISTICS, "residual_float": STATISTICS, "shards": [],
    "levels": [{"level": 0.4, "reached": 1, "residual": {**STATISTICS, "median": 0.3}, "shards": []}],
}  # fmt: skip


def encoded(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def gallery(**other: Any) -> bytes:
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    return encoded(**{"images": pixels, "iris": pixels, "residual": np.full(2, 0.125, np.float32), **other})


DAMAGED_GALLERIES = {
    "junk": b"junk",
    "truncated": gallery()[:-30],
    "one byte changed": gallery().replace(b"\x05\x06\x07", b"\x05\x07\x07"),
    "one array alone": encoded(images=np.zeros((2, 4, 4, 3), np.uint8)),
    "bare array": gallery()[30:],
    "no images": gallery(
        **{name: np.zeros((0, 4, 4, 3), np.uint8) for name in ("images", "iris")}, residual=np.zeros(0)
    ),
    "empty arrays": gallery(images=np.zeros(0), iris=np.zeros(0), residual=np.zeros(0)),
    "other counts": gallery(residual=np.zeros(3, np.float32)),
    "other sizes": gallery(iris=np.zeros((2, 5, 5, 3), np.uint8)),
    "other kind": gallery(residual=np.array(["a", "b"])),
    "objects": gallery(residual=np.array([{}, {}])),
}
DAMAGED_INDICES = {
    "junk": b"junk",
    "truncated": json.dumps(INDEX).encode()[:-10],
    "no text": b"\xff\xfe\xff",
    "list": b"[1]",
    "number": b"3",
    "null": b"null",
    "empty": b"{}",
    "residual alone": json.dumps({"residual": STATISTICS}).encode(),
    "no residual": json.dumps({**INDEX, "residual": {}}).encode(),
    "residual a number": json.dumps({**INDEX, "residual": 0.1}).encode(),
    "residual a word": json.dumps({**INDEX, "residual": {**STATISTICS, "median": "small"}}).encode(),
    "levels null": json.dumps({**INDEX, "levels": None}).encode(),
    "level without residual": json.dumps({**INDEX, "levels": [{"level": 0.4, "reached": 1}]}).encode(),
    "infinite count": json.dumps({**INDEX, "count": float("inf")}).encode(),
    "negative count": json.dumps({**INDEX, "count": -1}).encode(),
    "count of 5000 digits": json.dumps(INDEX).replace('"count": 2', f'"count": {"9" * 5000}').encode(),
    "infinite level": json.dumps({**INDEX, "levels": [{**INDEX["levels"][0], "level": float("inf")}]}).encode(),
    "negative residual": json.dumps({**INDEX, "residual": {**STATISTICS, "median": -0.1}}).encode(),
    "shape of one side": json.dumps({**INDEX, "shape": [3, 4]}).encode(),
    "shards elsewhere": json.dumps({**INDEX, "shards": [{"name": "../x.tar", "sha256": ""}]}).encode(),
    "a list for a text": json.dumps({**INDEX, "optimiser": ["adam"]}).encode(),
}


@pytest.fixture
def place(tmp_path: Path) -> tuple[Store, list[IriUnit]]:
    """A study of which nothing but its IRI sets is done: their index, gallery and (empty words for) shards."""
    store, config = Store(str(tmp_path)), study(name="first")
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    for unit in plan.iris:
        for name in unit.files:
            store.publish(name, b"shard")
        store.replace(unit.gallery, gallery())
        store.replace(unit.marker, json.dumps({**INDEX, "id": unit.id}).encode())
    return store, plan.iris


def report(store: Store) -> tuple[Page, list[str]]:
    named: list[str] = []
    publish_report(store, "first", named.append)
    return Page(store.read("reports/first/index.html").decode()), named


def sets_and_images(page: Page) -> tuple[int, int]:
    heads = [line[0] for table in page.tables for line in table if line]
    rows = sum(len(line) == 14 for table in page.tables if table[0][0] == "Front" for line in table[2:])
    return rows, sum(head.startswith("point ") for head in heads)


def test_whole_files_are_shown(place: tuple[Store, list[IriUnit]]) -> None:
    store, units = place
    page, named = report(store)
    assert (sets_and_images(page), named) == ((len(units), len(units)), [])
    assert "0.4 reached by 1 image, median r 0.300" in page.text


@pytest.mark.parametrize("content", DAMAGED_GALLERIES.values(), ids=DAMAGED_GALLERIES)
def test_a_damaged_gallery_is_named_and_left_out(place: tuple[Store, list[IriUnit]], content: bytes) -> None:
    store, units = place
    store.replace(units[0].gallery, content)
    with pytest.raises(ValueError, match="not a gallery"):
        decode_gallery(content)
    page, named = report(store)
    assert named == [units[0].gallery]
    assert sets_and_images(page) == (len(units), len(units) - 1)


@pytest.mark.parametrize("content", DAMAGED_INDICES.values(), ids=DAMAGED_INDICES)
def test_a_damaged_index_is_named_and_left_out(place: tuple[Store, list[IriUnit]], content: bytes) -> None:
    store, units = place
    store.replace(units[0].marker, content)
    page, named = report(store)
    assert named == [units[0].marker]
    assert sets_and_images(page) == (len(units) - 1, len(units) - 1)


def test_by_default_a_warning_names_them_and_a_sweep_sets_them_aside(place: tuple[Store, list[IriUnit]]) -> None:
    store, units = place
    names = {units[0].gallery, units[1].marker}
    for name in names:
        store.replace(name, b"junk")
    with pytest.warns(UserWarning, match="is damaged or missing, and left out; run the sweep again") as caught:
        publish_report(store, "first")
    assert {str(each.message).split()[0] for each in caught} == names
    publish_report(store, "first", store.quarantine)
    assert not any(map(store.exists, names))
    assert all(store.exists(f"damaged/{name}") for name in names)


def test_a_record_without_lists_of_files_may_lack_galleries(place: tuple[Store, list[IriUnit]]) -> None:
    store, units = place
    record = json.loads(store.read("sweeps/first/study.json"))
    for unit in record["units"]:
        del unit["files"]
    store.replace("sweeps/first/study.json", json.dumps(record).encode())
    store.remove(units[0].gallery)
    page, named = report(store)
    assert (sets_and_images(page), named) == ((len(units), len(units) - 1), [])


def remove_before_it_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is listed, and gone when it comes to reading it."""
    read = Store.read_many

    def late(self: Store, names: Collection[str]) -> dict[str, bytes]:
        self.remove(name)
        return read(self, names)

    monkeypatch.setattr(Store, "read_many", late)


@pytest.mark.parametrize("kind", ["index", "gallery"])
def test_what_is_removed_after_it_was_listed_is_absent(
    place: tuple[Store, list[IriUnit]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, units = place
    remove_before_it_is_read(units[0].marker if kind == "index" else units[0].gallery, monkeypatch)
    page, named = report(store)
    assert (sets_and_images(page), named) == ((len(units) - (kind == "index"), len(units) - 1), [])


def test_a_failure_that_is_forgotten_after_it_was_listed_is_none(
    place: tuple[Store, list[IriUnit]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, units = place
    for unit in units[:2]:
        store.remove(unit.marker)
        record = {"id": unit.id, "kind": unit.kind, "label": "", "error": f"broke {unit.id}", "trace": ""}
        store.publish(f"failures/{unit.id}.json", json.dumps(record).encode())
    remove_before_it_is_read(f"failures/{units[0].id}.json", monkeypatch)
    assert main(["status", "--storage", store.url]) == 1
    told = capsys.readouterr().out
    assert f"broke {units[1].id}" in told
    assert f"broke {units[0].id}" not in told


@pytest.mark.parametrize("r", [float("inf"), float("nan"), 10**400])
def test_a_residual_that_no_number_can_hold_is_shown_for_what_it_is(
    place: tuple[Store, list[IriUnit]], r: float
) -> None:
    store, units = place
    spoiled = {**INDEX, "residual": {**STATISTICS, "max": r}, "levels": []}
    store.replace(units[0].marker, json.dumps(spoiled).encode())
    page, named = report(store)
    assert (sets_and_images(page), named) == ((len(units), len(units)), [])
    assert [line[-1] for table in page.tables if table[0][0] == "Front" for line in table[2:]].count("0.300") == 19


def test_an_early_index_itself_says_of_what_it_is(place: tuple[Store, list[IriUnit]]) -> None:
    store, units = place
    record = json.loads(store.read("sweeps/first/study.json"))
    for unit in record["units"]:
        for key in ("front", "dataset", "point"):
            unit.pop(key, None)
    store.replace("sweeps/first/study.json", json.dumps(record).encode())
    named = {"front": "early/0", "dataset": "plain", "point": 1}
    store.replace(units[0].marker, json.dumps({**INDEX, **named}).encode())
    page, damaged = report(store)
    assert sets_and_images(page) == (1, 1)
    assert "early/0" in page.text
    assert damaged == [unit.marker for unit in units[1:]]


def test_status_names_levels_that_no_image_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, config = (
        Store(str(tmp_path)),
        study(name="first", points=[1, 2], iri={"levels": [0.4, 0.1], "shard_size": 800}),
    )
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    for unit, lost in zip(plan.iris[:3], ({0.4: 9, 0.1: 0}, {0.4: 9, 0.1: 1}, {0.4: 0, 0.1: 0}), strict=True):
        for name in unit.files:
            store.publish(name, b"shard")
        told = [
            {"level": level, "reached": reached, "residual": STATISTICS, "shards": []}
            for level, reached in lost.items()
        ]
        store.replace(unit.marker, json.dumps({**INDEX, "levels": told}).encode())
    main(["status", "--storage", str(tmp_path)])
    first, _, third = (f"{unit.model.ref} point {unit.point} on {unit.data}" for unit in plan.iris[:3])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "no image reached" in line]
    assert line.endswith(f"those of the best: 0.4 ({third}); 0.1 ({first}, {third})")

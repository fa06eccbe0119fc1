"""IRI sets with residual levels from the bench to the shelf, on the built-in digits: bytes, index, loading, damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raystitch.catalogue import inspect
from raystitch.config import parse_config
from raystitch.data import load_images
from raystitch.execute import Bench, Job
from raystitch.iris import decode_shard
from raystitch.plan import expand
from raystitch.schedule import find_done
from raystitch.store import Store
from raystitch.units import IriUnit, ShardUnit

LEVELS = (0.6, 0.4, 0.25)
STUDY: dict[str, Any] = {
    "name": "levels",
    "data": {"digits": {"source": "digits", "limit": {"train": 40, "test": 16}}},
    "models": {"net": {"arch": "resnet_mini", "args": {"width": 4}, "data": "digits", "untrained": True}},
    "settings": {"identical": {"front": "net", "end": "itself"}},
    "points": [1],
    "objectives": "dm",
    "arms": "iri",
    "seeds": 1,
    "iri": {"steps": 60, "shard_size": 16, "batch": 16, "levels": list(LEVELS)},
    "fit": {"epochs": 1, "batch": 16, "init_images": 40},
}


def _bench(folder: Path, **iri: Any) -> tuple[Bench, IriUnit]:
    """A bench whose base model is there, and the study's only IRI set."""
    config = parse_config({**STUDY, "iri": {**STUDY["iri"], **iri}})
    plan = expand(config, inspect(config))
    bench = Bench(Job(config, Store(str(folder)), {"version": "0", "git_commit": ""}), "cpu")
    bench.make_model(plan.models[0])
    return bench, plan.iris[0]


def _make(bench: Bench, unit: IriUnit, shards: Sequence[ShardUnit]) -> None:
    for shard in shards:
        bench.make_shard(shard)
    bench.close_set(unit)


def _tars(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.tar")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bench, IriUnit]:
    folder = tmp_path_factory.mktemp("levels")
    bench, unit = _bench(folder)
    _make(bench, unit, unit.shards)
    return folder, bench, unit


def test_every_level_is_a_set_of_its_own(finished: tuple[Path, Bench, IriUnit]) -> None:
    folder, bench, unit = finished
    digits = load_images(bench.config.data["digits"], "train", "data.digits")
    index = json.loads((folder / unit.marker).read_bytes())
    assert [part["level"] for part in index["levels"]] == list(LEVELS)
    medians = []
    for level, part in zip((*LEVELS, None), (*index["levels"], index), strict=True):
        images, residuals = bench.shelf.iri_set(unit, level)
        shards = [decode_shard((folder / shard.tar(level)).read_bytes()) for shard in unit.shards]
        r = np.concatenate([shard.residual for shard in shards]).astype(np.float64)
        before = np.concatenate([shard.residual_float for shard in shards])
        assert residuals == pytest.approx({"iri_r_median": np.median(r), "iri_r_p90": np.quantile(r, 0.9)})
        assert torch.equal(images.images, torch.cat([torch.from_numpy(shard.images) for shard in shards]))
        assert torch.equal(images.labels, digits.labels)
        assert part["residual_float"]["max"] == pytest.approx(before.max())
        assert sum(shard["count"] for shard in part["shards"]) == len(digits) == 40
        if level is not None:
            assert part["reached"] == (before <= level).sum() > 0
        medians.append(residuals["iri_r_median"])
    assert medians == sorted(medians, reverse=True)
    assert len(set(medians)) == len(medians)


def test_a_finished_set_is_done_and_one_that_lost_a_level_is_not(finished: tuple[Path, Bench, IriUnit]) -> None:
    folder, bench, unit = finished
    plan, store = expand(bench.config, inspect(bench.config)), Store(str(folder))
    assert unit.id in find_done(plan, store).units
    lost = unit.shards[1].tar(LEVELS[1])
    content = store.read(lost)
    store.remove(lost)
    done = find_done(plan, store)
    store.publish(lost, content)
    assert unit.id not in done.units
    assert done.shards == {unit.shards[0].id, unit.shards[2].id}


def test_bytes_do_not_depend_on_who_makes_a_shard_or_when(
    finished: tuple[Path, Bench, IriUnit], tmp_path: Path
) -> None:
    folder, _, unit = finished
    one, again = _bench(tmp_path)
    two, _ = _bench(tmp_path)
    assert again == unit
    for bench, shard in zip((one, two, one), reversed(unit.shards), strict=True):
        bench.make_shard(shard)
    two.close_set(unit)
    assert _tars(tmp_path) == _tars(folder)
    assert len(_tars(folder)) == 3 * (len(LEVELS) + 1)
    indices = [json.loads((place / unit.marker).read_bytes()) for place in (folder, tmp_path)]
    assert indices[0]["levels"] == indices[1]["levels"]


def test_another_batch_or_shard_size_gives_the_same_images(
    finished: tuple[Path, Bench, IriUnit], tmp_path: Path
) -> None:
    _, bench, unit = finished
    other, regrouped = _bench(tmp_path, batch=7, shard_size=32)
    assert regrouped.id != unit.id
    _make(other, regrouped, regrouped.shards)
    for level in (*LEVELS, None):
        (images, residuals), (same, again) = bench.shelf.iri_set(unit, level), other.shelf.iri_set(regrouped, level)
        # sums over a batch of another size differ in their last digits, which may tip a pixel over to the next grey level
        assert (images.images.float() - same.images.float()).abs().mean() < 0.1
        assert residuals == pytest.approx(again, rel=0.01)


def test_levels_leave_the_best_set_as_it_is(finished: tuple[Path, Bench, IriUnit], tmp_path: Path) -> None:
    folder, _, unit = finished
    bench, plain = _bench(tmp_path, levels=[])
    _make(bench, plain, plain.shards)
    assert plain.id != unit.id, "a study without levels finds the sets that it made before there were any"
    for without, with_levels in zip(plain.shards, unit.shards, strict=True):
        assert (tmp_path / without.marker).read_bytes() == (folder / with_levels.marker).read_bytes()
    index = json.loads((tmp_path / plain.marker).read_bytes())
    assert "levels" not in index
    assert set(index) | {"levels"} == set(json.loads((folder / unit.marker).read_bytes()))


@pytest.mark.parametrize("level", [None, LEVELS[1]])
def test_a_damaged_shard_is_set_aside_and_made_again(tmp_path: Path, level: float | None) -> None:
    bench, unit = _bench(tmp_path)
    _make(bench, unit, unit.shards)
    name, store = unit.shards[1].tar(level), bench.store
    whole = store.read(name)
    store.replace(name, store.read(unit.shards[0].tar(level)))  # a good tar, but not the one that was written
    intact = LEVELS[0] if level is not None else LEVELS[1]
    bench.shelf.iri_set(unit, intact)
    with pytest.raises(OSError, match=f"{name} was damaged and is now under damaged/"):
        bench.shelf.iri_set(unit, level)
    assert not store.exists(name)
    assert store.exists(f"damaged/{name}")
    _make(bench, unit, unit.shards[1:2])
    assert store.read(name) == whole
    bench.shelf.iri_set(unit, level)


def test_a_set_made_again_elsewhere_gets_an_index_that_fits(tmp_path: Path) -> None:
    bench, unit = _bench(tmp_path)
    _make(bench, unit, unit.shards)
    record = json.loads(bench.store.read(unit.marker))
    record["levels"][0]["shards"][0]["sha256"] = "0" * 64  # as if another machine's last digits were written down
    bench.store.replace(unit.marker, json.dumps(record).encode())
    with pytest.raises(OSError, match="was damaged"):
        bench.shelf.iri_set(unit, LEVELS[0])
    _make(bench, unit, unit.shards[:1])
    assert len(bench.shelf.iri_set(unit, LEVELS[0])[0]) == 40


SPOILED_INDICES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no shards": lambda index: index.pop("shards"),
    "shards of mappings": lambda index: index.update(shards=[{}]),
    "one shard alone": lambda index: index["shards"].pop(),
    "a shard elsewhere": lambda index: index["shards"][0].update(name="iris/other/shard-00000.tar"),
    "count huge": lambda index: index.update(count=10**11),
    "count infinite": lambda index: index.update(count=float("inf")),
    "shape huge": lambda index: index.update(shape=[3, 4096, 4096]),
    "shape of one side": lambda index: index.update(shape=[3, 8]),
    "other dtype": lambda index: index.update(dtype="float32"),
    "no residual": lambda index: index.update(residual={}),
}


def _spoiled(
    finished: tuple[Path, Bench, IriUnit], folder: Path, spoil: Callable[[dict[str, Any]], object]
) -> tuple[Bench, IriUnit]:
    """A bench on a copy of the finished set whose index is changed."""
    whole, bench, unit = finished
    shutil.copytree(whole, folder / "runs")
    other = Bench(replace(bench.job, store=Store(str(folder / "runs"))), "cpu")
    record = json.loads(other.store.read(unit.marker))
    spoil(record)
    other.store.replace(unit.marker, json.dumps(record).encode())
    return other, unit


@pytest.mark.parametrize("spoil", SPOILED_INDICES.values(), ids=SPOILED_INDICES)
def test_an_index_of_another_shape_is_set_aside_and_made_again(
    finished: tuple[Path, Bench, IriUnit], tmp_path: Path, spoil: Callable[[dict[str, Any]], object]
) -> None:
    bench, unit = _spoiled(finished, tmp_path, spoil)
    with pytest.raises(OSError, match=f"{unit.marker} was damaged and is now under damaged/"):
        bench.shelf.iri_set(unit)
    assert not bench.store.exists(unit.marker)
    bench.close_set(unit)
    assert len(bench.shelf.iri_set(unit)[0]) == 40


def test_an_index_without_a_level_is_set_aside(finished: tuple[Path, Bench, IriUnit], tmp_path: Path) -> None:
    bench, unit = _spoiled(finished, tmp_path, lambda index: index["levels"].pop())
    assert len(bench.shelf.iri_set(unit, LEVELS[0])[0]) == 40
    with pytest.raises(OSError, match=f"{unit.marker} was damaged"):
        bench.shelf.iri_set(unit, LEVELS[-1])

"""Training, workers and whole studies on sets that memory does not hold: what comes out is what memory gives."""

from __future__ import annotations

import gc
import io
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from bench_runs import run_study
from test_training_supervised import small_net

from raystitch.config import CueConfig, DataConfig, StudyConfig, TrainConfig, parse_config
from raystitch.data import load_images
from raystitch.shelf import Shelf
from raystitch.store import Store
from raystitch.training import accuracy, train


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where mapped files go."""
    monkeypatch.setenv("RAYSTITCH_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch" / f"raystitch-{os.getuid()}"


def files(scratch: Path) -> list[Path]:
    gc.collect()
    return sorted(scratch.glob("*")) if scratch.exists() else []


@pytest.mark.parametrize("method", ["supervised", "simclr", "adversarial"])
def test_training_on_a_mapped_set_gives_the_same_weights(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    config = DataConfig.model_validate({"source": "digits", "limit": {"train": 160}})
    epochs = {"epochs": 1, "lr": 0.05, "batch": 64, "augment": "crop"}
    recipe = TrainConfig.model_validate({"method": method, **epochs})
    weights = []
    for budget in ("1000000000", "1000"):
        monkeypatch.setenv("RAYSTITCH_MEMORY_BYTES", budget)
        data, net = load_images(config, "train", "data.digits"), small_net()
        assert (data.key is None) == (budget != "1000")
        train(net, data, recipe, seed=3, cue=CueConfig(size=2))
        weights.append({**net.state_dict(), "top1": torch.tensor(accuracy(net, data))})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def study(**changes: object) -> StudyConfig:
    digits = {"source": "digits", "limit": {"train": 128, "test": 64}}
    return parse_config(
        {
            "name": "tiny",
            "data": {"digits": digits, "marked": {**digits, "cue": "pixel"}},
            "models": {
                name: {
                    "arch": "resnet_mini",
                    "args": {"width": 4},
                    "data": name,
                    "train": {"epochs": 1, "augment": "none", "batch": 32},
                }
                for name in ("digits", "marked")
            },
            "settings": {"bias": {"front": "marked", "end": "digits", "eval": ["test", "shuffled", "clean"]}},
            "points": [2],
            "seeds": 1,
            "iri": {"steps": 3, "shard_size": 50},
            "fit": {"epochs": 1, "batch": 32, "init_images": 60},
            **changes,
        }
    )


def test_a_worker_keeps_files_only_of_the_sets_it_keeps(scratch: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RAYSTITCH_MEMORY_BYTES", "1000")
    noise = {f"noise{seed}": {"source": "noise", "count": 20, "size": 8, "seed": seed} for seed in range(5)}
    shelf = Shelf(
        study(data={**study().model_dump(exclude_unset=True)["data"], **noise}), Store(str(tmp_path / "runs")), "cpu"
    )
    for name in noise:
        for split in ("train", "test"):
            shelf.plain(name, split)  # type: ignore[arg-type]
    assert len(files(scratch)) == 8  # of ten
    del shelf
    assert not files(scratch)


def rows_of(config: StudyConfig, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each fit of the study, computed by one worker, without the times."""
    bench, plan = run_study(config, folder)
    rows = {unit.id: pq.read_table(io.BytesIO(bench.store.read(unit.marker))).to_pylist() for unit in plan.fits}
    for row in (row for found in rows.values() for row in found):
        del row["wall_s"], row["created"]
    return rows


def test_a_study_on_mapped_sets_gives_the_same_rows(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows_of(study(), tmp_path / "memory")
    assert not files(scratch)
    monkeypatch.setenv("RAYSTITCH_MEMORY_BYTES", "1000")
    assert rows_of(study(), tmp_path / "mapped") == expected
    assert scratch.exists()
    assert not files(scratch)

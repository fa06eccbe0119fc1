"""A unit that cannot be computed fails alone: NaN in weights, a loss that overflows, memory that runs out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ray_cluster import Sweep, namespace

import raystitch
from raystitch.catalogue import inspect
from raystitch.config import parse_config
from raystitch.distributed.grid import fit_each
from raystitch.execute import NEVER_NAN, Bench, Job
from raystitch.nets import build_net, save_weights
from raystitch.plan import expand
from raystitch.store import Store

NET = {"arch": "resnet_mini", "args": {"width": 4}, "data": "digits"}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "limit": {"train": 40, "test": 20}}},
    "models": {"net": {**NET, "untrained": True}},
    "settings": {"itself": {"front": "net/0", "end": "net/0"}},
    "points": [1],
    "objectives": ["dm"],
    "seeds": 1,
    "iri": {"steps": 3, "shard_size": 20},
    "fit": {"epochs": 1, "batch": 20, "init_images": 20},
}


def status(storage: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raystitch.cli", "status", "--storage", str(storage)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.xdist_group("ray")
def test_weights_with_nan_fail_alone_and_mended_ones_are_made(tmp_path: Path) -> None:
    nets = [build_net("resnet_mini", 10, {"width": 4}, (0.5,) * 3, (0.5,) * 3, seed=seed) for seed in (0, 1)]
    whole = save_weights(nets[1])
    with torch.no_grad():
        nets[1].net.layer2[0].conv1.weight[0, 0, 0, 0] = float("nan")
    for seed, net in enumerate(nets):
        (tmp_path / f"net{seed}.safetensors").write_bytes(save_weights(net))
    model = {**NET, "seeds": "0-1", "checkpoint": str(tmp_path / "net{seed}.safetensors")}
    settings = {"whole": {"front": "net/0", "end": "net/0"}, "poisoned": {"front": "net/1", "end": "net/0"}}
    config, storage = tmp_path / "study.yaml", tmp_path / "runs"
    config.write_text(yaml.safe_dump({**STUDY, "models": {"net": model}, "settings": settings}))
    with namespace() as place:
        run = Sweep(place, config, storage, {})
        assert run.end() == 1, run.shown
        why = "net1.safetensors': layer2.0.conv1.weight holds NaN or infinite values"
        assert "failed: model net/1: NotFiniteError: models.net.checkpoint" in run.shown
        table = raystitch.load_results(str(storage), "tiny")
        assert set(table.setting) == {"whole"}
        assert len(table) == 2 + 2, "both arms, and both ends"
        assert table[table.objective != "none"][list(NEVER_NAN)].notna().all().all()
        shown = status(storage)
        assert shown.returncode == 1
        assert "failed: model net/1 (" in shown.stdout
        assert why in shown.stdout
        assert shown.stdout.count("not started: model net/1 failed") == 5, "its IRI set, two fits, two ends"
        (tmp_path / "net1.safetensors").write_bytes(whole)
        again = Sweep(place, config, storage, {})
        assert again.end() == 0, again.shown
    assert status(storage).returncode == 0
    assert set(raystitch.load_results(str(storage), "tiny").setting) == {"whole", "poisoned"}


@pytest.mark.xdist_group("ray")
def test_memory_that_runs_out_is_named(tmp_path: Path) -> None:
    config, storage = tmp_path / "study.yaml", tmp_path / "runs"
    config.write_text(yaml.safe_dump(STUDY))
    watched = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "50"}
    with namespace() as place:
        run = Sweep(place, config, storage, watched)
        assert run.end() == 1, run.shown
    assert "failed: model net/0: out of memory: its worker was stopped 3 times because the memory of" in run.shown
    assert "out of memory" in status(storage).stdout


def test_one_objective_of_a_group_fails_alone(tmp_path: Path) -> None:
    wild = {**STUDY["fit"], "lr": 1e30, "epochs": 3}  # only dm_exact is solved, not trained
    config = parse_config({**STUDY, "arms": "real", "objectives": ["dm_exact", "dm"], "fit": wild})
    plan = expand(config, inspect(config))
    bench = Bench(Job(config, Store(str(tmp_path)), {}), "cpu")
    for model in plan.models:
        bench.make_model(model)
    units = [unit for unit in plan.fits if unit.kind == "fit"]
    assert len(units) == 2
    assert len({unit.group for unit in units}) == 1
    outcomes = fit_each(bench, units)
    failed = [unit for unit in units if outcomes[unit.id].error]
    assert [unit.objective for unit in failed] == ["dm"]
    assert outcomes[failed[0].id].error.startswith("FloatingPointError: ")
    assert {Path(name).stem for name in Store(str(tmp_path)).names("fits")} == {u.id for u in units} - {failed[0].id}

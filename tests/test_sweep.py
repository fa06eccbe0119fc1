"""Whole sweeps on a real local Ray: table, report, resume after a kill, failures, and shards that no actor count changes."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from waiting import wait_for

import raystitch
from raystitch.errors import InputError
from raystitch.results import read_study
from raystitch.store import Store

pytestmark = pytest.mark.xdist_group("ray")

STUDY = {
    "name": "tiny",
    "data": {
        "digits": {"source": "digits", "limit": {"train": 256, "test": 128}},
        "marked": {"source": "digits", "limit": {"train": 256, "test": 128}, "cue": "pixel"},
    },
    "models": {
        "clean": {
            "arch": "resnet_mini",
            "args": {"width": 8},
            "data": "digits",
            "seeds": "0-1",
            "train": {"epochs": 8, "augment": "none", "batch": 32},
        },
        "pixel": {
            "arch": "resnet_mini",
            "args": {"width": 8},
            "data": "marked",
            "train": {"epochs": 8, "augment": "none", "batch": 32},
        },
    },
    "settings": {
        "identical": {"front": "clean/0", "end": "clean/0"},
        "cross-seed": {"front": "clean/1", "end": "clean/0"},
        "cross-bias": {"front": "pixel", "end": "clean/0", "eval": ["test", "shuffled", "clean"]},
    },
    "points": [1, 4],
    "seeds": 1,
    "iri": {"steps": 30, "shard_size": 100},
    "fit": {"epochs": 4, "batch": 64, "init_images": 200},
}
FITS = 3 * 2 * 2 * 4
COMMAND = [sys.executable, "-m", "raystitch.sweep"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}


def write(folder: Path, study: dict) -> Path:
    config = folder / "study.yaml"
    config.write_text(yaml.safe_dump(study))
    return config


def sweep(config: Path, storage: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, str(config), "--storage", str(storage), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=400, cwd=config.parent)


def start(config: Path, storage: Path) -> subprocess.Popen[str]:
    """A sweep that runs on, in a session of its own: signals reach it alone."""
    return subprocess.Popen(
        [*COMMAND, str(config), "--storage", str(storage)],
        env=ENVIRONMENT,
        cwd=config.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def values(storage: Path) -> pd.DataFrame:
    """Everything in the table that must not depend on when and how it was computed."""
    return raystitch.load_results(str(storage), "tiny").drop(columns=["created", "wall_s", "version", "git_commit"])


def files(storage: Path) -> dict[str, int]:
    kept = ("models", "iris", "fits", "predictions")
    return {
        str(p.relative_to(storage)): p.stat().st_mtime_ns for k in kept for p in (storage / k).rglob("*") if p.is_file()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A finished undisturbed sweep: its config, its storage, and what it printed."""
    folder = tmp_path_factory.mktemp("sweep")
    config, storage = write(folder, STUDY), folder / "runs"
    done = sweep(config, storage)
    assert done.returncode == 0, done.stderr
    return config, storage, done.stdout + done.stderr


def test_table_is_complete(finished: tuple[Path, Path, str]) -> None:
    _, storage, _ = finished
    table = values(storage)
    fits = table[table.objective != "none"]
    one_eval, three_evals = 2 * (2 * 2 * 4), 3 * (2 * 2 * 4)
    assert len(fits) == one_eval + three_evals
    assert len(table) - len(fits) == 2 + 2 + 2 * 3, "both unstitched ends of each curve, once per evaluation set"
    assert fits.groupby("unit").size().isin([1, 3]).all()
    assert table.n_eval.eq(128).all()
    assert table[["agreement", "kappa", "top1", "top5", "loss", "top1_end", "top1_front"]].notna().all().all()
    assert fits.match_error.notna().all()
    assert (table.agreement_low <= table.agreement).all()
    assert (table.agreement <= table.agreement_high).all()
    assert (fits.arm == "iri").eq(fits.iri_r_median.notna()).all(), "an IRI score never stands without its residual"
    assert set(table.protocol) == {"matched"}


def test_ends_of_the_curves(finished: tuple[Path, Path, str]) -> None:
    table = values(finished[1])
    ends = table[table.objective == "none"].set_index(["setting", "front_point", "eval_set"])
    assert ends.loc["cross-seed", 0, "test"].agreement == pytest.approx(100)
    assert ends.loc["identical", 5, "test"].agreement == pytest.approx(100)
    assert ends.loc["cross-seed", 5, "test"].agreement < 100
    for (_, point, _), row in ends.iterrows():
        assert row.top1 == pytest.approx(row.top1_end if point == 0 else row.top1_front)
    trained = {
        m["model"]: m["top1"] for m in map(json.loads, [p.read_text() for p in (finished[1] / "models").glob("*.json")])
    }
    assert ends.loc["cross-seed", 5, "test"].top1 == pytest.approx(trained["clean/1"]["test"])
    assert ends.loc["cross-bias", 5, "shuffled"].top1 == pytest.approx(trained["pixel/0"]["shuffled"])


def test_a_net_agrees_with_itself_on_both_arms(finished: tuple[Path, Path, str]) -> None:
    table = values(finished[1])
    own = table[(table.setting == "identical") & table.objective.isin(["slm", "fula", "dm"])]
    assert own.agreement.min() > 98
    assert own[own.objective.isin(["fula", "dm"])].match_error.max() < 0.01


def test_report_and_closing_lines(finished: tuple[Path, Path, str]) -> None:
    _config, storage, printed = finished
    page = storage / "reports" / "tiny" / "index.html"
    assert f"results  {storage}\n" in printed
    assert f"report   {page}\n" in printed
    assert f'raystitch.load_results("{storage}", "tiny")' in printed
    text = page.read_text()
    for name in ("identical", "cross-seed", "cross-bias"):
        assert name in text
    assert {"index.html", "figures"} == {p.name for p in page.parent.iterdir()}
    assert len(list((page.parent / "figures").glob("*.png"))) >= 3


def test_output_is_plain_lines_without_ray_noise(finished: tuple[Path, Path, str]) -> None:
    for line in finished[2].splitlines():
        known = ("model ", "results ", "report ", "load ")
        assert line.startswith(known), line


def test_second_run_computes_nothing(finished: tuple[Path, Path, str]) -> None:
    config, storage, _ = finished
    before = files(storage)
    again = sweep(config, storage)
    assert again.returncode == 0, again.stderr
    assert files(storage) == before
    assert "elapsed" not in again.stderr, "nothing was scheduled, so Ray was not started"


def test_killed_half_way_a_rerun_completes_with_the_same_values(
    finished: tuple[Path, Path, str], tmp_path: Path
) -> None:
    config, storage = write(tmp_path, STUDY), tmp_path / "runs"
    process = start(config, storage)
    wait_for(lambda: len(list((storage / "fits").glob("*.parquet"))) >= FITS // 4 or process.poll() is not None)
    assert process.poll() is None, "the sweep ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = files(storage)
    assert len(list((storage / "fits").glob("*.parquet"))) < FITS
    resumed = sweep(config, storage)
    assert resumed.returncode == 0, resumed.stderr
    assert kept.items() <= files(storage).items(), "what was done before the kill was not computed again"
    pd.testing.assert_frame_equal(values(storage), values(finished[1]), check_exact=True)
    assert files(storage).keys() == files(finished[1]).keys()
    ids = [[u.id for u in read_study(Store(str(place)), "tiny").units] for place in (storage, finished[1])]
    assert ids[0] == ids[1]


def test_damaged_storage_heals(finished: tuple[Path, Path, str], tmp_path: Path) -> None:
    config, storage = write(tmp_path, STUDY), tmp_path / "runs"
    shutil.copytree(finished[1], storage)
    units = read_study(Store(str(storage)), "tiny").units
    by_label = {unit.label: unit.marker for unit in units}
    lost = [
        marker for label, marker in by_label.items() if "pixel/0:4" in label and label.endswith(" seed 1 on marked")
    ]
    assert len(lost) == 8
    for marker in lost:
        (storage / marker).unlink()
    pixel = Path(by_label["pixel/0"])
    (storage / pixel).with_suffix(".safetensors").unlink()
    shard = storage / Path(by_label["pixel/0 point 4 on marked"]).with_suffix("") / "shard-00001.tar"
    shard.write_bytes(shard.read_bytes()[:5000])
    torn = storage / by_label["clean/1:1 → clean/0:1 dm real seed 1 on digits"]
    torn.write_bytes(torn.read_bytes()[:100])
    (storage / "failures").mkdir(exist_ok=True)
    (storage / "failures" / f"{Path(lost[0]).stem}.json").touch()
    (storage / "sweeps" / "tiny" / "study.json").write_text("[]")
    first = sweep(config, storage)
    assert first.returncode == 1, first.stderr
    assert "shard-00001.tar was damaged" in first.stderr
    second = sweep(config, storage)
    assert second.returncode == 0, second.stderr
    pd.testing.assert_frame_equal(values(storage), values(finished[1]), check_exact=True)
    assert {p.name for p in (storage / "damaged").rglob("*.*")} == {"shard-00001.tar", torn.name}


def test_sigterm_stops_like_ctrl_c(tmp_path: Path) -> None:
    config, storage = write(tmp_path, STUDY), tmp_path / "runs"
    process = start(config, storage)
    wait_for(lambda: list(storage.glob("models/*.json")) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    _, shown = process.communicate(timeout=120)
    assert process.returncode == 130, shown
    assert "the same command goes on from here" in shown
    assert "Traceback" not in shown


def test_resources_that_the_machine_lacks_are_refused(tmp_path: Path) -> None:
    done = sweep(write(tmp_path, STUDY), tmp_path / "runs", "--set", "resources.fit.gpus=64")
    assert done.returncode == 2
    assert "raystitch: resources.fit.gpus = 64.0: this machine has" in done.stderr
    assert "Traceback" not in done.stderr


def test_shards_are_byte_identical_with_one_actor_and_with_two(
    finished: tuple[Path, Path, str], tmp_path: Path
) -> None:
    study = copy.deepcopy(STUDY)
    study["settings"] = {"identical": STUDY["settings"]["identical"]}
    study["objectives"] = "dm"
    study["arms"] = "iri"
    study["resources"] = {"iri_actors": 1}
    done = sweep(write(tmp_path, study), tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    one = {p.relative_to(tmp_path / "runs"): p.read_bytes() for p in (tmp_path / "runs").rglob("*.tar")}
    assert len(one) == 2 * 3
    for name, content in one.items():
        assert content == (finished[1] / name).read_bytes(), name


def test_a_failing_model_fails_alone_and_a_rerun_retries_only_it(tmp_path: Path) -> None:
    study = copy.deepcopy(STUDY)
    study["models"]["pixel"]["train"]["lr"] = 1e30
    study["objectives"] = ["dm", "slm"]
    study["points"] = [4]
    config, storage = write(tmp_path, study), tmp_path / "runs"
    first = sweep(config, storage)
    assert first.returncode == 1
    assert "failed: model pixel/0" in first.stderr
    table = values(storage)
    assert set(table.setting) == {"identical", "cross-seed"}
    assert len(table) == 2 * (2 * 2 + 2)
    status = [sys.executable, "-m", "raystitch.cli", "status", "--storage", str(storage)]
    shown = subprocess.run(status, capture_output=True, text=True)
    assert shown.returncode == 1
    assert "failed: model pixel/0" in shown.stdout
    assert "not started: model pixel/0 failed" in shown.stdout
    before = files(storage)
    second = sweep(config, storage)
    assert second.returncode == 1
    assert files(storage) == before
    assert "model 0/1 (1 failed)" in second.stderr


def test_a_storage_that_no_worker_can_reach_is_refused() -> None:
    with pytest.raises(InputError, match=r"storage = 'memory://runs': is the memory of one process"):
        raystitch.run_sweep(STUDY, "memory://runs")

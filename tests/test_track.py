"""The ``track`` section of a config: what it takes, that nothing depends on it, and a tracker that fails."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_plan import CATALOGUE, study

from raystitch.config import track
from raystitch.config.track import IN_STORAGE, check_installed
from raystitch.distributed.tracking import Tracker, parameters, run_name, trackers
from raystitch.errors import InputError
from raystitch.execute import Job
from raystitch.plan import expand
from raystitch.results import study_record
from raystitch.store import Store
from raystitch.sweep import run_sweep

ALL = {"tensorboard": True, "wandb": {"project": "p"}, "mlflow": {"uri": "http://mlflow.lab:5000"}}


def test_what_it_takes() -> None:
    assert study().track.wanted == []
    assert study(track=ALL).track.wanted == ["tensorboard", "wandb", "mlflow"]
    assert study(track={"tensorboard": True}).track.tensorboard == IN_STORAGE
    assert study(track={"tensorboard": "s3://bucket/tb"}).track.tensorboard == "s3://bucket/tb"
    assert study(track={"tensorboard": False}).track.wanted == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tensorboard": 3}, "track.tensorboard = 3: give true, or a folder or URL to write to"),
        ({"wandb": {}}, "track.wandb.project: is required and missing"),
        ({"wandb": {"project": "p", "api_key": "x"}}, "unknown key 'api_key'"),
        ({"mlflow": {"uri": "http://me:secret@lab"}}, "track.mlflow.uri: holds credentials"),
        ({"tensorbord": True}, "track.tensorbord = True: unknown key 'tensorbord'; did you mean 'tensorboard'?"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        study(track=given)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_nothing_depends_on_it() -> None:
    plain, tracked = study(), study(track=ALL)
    assert [unit.id for unit in expand(tracked, CATALOGUE).units] == [
        unit.id for unit in expand(plain, CATALOGUE).units
    ]
    assert study_record(tracked) == study_record(plain)
    assert "mlflow.lab" not in json.dumps(study_record(tracked))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(track._PACKAGES, "mlflow", "mlflow_that_is_not_there")
    check_installed(study(track={"tensorboard": True}).track)
    with pytest.raises(InputError) as caught:
        check_installed(study(track=ALL | {"wandb": None}).track)
    text = "track.mlflow: needs the package mlflow_that_is_not_there: pip install 'raystitch[tracking]'"
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"tensorboard": "./board"},
            "track.tensorboard = './board': would be deleted with the job's working directory",
        ),
        ({"tensorboard": "local://board"}, "track.tensorboard = 'local://board': would be deleted"),
        (
            {"tensorboard": "simplecache::file://board"},
            "track.tensorboard = 'simplecache::file://board': would be deleted",
        ),
        ({"mlflow": {"uri": "mlruns"}}, "track.mlflow.uri = 'mlruns': would be deleted"),
    ],
)
def test_a_job_keeps_no_folder_of_its_own(
    given: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track, "_PACKAGES", dict.fromkeys(track._PACKAGES, "raystitch"))
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(InputError) as caught:
        run_sweep(study(track=given), str(tmp_path / "storage"))
    assert str(caught.value).startswith(named)
    assert not list(tmp_path.iterdir())


def test_a_run_has_the_same_name_in_every_run() -> None:
    fit = next(unit for unit in expand(study(), CATALOGUE).fits if unit.kind == "fit")
    config = {"group": "0123456789abcdef", **parameters([fit])}
    name = run_name(config)
    front, end = fit.front.ref.replace("/", "-"), fit.end.ref.replace("/", "-")
    assert name == f"{front}.{fit.front_point}-{end}.{fit.end_point}-{fit.arm}-seed{fit.seed}-01234567"


@dataclass(eq=False)
class Trial:
    """What callbacks look at of one of Tune's."""

    local_path: str
    config: dict[str, Any]
    evaluated_params: dict[str, Any]

    def init_local_path(self) -> None:
        Path(self.local_path).mkdir()


def trial(folder: Path) -> Trial:
    config = {"group": "0123456789abcdef", **parameters(expand(study(), CATALOGUE).fits[:1])}
    return Trial(str(folder), config, config)


def run(tracker: Tracker, one: Trial) -> None:
    """The life of a trial, as Tune tells it."""
    about = {"iteration": 1, "trials": [one], "trial": one}
    tracker.setup()
    tracker.on_trial_start(**about)
    tracker.on_trial_result(**about, result={"training_iteration": 1, "dm/test/agreement": 50.0, "failed": {}})
    tracker.on_trial_complete(**about)
    tracker.on_experiment_end(trials=[one])


def test_a_tracker_that_fails_is_told_nothing_more_and_stops_nothing(tmp_path: Path) -> None:
    blocked, told = tmp_path / "blocked", list[str]()
    blocked.write_text("a file where the folder should be")
    job = Job(study(track={"tensorboard": str(blocked)}), Store(str(tmp_path / "runs")), {})
    (tracker,) = trackers(job, told.append)
    run(tracker, trial(tmp_path / "first"))
    run(tracker, trial(tmp_path / "second"))
    (line,) = told
    assert line.startswith("track.tensorboard: ")
    assert line.endswith("; it is told nothing more, the sweep goes on")
    assert not (tmp_path / "second").exists()


def test_tensorboards_files_go_where_they_are_wanted(tmp_path: Path) -> None:
    job = Job(study(track={"tensorboard": str(tmp_path / "tb")}), Store(str(tmp_path / "runs")), {})
    told: list[str] = []
    (tracker,) = trackers(job, told.append)
    one = trial(tmp_path / "trial")
    run(tracker, one)
    assert told == []
    (file,) = (tmp_path / "tb" / run_name(one.config)).iterdir()
    assert file.name.startswith("events.out.tfevents.")
    assert b"dm/test/agreement" in file.read_bytes()

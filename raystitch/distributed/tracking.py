"""Tells TensorBoard, Weights & Biases and MLflow what each trial measured, through the callbacks that Tune has for them.

A trial is a group of fits that differ in their objective alone; its result holds ``<objective>/<eval set>/<metric>`` of each,
an IRI score always with its residual. The store has everything first: a tracker that fails is told no more, the rest goes on.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from raystitch.access import redact
from raystitch.config import MlflowConfig
from raystitch.config.track import IN_STORAGE
from raystitch.execute import Bench, Job
from raystitch.results import SIMILARITIES
from raystitch.store import Store
from raystitch.units import FitUnit

METRICS = (
    "agreement", "kappa", "top1", "top1_end", "match_error", "iri_r_median", "iri_r_p90", "train_loss", *SIMILARITIES,
)  # fmt: skip
"""Columns of the results table that are passed on."""
_UPLOAD_S = 120
"""How long to wait for Weights & Biases in the end."""
_WANDB_KEY = "WANDB_API_KEY"
_MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""A server that is away holds up the hand-out of fits, and should not for long."""


def measured(bench: Bench, units: Sequence[FitUnit]) -> dict[str, float]:
    """What units have published, by ``<objective>/<eval set>/<metric>``; nothing if nobody is to be told."""
    if not bench.config.track.wanted:
        return {}
    try:
        return {
            _plain(f"{_what(unit)}/{row['eval_set']}/{name}", "/"): row[name]
            for unit in units
            for row in bench.rows(unit)
            for name in METRICS
            if row.get(name) is not None and math.isfinite(row[name])
        }
    except Exception:  # the fits are done; that they cannot be read back now makes them no worse
        return {}


def _what(unit: FitUnit) -> str:
    return unit.objective if unit.kind == "fit" else unit.kind


def parameters(units: Sequence[FitUnit]) -> dict[str, Any]:
    """What a group of fits has in common, by the names of the results table."""
    one = units[0]
    return {
        "front": one.front.ref,
        "front_point": one.front_point,
        "end": one.end.ref,
        "end_point": one.end_point,
        "dataset": one.data,
        "arm": one.arm,
        "seed": one.seed,
        **({} if one.level is None else {"iri_level": one.level}),
    }


def trial_name(trial: Any) -> str:
    """A trial's name, also of its folder: what it is, and Tune's id of it."""
    return f"{run_name(trial.config)}-{trial.trial_id}"


def run_name(config: dict[str, Any]) -> str:
    """What a trial is, the same in every run: ``clean-1.4-clean-0.4-iri-seed1-`` and the start of its group's id."""
    ends = f"{config['front']}.{config['front_point']}-{config['end']}.{config['end_point']}"
    return _plain(f"{ends}-{config['arm']}-seed{config['seed']}-{config['group'][:8]}")


def _plain(text: str, more: str = "") -> str:
    """Only characters that every tracker and file system takes."""
    return re.sub(rf"[^A-Za-z0-9_.{more}-]", "-", text)


def trackers(job: Job, note: Callable[[str], None]) -> list[tune.Callback]:
    """A callback for each tracker that the config names."""
    return [Tracker(name, callback, note) for name, callback in _callbacks(job)]


def _callbacks(job: Job) -> Iterator[tuple[str, Any]]:
    config = job.config.track
    if config.tensorboard is not None:
        yield "tensorboard", _tensorboard(job)
    if config.wandb is not None:
        yield "wandb", _wandb(config.wandb.project, job.config.name)
    if config.mlflow is not None:
        yield "mlflow", _mlflow(config.mlflow, job.config.name)


def _mlflow(config: MlflowConfig, sweep: str) -> Any:
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    for name, value in _MLFLOW_PATIENCE.items():
        os.environ.setdefault(name, value)
    return MLflowLoggerCallback(config.uri, experiment_name=config.experiment or sweep, tags={"sweep": sweep})


def _wandb(project: str, sweep: str) -> Any:
    from ray.air.integrations.wandb import WandbLoggerCallback

    class Discreet(WandbLoggerCallback):
        """Tune's callback gives its processes the key in their runtime environment, which Ray logs; here as an argument."""

        def setup(self, *arguments: Any, **info: Any) -> None:
            super().setup(*arguments, **info)
            os.environ.pop(_WANDB_KEY, None)

    key = os.environ.get(_WANDB_KEY)
    place = {"dir": os.environ.get("WANDB_DIR") or str(Path.cwd()), "mode": os.environ.get("WANDB_MODE")}
    settings = {"api_key": key} if key else None
    return Discreet(project, sweep, api_key=key, upload_timeout=_UPLOAD_S, settings=settings, **place)


def _tensorboard(job: Job) -> Any:
    from ray.tune.logger import TBXLoggerCallback

    folder = job.config.track.tensorboard or IN_STORAGE
    store, prefix = (job.store, f"tensorboard/{job.config.name}") if folder == IN_STORAGE else (Store(folder), "")

    class Published(TBXLoggerCallback):
        """Tune's callback writes into the trial's own folder; a trial that is over is published from there."""

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            super().log_trial_end(trial, failed)
            for file in () if failed else Path(trial.local_path).glob("events.out.tfevents.*"):
                store.publish("/".join(filter(None, (prefix, run_name(trial.config), file.name))), file.read_bytes())

    return Published()


class Tracker(tune.Callback):
    """One tracker's callback. After its first error it hears no more, which is told in one line, and the sweep goes on."""

    def __init__(self, name: str, callback: Any, note: Callable[[str], None]) -> None:
        self._name, self._callback, self._note = name, callback, note
        self._works = True

    def _tell(self, event: str, **info: Any) -> None:
        if not self._works:
            return
        try:
            getattr(self._callback, event)(**info)
        except Exception as error:
            self._works = False
            reason = " ".join(redact(str(error)).split()) or type(error).__name__
            self._note(f"track.{self._name}: {reason}; it is told nothing more, the sweep goes on")

    def setup(self, **info: Any) -> None:
        """A round of trials begins."""
        self._tell("setup", **info)

    def on_trial_start(self, **info: Any) -> None:
        """A trial begins."""
        self._tell("on_trial_start", **info)

    def on_trial_result(self, **info: Any) -> None:
        """A trial's result, without what is the sweep's own."""
        result = {name: value for name, value in info.pop("result").items() if name not in ("failed", "config")}
        self._tell("on_trial_result", result=result, **info)

    def on_trial_complete(self, **info: Any) -> None:
        """A trial is over."""
        self._tell("on_trial_complete", **info)

    def on_trial_error(self, **info: Any) -> None:
        """A trial was lost."""
        self._tell("on_trial_error", **info)

    def on_experiment_end(self, **info: Any) -> None:
        """A round of trials is over."""
        self._tell("on_experiment_end", **info)

    def __getstate__(self) -> dict[str, Any]:
        return {}

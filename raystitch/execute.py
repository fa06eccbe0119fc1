"""Compute one unit: load what it needs, run the compute room, publish what came out.

A :class:`Bench` lives in every worker process. Its shelf keeps the nets and images loaded last, so that the next unit of the
same pair starts at once. Each method publishes create-only files whose content follows from the unit alone, so a unit may
be retried, or computed by two workers at once, without harm. No Ray in here.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import torch

from raystitch import catalogue, iris, nets, training
from raystitch.access import Access
from raystitch.config import EvalSet, StudyConfig, TrainConfig
from raystitch.data import Split
from raystitch.gallery import encode_gallery
from raystitch.measure import Outcome, measure
from raystitch.memory import keep_freed_memory
from raystitch.nets import NormalisedNet
from raystitch.predictions import encode_predictions
from raystitch.results import SIMILARITIES, decode_rows, encode_rows
from raystitch.shelf import Shelf
from raystitch.store import Store
from raystitch.units import FitUnit, IriUnit, ModelUnit, ShardUnit

NEVER_NAN = (
    "agreement", "agreement_top1", "agreement_correct", "kappa", "kappa_soft", "top1", "loss", "top1_end", "match_error",
    "train_loss",
)  # fmt: skip
"""Columns in which a number that is none would be an error: the others are undefined for some nets and datasets."""
CHECKPOINT_SECONDS = 60.0
"""Least time between two checkpoints of a training: how much work a kill may cost, beside the epoch it falls into."""


@dataclass(frozen=True)
class Job:
    """What every worker of a sweep is given: small, picklable, without data or nets."""

    config: StudyConfig
    store: Store
    provenance: Mapping[str, str]
    access: Access = field(default_factory=Access)

    def bench(self) -> Bench:
        """What computes its units in a worker."""
        return Bench(self)


class Bench:
    """Computes units of one study and keeps what it loaded last.

    Args:
        job: the study, where its outputs go, and which code computes it.
        device: torch device; by default the GPU that the process may use, else the CPU.
    """

    def __init__(self, job: Job, device: str | None = None) -> None:
        job.access.apply()
        self.job, self.config, self.store = job, job.config, job.store
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.shelf = Shelf(job.config, job.store, self.device)
        keep_freed_memory()

    def make_model(self, unit: ModelUnit) -> None:
        """Train or import a base model; publish its weights, then its accuracies in percent."""
        started = time.monotonic()
        net = self.shelf.new_net(unit)
        model = self.config.models[unit.name]
        if model.checkpoint is not None:
            catalogue.load_checkpoint(net, model, unit.seed, f"models.{unit.name}")
        elif model.train is not None:
            self._train(net, unit, model.train)
        self.store.publish(unit.weights, nets.save_weights(net))
        record = {
            "id": unit.id,
            "model": unit.ref,
            "arch": model.arch,
            "data": model.data,
            "test_images": len(self.shelf.plain(model.data, "test")),
            "parameters": sum(p.numel() for p in net.parameters()),
            "top1": self._accuracies(net, model.data),
            "wall_s": time.monotonic() - started,
            **self._stamp(),
        }
        self.store.publish(unit.marker, json.dumps(record, indent=1).encode())
        self.store.remove(unit.training)

    def make_shard(self, unit: ShardUnit) -> None:
        """Invert one index range of the training images; publish the tar of each residual level, that of the best last."""
        shown = self.shelf.images(unit.set.data, "train", "test")
        part = slice(unit.start, unit.stop)
        images = shown.images[part].to(self.device)
        shards = iris.make_shards(self.shelf.inverter(unit.set), images, shown.labels[part], unit.start)
        for level in (*unit.set.config.levels, None):
            self.store.publish(unit.tar(level), iris.encode_shard(shards[level]))

    def close_set(self, unit: IriUnit) -> None:
        """Publish the gallery, then the index that makes an IRI set visible."""
        first = next(self.shelf.shards(unit))[2]
        originals = self.shelf.images(unit.data, "train", "test").images
        self.store.publish(unit.gallery, encode_gallery(originals, first))
        spec = unit.config
        levels = [iris.level_index(level, self.shelf.shards(unit, level)) for level in spec.levels]
        record = {
            "id": unit.id,
            "model": unit.model.id,
            "module": unit.module,
            "optimiser": spec.optimiser,
            "steps": spec.steps,
            **iris.set_index(self.shelf.shards(unit)),
            **({"levels": levels} if levels else {}),
            **self._stamp(),
        }
        # in place of an older index: a lost shard that another kind of machine made again has other last digits
        self.store.replace(unit.marker, json.dumps(record, indent=1).encode())

    def fit(self, units: Sequence[FitUnit]) -> None:
        """Compute a group of units that share their passes; publish the predictions of each, then its rows.

        Raises:
            FloatingPointError: a loss or metric is not a number.
        """
        todo = [unit for unit in units if not all(map(self.store.exists, unit.files))]
        if todo:
            started = time.monotonic()
            outcomes = measure(self.shelf, todo)
            shared = {"wall_s": (time.monotonic() - started) / len(todo), "device": self.device, **self._stamp()}
            for unit in todo:
                self._publish(unit, outcomes[unit.id], shared)

    def rows(self, unit: FitUnit) -> list[dict[str, Any]]:
        """The rows that a unit has published."""
        return decode_rows(self.store.read(unit.marker))

    def _publish(self, unit: FitUnit, outcome: Outcome, shared: Mapping[str, Any]) -> None:
        for row in outcome.rows:
            for name in SIMILARITIES if unit.kind == "similarity" else NEVER_NAN:
                value = row.get(name)
                if value is not None and (math.isnan(value) or (math.isinf(value) and name != "match_error")):
                    raise FloatingPointError(f"{name} of unit {unit.id} on {row['eval_set']!r} is {value}")
        if outcome.predictions:
            self.store.publish(unit.predictions, encode_predictions(outcome.predictions))
        self.store.publish(unit.marker, encode_rows([{**row, **shared} for row in outcome.rows]))

    def _train(self, net: NormalisedNet, unit: ModelUnit, recipe: TrainConfig) -> None:
        """Train from where an interrupted training of the unit left off, if there was one."""
        name = self.config.models[unit.name].data
        kept = training.Checkpoints(
            save=lambda state: self.store.replace(unit.training, state),
            load=lambda: self._read_if_there(unit.training),
            seconds=CHECKPOINT_SECONDS,
        )
        plain, cue = self.shelf.plain(name, "train"), self.config.data[name].cue
        training.train(net, plain, recipe, unit.seed, cue, self.device, checkpoints=kept)

    def _read_if_there(self, name: str) -> bytes | None:
        try:
            return self.store.read(name)
        except FileNotFoundError:
            return None

    def _accuracies(self, net: NormalisedNet, name: str) -> dict[str, float]:
        kinds: list[tuple[Split, EvalSet]] = [("train", "test"), ("test", "test")]
        if self.config.data[name].cue is not None:
            kinds += [("test", "shuffled"), ("test", "clean")]
        net.eval()
        return {
            split if shown == "test" else shown: training.accuracy(
                net, self.shelf.images(name, split, shown), self.device
            )
            for split, shown in kinds
        }

    def _stamp(self) -> dict[str, str]:
        return {"created": datetime.now(timezone.utc).isoformat(timespec="seconds"), **self.job.provenance}

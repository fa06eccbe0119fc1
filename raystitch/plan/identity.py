"""What determines the output of each kind of unit, as plain values: the contents of ids.

An output depends on nothing else: not on the sweep's name, the names the user gave, or the number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raystitch.config import (
    ATTACKS,
    EXACT,
    CueConfig,
    EvalSet,
    FitConfig,
    IriConfig,
    ModelConfig,
    RobustConfig,
    StudyConfig,
)
from raystitch.plan.facts import Catalogue
from raystitch.units import FitUnit

FORMAT: Mapping[str, int] = {"model": 1, "iris": 4, "fit": 1, "unstitched": 1, "similarity": 1}
"""Raised when an algorithm or file format changes, so that older outputs are not taken for new ones."""


def train_spec(config: StudyConfig, catalogue: Catalogue, name: str) -> dict[str, Any]:
    """The training images of a dataset: their content and the planted cue."""
    return {"train": catalogue.data[name].train, "cue": _cue_spec(config.data[name].cue)}


def test_spec(config: StudyConfig, catalogue: Catalogue, name: str, evals: tuple[EvalSet, ...]) -> dict[str, Any]:
    """What is shown of a dataset's test images, and how they are attacked."""
    spec = {"test": catalogue.data[name].test, "cue": _cue_spec(config.data[name].cue), "eval": sorted(evals)}
    if set(evals) & set(ATTACKS):
        spec["robust"] = _robust_spec(config.robust, catalogue.data[name].size)
    return spec


def model_spec(config: StudyConfig, catalogue: Catalogue, name: str, seed: int) -> dict[str, Any]:
    """A base model: its net, and where its weights come from."""
    model, facts = config.models[name], catalogue.models[name]
    return {
        "kind": "model",
        "format": FORMAT["model"],
        "arch": model.arch,
        "args": model.args,
        "code": facts.code,
        "classes": catalogue.data[model.data].num_classes,
        "normalise": model.normalise.model_dump(mode="json"),
        **_origin(config, catalogue, model, seed, facts.weights.get(seed)),
    }


def _origin(
    config: StudyConfig, catalogue: Catalogue, model: ModelConfig, seed: int, weights: str | None
) -> dict[str, Any]:
    if model.untrained:
        return {"untrained": True, "seed": seed}
    if model.train is None:
        return {"weights": weights}
    return {"recipe": model.train.identity(), "seed": seed, "data": train_spec(config, catalogue, model.data)}


def iri_spec(iri: IriConfig) -> dict[str, Any]:
    """How a set is inverted; levels where there are any."""
    without = {"lr", "compile", "batch"} | (set() if iri.levels else {"levels"})
    return {**iri.model_dump(mode="json", exclude=without), "step_size": iri.step_size}


def fit_spec(fit: FitConfig, objective: str) -> dict[str, Any]:
    """The recipe, or of a solution what it depends on: the batch only by rounding. An affine stitch goes without saying."""
    stitch = {} if fit.stitch.kind == "affine" else {"stitch": fit.stitch.model_dump(mode="json", exclude_none=True)}
    if objective == EXACT:
        return {"batch": fit.batch, **stitch}
    return {**fit.model_dump(mode="json", exclude={"stitch"}), **stitch}


def training_spec(unit: FitUnit) -> dict[str, Any]:
    """What a stitch is trained on beside the dataset: IRIs of some level, augmentation, an attack."""
    spec: dict[str, Any] = {
        "iris": None if unit.iris is None else unit.iris.id,
        "arm": unit.arm,
        "regime": "augmented, batch statistics" if unit.augmented else "plain, frozen",
    }
    if unit.level is not None:
        spec["level"] = unit.level
    if unit.attack is not None:
        spec["attack"] = unit.attack.model_dump(mode="json")
    return spec


def _robust_spec(robust: RobustConfig, size: int) -> dict[str, Any]:
    return {**robust.model_dump(mode="json"), "eps": robust.radius(size)}


def _cue_spec(cue: CueConfig | None) -> dict[str, Any] | None:
    return None if cue is None else cue.model_dump(mode="json")

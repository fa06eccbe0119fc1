"""What must be computed: a config expanded into units with content-addressed ids.

A unit's id is a SHA-256 of the canonical JSON of everything that determines its output, its parents' ids included, and
of nothing else: not the sweep's name, not the names the user gave, not the number of workers. So studies share work, a
rerun is "list what is missing", and resuming needs no state. This module is pure: no torch, no Ray, no file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from raystitch.config import (
    EXACT,
    Arm,
    CueConfig,
    EvalSet,
    FitConfig,
    IriConfig,
    SettingConfig,
    StudyConfig,
    expand_refs,
)
from raystitch.errors import InputError
from raystitch.units import FitUnit, IriUnit, ModelUnit, Unit, unit_id

FORMAT: Mapping[str, int] = {"model": 1, "iris": 1, "fit": 1, "unstitched": 1}
"""Raised when an algorithm or file format changes, so that older outputs are not taken for new ones."""

Side = Literal["front", "end"]


class PointLike(Protocol):
    """What the plan needs to know of a stitch point (:class:`raystitch.nets.Point`)."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def module(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class DataFacts:
    """What was found of a dataset: content fingerprints, class count, side of the images in pixels, image counts."""

    train: str
    test: str
    num_classes: int
    size: int
    train_count: int


@dataclass(frozen=True)
class ModelFacts:
    """What was found of a model: its stitch points, the SHA-256 of each seed's checkpoint and of user code, and the FLOPs
    of one image through each of its segments."""

    points: tuple[PointLike, ...]
    weights: Mapping[int, str]
    code: str | None = None
    flops: tuple[int, ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """Facts about everything that a config names, gathered before planning."""

    data: Mapping[str, DataFacts]
    models: Mapping[str, ModelFacts]


@dataclass(frozen=True)
class Row:
    """One unit as one setting of one study names it: the part of the results table that is not in the unit's own file."""

    setting: str
    unit: FitUnit
    front_module: str
    end_module: str
    front_arch: str
    end_arch: str


@dataclass(frozen=True)
class Plan:
    """Every distinct unit of a study by kind, in the order to compute them, and a row for each use of a fit."""

    models: tuple[ModelUnit, ...]
    iris: tuple[IriUnit, ...]
    fits: tuple[FitUnit, ...]
    rows: tuple[Row, ...]

    @property
    def units(self) -> Iterator[Unit]:
        """All units, parents first."""
        yield from self.models
        yield from self.iris
        yield from self.fits


def expand(config: StudyConfig, catalogue: Catalogue) -> Plan:
    """Expand a study into its units.

    Raises:
        InputError: a point that a model does not have, or a setting whose models and data do not go together.
    """
    planner = _Planner(config, catalogue)
    rows = [row for name, setting in config.settings.items() for row in planner.rows(name, setting)]
    fits = _distinct(row.unit for row in rows)
    iris = _distinct(fit.iris for fit in fits if fit.iris is not None)
    models = _distinct([model for fit in fits for model in (fit.end, fit.front)] + [unit.model for unit in iris])
    return Plan(tuple(models), tuple(iris), tuple(fits), tuple(rows))


def pair_points(config: StudyConfig, setting: str, n: int, m: int) -> list[tuple[int, int]]:
    """(front point, end point) pairs of a setting whose front has n points and whose end has m.

    Nets of different depth are paired by rounded linear interpolation (METHOD §6).

    Raises:
        InputError: a point outside 1 … n, or 1 … m.
    """
    own = config.settings[setting].points
    choice, where = (config.points, "points") if own is None else (own, f"settings.{setting}.points")
    if choice == "cross":
        return [(i, j) for i in range(1, n + 1) for j in range(1, m + 1)]
    wanted = range(1, n + 1) if choice == "all" else choice
    pairs = [(p, interpolate(p, n, m)) if isinstance(p, int) else p for p in wanted]
    for i, j in pairs:
        for side, point, count in (("front", i, n), ("end", j, m)):
            if not 1 <= point <= count:
                raise InputError(where, point, f"the {side} has stitch points 1 to {count}")
    return list(dict.fromkeys(pairs))


def interpolate(point: int, n: int, m: int) -> int:
    """Point of a net with m points at the same relative depth as ``point`` of a net with n points."""
    return 1 if n == 1 else int(1 + (point - 1) * (m - 1) / (n - 1) + 0.5)


def _train_spec(config: StudyConfig, catalogue: Catalogue, name: str) -> dict[str, Any]:
    """What identifies the training images of a dataset: their content and the planted cue."""
    return {"train": catalogue.data[name].train, "cue": _cue_spec(config.data[name].cue)}


def _data_spec(config: StudyConfig, catalogue: Catalogue, name: str) -> dict[str, Any]:
    """What identifies a dataset: both of its splits and the planted cue."""
    return {**_train_spec(config, catalogue, name), "test": catalogue.data[name].test}


class _Planner:
    """Builds units, each distinct one once."""

    def __init__(self, config: StudyConfig, catalogue: Catalogue) -> None:
        self.config, self.catalogue = config, catalogue
        self._models: dict[tuple[str, int], ModelUnit] = {}

    def rows(self, name: str, setting: SettingConfig) -> Iterator[Row]:
        fronts = expand_refs(self.config, setting.front, f"settings.{name}.front")
        ends = expand_refs(self.config, setting.end, f"settings.{name}.end")
        for front in fronts:
            data = setting.data or self.config.models[front[0]].data
            for end in ends:
                yield from self._curve(name, self._model(*front), self._model(*end), data, setting.eval)

    def _curve(
        self, setting: str, front: ModelUnit, end: ModelUnit, data: str, evals: tuple[EvalSet, ...]
    ) -> Iterator[Row]:
        f, g = self._points(front), self._points(end)
        yield self._row(setting, self._unstitched(front, end, data, evals, "end"), "", "")
        for i, j in pair_points(self.config, setting, len(f), len(g)):
            for seed in self.config.seeds:
                for arm in self.config.arms:
                    for unit in self._fits(front, end, i, j, arm, seed, data, evals):
                        yield self._row(setting, unit, f[i - 1].module, g[j - 1].module)
        yield self._row(setting, self._unstitched(front, end, data, evals, "front"), "", "")

    def _row(self, setting: str, unit: FitUnit, front_module: str, end_module: str) -> Row:
        models = self.config.models
        return Row(setting, unit, front_module, end_module, models[unit.front.name].arch, models[unit.end.name].arch)

    def _points(self, model: ModelUnit) -> tuple[PointLike, ...]:
        return self.catalogue.models[model.name].points

    def _model(self, name: str, seed: int) -> ModelUnit:
        if (name, seed) not in self._models:
            self._models[name, seed] = ModelUnit(unit_id(self._model_spec(name, seed)), name, seed)
        return self._models[name, seed]

    def _model_spec(self, name: str, seed: int) -> dict[str, Any]:
        model, facts = self.config.models[name], self.catalogue.models[name]
        origin: dict[str, Any] = {"weights": facts.weights.get(seed)}
        if model.train is not None:
            data = _train_spec(self.config, self.catalogue, model.data)
            origin = {"recipe": model.train.identity(), "seed": seed, "data": data}
        return {
            "kind": "model",
            "format": FORMAT["model"],
            "arch": model.arch,
            "args": model.args,
            "code": facts.code,
            "classes": self.catalogue.data[model.data].num_classes,
            "normalise": model.normalise.model_dump(mode="json"),
            **origin,
        }

    def _iris(self, model: ModelUnit, point: int, data: str) -> IriUnit:
        iri, module = self.config.iri, self._points(model)[point - 1].module
        spec = {
            "kind": "iris",
            "format": FORMAT["iris"],
            "model": model.id,
            "module": module,
            "data": _train_spec(self.config, self.catalogue, data),
            "iri": _iri_spec(iri),
        }
        count = self.catalogue.data[data].train_count
        return IriUnit(unit_id(spec), model, point, module, data, count, iri.shard_size)

    def _fits(
        self,
        front: ModelUnit,
        end: ModelUnit,
        i: int,
        j: int,
        arm: Arm,
        seed: int,
        data: str,
        evals: tuple[EvalSet, ...],
    ) -> Iterator[FitUnit]:
        iris = self._iris(front, i, data) if arm == "iri" else None
        moving = self.config.protocol == "paper" and arm == "real"
        spec = {
            "kind": "fit",
            "format": FORMAT["fit"],
            "front": front.id,
            "end": end.id,
            "iris": None if iris is None else iris.id,
            "front_module": self._points(front)[i - 1].module,
            "end_modules": [point.module for point in self._points(end)[j - 1 :]],
            "data": _data_spec(self.config, self.catalogue, data),
            "eval": sorted(evals),
            "fit": _fit_spec(self.config.fit),
            "regime": "augmented, batch statistics" if moving else "plain, frozen",
            "seed": seed,
        }
        group = unit_id(spec)
        for objective in self.config.objectives:
            own = {"fit": _exact_spec(self.config.fit)} if objective == EXACT else {}
            unit = unit_id({**spec, **own, "objective": objective})
            yield FitUnit(unit, group, front, end, i, j, objective, arm, seed, data, evals, iris)

    def _unstitched(
        self, front: ModelUnit, end: ModelUnit, data: str, evals: tuple[EvalSet, ...], which: Side
    ) -> FitUnit:
        spec = {
            "kind": "unstitched",
            "format": FORMAT["unstitched"],
            "which": which,
            "front": front.id,
            "end": end.id,
            "data": _data_spec(self.config, self.catalogue, data),
            "eval": sorted(evals),
        }
        past_last = len(self._points(front)) + 1, len(self._points(end)) + 1
        i, j = (0, 0) if which == "end" else past_last
        unit = unit_id(spec)
        return FitUnit(unit, unit, front, end, i, j, "none", "none", 0, data, evals)


def _iri_spec(iri: IriConfig) -> dict[str, Any]:
    return {**iri.model_dump(mode="json", exclude={"lr"}), "step_size": iri.step_size}


def _fit_spec(fit: FitConfig) -> dict[str, Any]:
    """The recipe; an affine stitch, the method's, goes without saying."""
    return {**fit.model_dump(mode="json", exclude={"stitch"}), **_stitch_spec(fit)}


def _exact_spec(fit: FitConfig) -> dict[str, Any]:
    """What a solution depends on that is not trained: the batch only by rounding."""
    return {"batch": fit.batch, **_stitch_spec(fit)}


def _stitch_spec(fit: FitConfig) -> dict[str, Any]:
    return {} if fit.stitch.kind == "affine" else {"stitch": fit.stitch.model_dump(mode="json", exclude_none=True)}


def _cue_spec(cue: CueConfig | None) -> dict[str, Any] | None:
    return None if cue is None else cue.model_dump(mode="json")


def _distinct(units: Iterable[Any]) -> list[Any]:
    return list({unit.id: unit for unit in units}.values())

"""Expand a study into its units: settings × pairs × points × seeds × arms × residual levels × objectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from raystitch.config import Arm, Grid, IriConfig, StudyConfig, setting_pairs
from raystitch.plan.facts import Catalogue, PointLike
from raystitch.plan.identity import FORMAT, fit_spec, iri_spec, model_spec, test_spec, train_spec, training_spec
from raystitch.plan.pairing import pair_points
from raystitch.units import FitUnit, IriUnit, ModelUnit, Unit, unit_id


@dataclass(frozen=True)
class Row:
    """One unit as one setting of one study names it: the part of the results table that is not in the unit's own file."""

    setting: str
    unit: FitUnit
    front_module: str
    end_module: str
    front_arch: str
    end_arch: str
    protocol: str


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
    rows = [row for name in config.settings for row in planner.rows(name)]
    fits = _distinct(row.unit for row in rows)
    iris = _distinct(fit.iris for fit in fits if fit.iris is not None)
    models = _distinct([model for fit in fits for model in (fit.end, fit.front)] + [unit.model for unit in iris])
    return Plan(tuple(models), tuple(iris), tuple(fits), tuple(rows))


class _Planner:
    """Builds units, each distinct one once."""

    def __init__(self, config: StudyConfig, catalogue: Catalogue) -> None:
        self.config, self.catalogue = config, catalogue
        self._models: dict[tuple[str, int], ModelUnit] = {}

    def rows(self, name: str) -> Iterator[Row]:
        for front, end in setting_pairs(self.config, name):
            yield from self._curve(name, self._model(*front), self._model(*end))

    def _curve(self, setting: str, front: ModelUnit, end: ModelUnit) -> Iterator[Row]:
        grid, blank = self.config.grid(setting), self._blank(setting, front, end)
        f, g = self._points(front), self._points(end)
        yield self._row(setting, self._unstitched(blank, "end"), "", "")
        for i, j in pair_points(grid, len(f), len(g)):
            units = [*self._similarities(grid, blank, i, j), *self._fits(grid, blank, i, j)]
            yield from (self._row(setting, unit, f[i - 1].module, g[j - 1].module) for unit in units)
        yield self._row(setting, self._unstitched(blank, "front"), "", "")

    def _row(self, setting: str, unit: FitUnit, front_module: str, end_module: str) -> Row:
        front, end = (self.config.models[model.name].arch for model in (unit.front, unit.end))
        return Row(setting, unit, front_module, end_module, front, end, self.config.grid(setting).protocol)

    def _points(self, model: ModelUnit) -> tuple[PointLike, ...]:
        return self.catalogue.models[model.name].points

    def _model(self, name: str, seed: int) -> ModelUnit:
        if (name, seed) not in self._models:
            spec = model_spec(self.config, self.catalogue, name, seed)
            self._models[name, seed] = ModelUnit(unit_id(spec), name, seed)
        return self._models[name, seed]

    def _blank(self, setting: str, front: ModelUnit, end: ModelUnit) -> FitUnit:
        """What all units of a curve have in common."""
        own = self.config.settings[setting]
        data = own.data or self.config.models[front.name].data
        return FitUnit(
            id="",
            group="",
            front=front,
            end=end,
            front_point=0,
            end_point=0,
            objective="none",
            arm="none",
            seed=0,
            data=data,
            test_data=own.test or data,
            eval_sets=self.config.grid(setting).eval,
            config=self.config.grid(setting).fit,
            attack=own.attack,
        )

    def _iris(self, model: ModelUnit, point: int, data: str, iri: IriConfig) -> IriUnit:
        module = self._points(model)[point - 1].module
        spec = {
            "kind": "iris",
            "format": FORMAT["iris"],
            "model": model.id,
            "module": module,
            "data": train_spec(self.config, self.catalogue, data),
            "iri": iri_spec(iri),
        }
        return IriUnit(unit_id(spec), model, point, module, data, self.catalogue.data[data].train_count, iri)

    def _fits(self, grid: Grid, blank: FitUnit, i: int, j: int) -> Iterator[FitUnit]:
        for seed in (blank.front.seed,) if grid.seeds == "front" else grid.seeds:
            for arm in grid.arms:
                for unit in self._trained_on(grid, replace(blank, front_point=i, end_point=j, seed=seed), arm):
                    spec = {
                        **self._pair_spec("fit", unit),
                        **training_spec(unit),
                        "seed": seed,
                        "test": self._test_spec(unit),
                    }
                    group = unit_id({**spec, "fit": fit_spec(grid.fit, "")})
                    for name in grid.objectives:
                        unit_spec = {**spec, "fit": fit_spec(grid.fit, name), "objective": name}
                        yield replace(unit, id=unit_id(unit_spec), group=group, objective=name)

    def _trained_on(self, grid: Grid, unit: FitUnit, arm: Arm) -> Iterator[FitUnit]:
        """The unit with what one arm trains on: real images, or the IRIs of every residual level."""
        if arm == "real":
            yield replace(unit, arm=arm, augmented=grid.protocol == "paper")
            return
        iris = self._iris(unit.front, unit.front_point, unit.data, grid.iri)
        for level in (*grid.iri.levels, None):
            yield replace(unit, arm=arm, iris=iris, level=level)

    def _similarities(self, grid: Grid, blank: FitUnit, i: int, j: int) -> Iterator[FitUnit]:
        """Representation metrics of a pair of points: on the IRIs of every level, or on real images alone."""
        if self.config.similarity is None:
            return
        bare = replace(blank, kind="similarity", front_point=i, end_point=j, attack=None, eval_sets=())
        with_iris = next((arm for arm in grid.arms if arm != "real"), None)
        for unit in self._trained_on(grid, bare, with_iris or "real"):
            spec = {
                **self._pair_spec("similarity", unit),
                "iris": None if unit.iris is None else unit.iris.id,
                "level": unit.level,
                "images": self.config.similarity.images,
            }
            own = unit_id(spec)
            yield replace(unit, id=own, group=own, arm="none", augmented=False)

    def _pair_spec(self, kind: str, unit: FitUnit) -> dict[str, Any]:
        """The two nets, where they are cut, and the training images."""
        return {
            "kind": kind,
            "format": FORMAT[kind],
            "front": unit.front.id,
            "end": unit.end.id,
            "front_module": self._points(unit.front)[unit.front_point - 1].module,
            "end_modules": [point.module for point in self._points(unit.end)[unit.end_point - 1 :]],
            "data": train_spec(self.config, self.catalogue, unit.data),
        }

    def _test_spec(self, unit: FitUnit) -> dict[str, Any]:
        return test_spec(self.config, self.catalogue, unit.test_data, unit.eval_sets)

    def _unstitched(self, blank: FitUnit, which: Literal["front", "end"]) -> FitUnit:
        spec = {
            "kind": "unstitched",
            "format": FORMAT["unstitched"],
            "which": which,
            "front": blank.front.id,
            "end": blank.end.id,
            "test": self._test_spec(blank),
        }
        past_last = len(self._points(blank.front)) + 1, len(self._points(blank.end)) + 1
        i, j = (0, 0) if which == "end" else past_last
        own = unit_id(spec)
        return replace(blank, id=own, group=own, kind="unstitched", front_point=i, end_point=j, attack=None)


def _distinct(units: Iterable[Any]) -> list[Any]:
    return list({unit.id: unit for unit in units}.values())

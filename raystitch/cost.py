"""What a study will cost, in floating-point operations counted from the nets themselves (multiply and add are two)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate

from raystitch.config import StudyConfig, TrainConfig
from raystitch.plan import Catalogue, Plan
from raystitch.stitching import reach
from raystitch.units import FitUnit, IriUnit, ModelUnit

AUTOATTACK_PASSES = 2 * (100 + 9 * 100 + 9 * 100) + 5000
"""Forward passes of standard AutoAttack: 100 steps of APGD-CE, and of APGD-DLR and FAB on nine targets each; 5,000 queries."""


@dataclass(frozen=True)
class Cost:
    """FLOPs by kind of work."""

    model: float
    iris: float
    fit: float


def passes(recipe: TrainConfig) -> float:
    """Forward passes of one image that a training amounts to; a step with its backward pass counts as three.

    SimCLR sees each image twice and then trains a head on forward passes alone; an attack adds a forward and a backward pass
    to the input per step, for its share of the images.
    """
    if recipe.method == "simclr":
        return 2 * 3 * recipe.epochs + recipe.head.epochs
    attacks = 2 * recipe.attack.steps * recipe.attack.share if recipe.method == "adversarial" else 0
    return (3 + attacks) * recipe.epochs


class Estimator:
    """Cost of units from the FLOPs of the nets' segments. A backward pass to the input costs as much as a forward pass."""

    def __init__(self, config: StudyConfig, catalogue: Catalogue) -> None:
        self._config, self._catalogue = config, catalogue
        self._reach = {name: (0, *accumulate(facts.flops)) for name, facts in catalogue.models.items()}

    def total(self, plan: Plan, missing: AbstractSet[str]) -> Cost:
        """Cost of the missing units of a plan."""
        fits = [unit for unit in plan.fits if unit.id in missing and unit.kind == "fit"]
        groups = {unit.group: unit for unit in fits}
        shown = [unit for unit in plan.fits if unit.id in missing and unit.kind != "similarity"]
        return Cost(
            model=sum(self._train(unit) for unit in plan.models if unit.id in missing),
            iris=sum(self._invert(unit) for unit in plan.iris if unit.id in missing),
            fit=sum(map(self._fit, fits))
            + sum(map(self._shared, groups.values()))
            + sum(map(self._attacked_sets, shown)),
        )

    def _flops(self, model: str, first: int, last: int) -> int:
        reach = self._reach[model]
        return reach[last] - reach[first]

    def _whole(self, model: str) -> int:
        return self._reach[model][-1]

    def _train(self, unit: ModelUnit) -> float:
        recipe = self._config.models[unit.name].train
        images = self._catalogue.data[self._config.models[unit.name].data].train_count
        return 0 if recipe is None else passes(recipe) * images * self._whole(unit.name)

    def _invert(self, unit: IriUnit) -> float:
        return 2 * unit.config.steps * unit.count * self._flops(unit.model.name, 0, unit.point)

    def _shared(self, unit: FitUnit) -> float:
        """Passes that the objectives of a group share: once where the nets are frozen, each epoch where they move."""
        if unit.attack is not None:
            return 0
        return self._images(unit) * (unit.config.epochs if unit.augmented else 1) * self._streams(unit)

    def _fit(self, unit: FitUnit) -> float:
        stop = reach(unit.objective, unit.end_point, len(self._reach[unit.end.name]) - 2)
        step = 2 * self._flops(unit.end.name, unit.end_point, stop)
        if unit.attack is not None:
            step += self._streams(unit) + 2 * unit.attack.steps * self._measured_net(unit)
        return unit.config.epochs * self._images(unit) * step

    def _images(self, unit: FitUnit) -> int:
        return self._catalogue.data[unit.data].train_count

    def _streams(self, unit: FitUnit) -> int:
        return self._flops(unit.front.name, 0, unit.front_point) + self._whole(unit.end.name)

    def _attacked_sets(self, unit: FitUnit) -> float:
        """What attacks of the evaluation sets cost at most: images that are taken early are left alone."""
        robust, count = self._config.robust, self._catalogue.data[unit.test_data].test_count
        each = {"apgd_ce_dlr": 2 * 2 * (robust.steps + 1), "autoattack": AUTOATTACK_PASSES}
        steps = sum(each.get(name, 0) for name in unit.eval_sets)
        return steps * min(count, robust.images or count) * self._measured_net(unit)

    def _measured_net(self, unit: FitUnit) -> int:
        """One pass of the stitched net, or of the net itself."""
        if unit.kind == "unstitched":
            return self._whole(unit.end.name if unit.front_point == 0 else unit.front.name)
        last = len(self._reach[unit.end.name]) - 1
        return self._flops(unit.front.name, 0, unit.front_point) + self._flops(unit.end.name, unit.end_point, last)

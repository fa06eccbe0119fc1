"""The published grid (METHOD §8) counted from configs/paper: fits, curves, IRI sets, and what studies share."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_plan import points

from raystitch.config import StudyConfig, load_config
from raystitch.plan import Catalogue, DataFacts, ModelFacts, Plan, expand

PAPER = Path(__file__).parents[1] / "configs" / "paper"
POINTS = {"resnet18": 9, "vgg16_bn": 6, "vit_tiny_patch16_224": 13, "vit_base_patch16_224": 7, "resnet_mini": 5}
"""METHOD §6; the small net of the reduced studies has a stem and four blocks."""
FITS = {
    "information_cifar10": 2688,
    "information_imagenet100": 1536,
    "shortcuts_cifar10": 4032,
    "shortcuts_imagenet100": 1152,
    "robustness_cifar10": 4032,
    "robustness_imagenet100": 2304,
}


def load(name: str) -> StudyConfig:
    return load_config(str(PAPER / f"{name}.yaml"))


def planned(config: StudyConfig) -> Plan:
    data = {
        name: DataFacts(
            f"train {d.path} {d.classes}",
            f"test {d.path} {d.classes}",
            d.expect.classes or 10,
            d.size or 32,
            d.expect.train or 1000,
        )
        for name, d in config.data.items()
    }
    models = {name: ModelFacts(points(POINTS[model.arch]), {}) for name, model in config.models.items()}
    return expand(config, Catalogue(data, models))


def fits(plan: Plan) -> int:
    return sum(row.unit.kind == "fit" for row in plan.rows)


@pytest.mark.parametrize(("name", "count"), FITS.items())
def test_each_study_has_the_published_number_of_fits(name: str, count: int) -> None:
    assert fits(planned(load(name))) == count


def test_the_six_studies_are_the_published_grid() -> None:
    plans = [planned(load(name)) for name in FITS]
    assert sum(map(fits, plans)) == 15_744
    assert sum(len(plan.iris) for plan in plans) == 1_308
    curves = {
        (n, row.setting, row.unit.front.id, row.unit.end.id, row.unit.arm, row.unit.objective, row.unit.seed)
        for n, plan in enumerate(plans)
        for row in plan.rows
        if row.unit.kind == "fit"
    }
    assert len(curves) == 1_776
    distinct = {unit.id for plan in plans for unit in plan.iris}
    # clean/1–3 invert the plain training images for the information and the robustness study alike: 28 + 16 points, three seeds
    assert len(distinct) == 1_308 - 3 * (28 + 16)


def test_the_controls_add_528_fits_on_sets_of_the_information_study() -> None:
    controls = planned(load("controls"))
    assert fits(controls) == 528
    shared = {
        unit.id for name in ("information_cifar10", "information_imagenet100") for unit in planned(load(name)).iris
    }
    assert {unit.id for unit in controls.iris} <= shared


@pytest.mark.parametrize("name", [*FITS, "controls"])
def test_they_follow_the_published_recipe(name: str) -> None:
    config = load(name)
    large = "imagenet" in name
    for setting in config.settings:
        grid = config.grid(setting)
        big = large or setting.startswith(("resnet18-224", "vit-base"))
        assert grid.protocol == "paper"
        assert (grid.iri.optimiser, grid.iri.steps, grid.iri.levels) == ("sign_pgd", 200, ())
        assert grid.fit.epochs == (12 if big else 30)
        assert grid.seeds == "front"
    for model in config.models.values():
        assert model.train is not None
        assert model.train.epochs == 200

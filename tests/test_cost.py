"""Estimates of attacked work, worked out by hand from segments of 1, 10, 100, 1,000 and 10,000 FLOPs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_plan import CATALOGUE, points, study

from raystitch.cost import AUTOATTACK_PASSES, Estimator
from raystitch.plan import Catalogue, ModelFacts, expand

FLOPS = (1, 10, 100, 1_000, 10_000)
FACTS = replace(CATALOGUE.data["plain"], train_count=1000, test_count=360)
COUNTED = Catalogue({"plain": FACTS, "marked": FACTS}, {"clean": ModelFacts(points(4), {}, None, FLOPS)})
WHOLE, H = 11_111, 11_111  # the stitched net at points 2 and 2 of equal nets is as long as each of them


def fit_cost(**setting: object) -> float:
    """Of the units of one pair at points 2 and 2, real images, direct matching, two epochs."""
    own = {"front": "clean/1", "end": "clean/0", **setting}
    models = {"clean": {"arch": "resnet_mini", "data": "plain", "seeds": "0-1", "train": {}}}
    grid = {"points": [2], "objectives": ["dm"], "arms": "real", "seeds": 1, "fit": {"epochs": 2}}
    config = study(settings={"s": own}, models=models, **grid, robust={"steps": 20, "images": 100})
    plan = expand(config, COUNTED)
    return Estimator(config, COUNTED).total(plan, {unit.id for unit in plan.fits}).fit


def test_a_plain_fit_passes_each_image_once() -> None:
    assert fit_cost() == 1000 * (11 + WHOLE)


def test_an_attacked_fit_passes_each_image_every_epoch_and_forth_and_back_every_step() -> None:
    assert fit_cost(attack={"steps": 10}) == 2 * 1000 * (11 + WHOLE + 2 * 10 * H)


@pytest.mark.parametrize(("attack", "passes"), [("apgd_ce_dlr", 2 * 2 * 21), ("autoattack", AUTOATTACK_PASSES)])
def test_attacked_evaluation_of_the_stitched_net_and_of_both_ends(attack: str, passes: int) -> None:
    assert fit_cost(eval=["test", attack]) == fit_cost() + passes * 100 * (H + WHOLE + WHOLE)

"""A setting's own grid: seeds of the fronts, pairs with itself, residual levels, attacks, single-sided arms, similarity."""

from __future__ import annotations

import pytest
from test_plan import CATALOGUE, FACTS, points, study

from raystitch.config import StudyConfig
from raystitch.errors import InputError
from raystitch.plan import Catalogue, DataFacts, ModelFacts, expand
from raystitch.units import FitUnit

PAIR = {"front": "clean/1-2", "end": "clean/0"}


def fits(config: StudyConfig, catalogue: Catalogue = CATALOGUE) -> list[FitUnit]:
    return [unit for unit in expand(config, catalogue).fits if unit.kind == "fit"]


def one(**changes: object) -> StudyConfig:
    """A study of one setting with one fit per point and arm."""
    setting = {**PAIR, **changes.pop("setting", {})}  # type: ignore[dict-item]
    return study(
        **{"settings": {"s": setting}, "seeds": 1, "objectives": "slm", "arms": "real", "points": [1], **changes}
    )


def test_seeds_of_the_fronts_give_one_fit_each() -> None:
    found = fits(one(seeds="front"))
    assert [(unit.front.ref, unit.seed) for unit in found] == [("clean/1", 1), ("clean/2", 2)]
    assert len(fits(one(seeds="front", setting={"seeds": [4, 5, 6]}))) == 2 * 3, "a setting's own seeds go first"


def test_an_end_may_be_each_front_itself() -> None:
    found = fits(one(setting={"end": "itself"}))
    assert [(unit.front.ref, unit.end.ref) for unit in found] == [("clean/1", "clean/1"), ("clean/2", "clean/2")]
    assert len(expand(one(setting={"end": "itself"}), CATALOGUE).models) == 2
    with pytest.raises(InputError, match="'itself' is the end of a setting, alone"):
        one(setting={"end": ["itself", "clean/0"]})
    with pytest.raises(InputError, match="'itself' is the end of a setting, alone"):
        one(setting={"front": "itself"})
    with pytest.raises(InputError, match=r"models\.itself: the name is taken"):
        study(
            models={"itself": {"arch": "resnet_mini", "data": "plain", "train": {}}},
            settings={"s": {"front": "itself", "end": "itself"}},
        )


def test_a_setting_replaces_parts_of_the_grid_key_by_key() -> None:
    own = {"objectives": ["dm"], "arms": "iri", "points": [2, 3], "iri": {"steps": 7}, "fit": {"stitch": "identity"}}
    config = study(settings={"a": PAIR, "b": {**PAIR, **own}}, iri={"shard_size": 400, "steps": 9}, fit={"epochs": 5})
    a, b = config.grid("a"), config.grid("b")
    assert (a.iri.steps, b.iri.steps, b.iri.shard_size) == (9, 7, 400)
    assert (a.fit.epochs, b.fit.epochs, str(b.fit.stitch)) == (5, 5, "identity")
    mine = [unit for unit in fits(config) if unit.config.stitch.kind == "identity"]
    assert {(unit.objective, unit.arm, unit.front_point) for unit in mine} == {("dm", "iri", 2), ("dm", "iri", 3)}
    assert {unit.iris.config.steps for unit in fits(config) if unit.iris is not None} == {7, 9}


def test_presets_of_inversion_are_the_published_ones() -> None:
    config = study(
        settings={"a": {**PAIR, "iri": "paper"}, "b": {**PAIR, "iri": {"preset": "paper_224", "steps": 3}}},
        iri={"steps": 9},
    )
    small, large = config.grid("a").iri, config.grid("b").iri
    assert (small.optimiser, small.steps, small.step_size, small.levels) == ("sign_pgd", 200, 1 / 255, ())
    assert (large.optimiser, large.steps) == ("sign_pgd", 3), "keys beside a preset win; those of the study do not"
    # METHOD §2: 5·4.758/255 in normalised units, about 5.4/255 in pixels; ImageNet's std are 0.229, 0.224, 0.225
    assert large.step_size == pytest.approx([23.79 * 0.229 / 255, 23.79 * 0.224 / 255, 23.79 * 0.225 / 255])
    assert study(iri="paper").grid("identical").iri.steps == 200
    with pytest.raises(
        InputError, match=r"iri.lr = \[.*\]: lr per channel goes with optimiser sign_pgd, not spectral_adam"
    ):
        study(iri={"lr": [0.1, 0.1, 0.2]})


def test_residual_levels_are_a_factor_of_the_iri_arm_from_one_inversion() -> None:
    levels = [0.1, 0.4, 0.2]
    config = one(arms=["real", "iri"], iri={"levels": levels}, setting={"front": "clean/1"})
    plan = expand(config, CATALOGUE)
    found = [(unit.arm, unit.level) for unit in plan.fits if unit.kind == "fit"]
    assert found == [("real", None), ("iri", 0.4), ("iri", 0.2), ("iri", 0.1), ("iri", None)]
    assert len(plan.iris) == 1
    assert len({unit.id for unit in plan.fits}) == len(plan.fits)
    assert len({unit.group for unit in plan.fits if unit.kind == "fit"}) == 5
    plain = one(arms=["real", "iri"], setting={"front": "clean/1"})
    assert fits(plain)[0].id == fits(config)[0].id, "real images know no levels"
    with pytest.raises(InputError, match=r"iri.levels = \[.*0.1\]: an image is finished at tolerance 0.2"):
        one(iri={"levels": levels, "tolerance": 0.2})


def test_single_sided_arms_share_the_set_of_the_plain_one() -> None:
    plan = expand(one(arms=["iri", "iri_front", "iri_end"], setting={"front": "clean/1"}), CATALOGUE)
    assert len(plan.iris) == 1
    assert len({unit.id for unit in plan.fits if unit.kind == "fit"}) == 3


def test_an_attack_makes_another_fit_on_the_same_set() -> None:
    config = study(
        settings={"clean": PAIR, "attacked": {**PAIR, "attack": "pgd", "eval": "apgd_ce_dlr"}},
        arms="iri",
        seeds=1,
        objectives="slm",
    )
    plan = expand(config, CATALOGUE)
    assert len(plan.iris) == 2 * 4
    assert sum(unit.kind == "fit" for unit in plan.fits) == 2 * 2 * 4
    attacked = [unit for unit in plan.fits if unit.attack is not None]
    assert {unit.attack.eps for unit in attacked if unit.attack} == {8 / 255}
    assert {unit.eval_sets for unit in attacked} == {("apgd_ce_dlr",)}
    with pytest.raises(InputError, match=r"settings.s.attack: arm 'iri_front' shows the two nets different images"):
        one(setting={"attack": "pgd"}, arms="iri_front")
    with pytest.raises(InputError, match=r"settings.s.attack: dm_exact is solved"):
        one(setting={"attack": "pgd"}, objectives="dm_exact")


def test_the_radius_of_an_evaluation_is_part_of_its_fits_alone() -> None:
    def ids(**changes: object) -> set[str]:
        return {unit.id for unit in fits(one(**changes))}

    assert ids() == ids(robust={"steps": 3})
    attacked = {"eval": ["test", "apgd_ce_dlr"]}
    assert ids(**attacked) != ids(**attacked, robust={"steps": 3})
    assert ids(**attacked) == ids(**attacked, robust={"eps": "8/255"}), "8/255 is the default at this size"
    large = Catalogue({**CATALOGUE.data, "plain": DataFacts("aa", "bb", 10, 224, 1437)}, CATALOGUE.models)
    four = fits(one(**attacked, robust={"eps": "4/255"}), large)
    assert {unit.id for unit in fits(one(**attacked), large)} == {unit.id for unit in four}


def test_similarity_units_come_once_per_pair_of_points_and_level() -> None:
    config = one(arms=["real", "iri"], points="all", similarity=True, seeds="1-3", iri={"levels": [0.3]})
    plan = expand(config, CATALOGUE)
    found = [unit for unit in plan.fits if unit.kind == "similarity"]
    assert len(found) == 2 * 4 * 2, "fronts × points × levels, whatever the seeds and objectives"
    assert {(unit.objective, unit.arm, unit.seed) for unit in found} == {("none", "none", 0)}
    assert len({unit.id for unit in found}) == len(found)
    real = [unit for unit in expand(one(similarity=True), CATALOGUE).fits if unit.kind == "similarity"]
    assert [unit.iris for unit in real] == [None] * 2
    assert not [unit for unit in expand(one(similarity=False), CATALOGUE).fits if unit.kind == "similarity"]


def test_other_test_images_change_the_fit_and_not_the_iris() -> None:
    other = Catalogue({**CATALOGUE.data, "marked": DataFacts("cc", "dd", 10, 8, 100)}, CATALOGUE.models)
    here = expand(one(arms="iri"), other)
    there = expand(one(arms="iri", setting={"test": "marked"}), other)
    assert [unit.id for unit in here.iris] == [unit.id for unit in there.iris]
    assert not {unit.id for unit in here.fits} & {unit.id for unit in there.fits}
    assert {row.unit.test_data for row in there.rows} == {"marked"}


def test_an_untrained_model_depends_on_its_seed_and_not_on_data() -> None:
    def models(data: str) -> list[str]:
        net = {"arch": "resnet_mini", "data": data, "seeds": "0-1", "untrained": True}
        config = study(models={"net": net}, settings={"s": {"front": "net/1", "end": "net/0", "data": "plain"}})
        catalogue = Catalogue(
            {"plain": FACTS, "marked": DataFacts("cc", "dd", 10, 8, 100)}, {"net": ModelFacts(points(4), {})}
        )
        return [unit.id for unit in expand(config, catalogue).models]

    assert models("plain") == models("marked")
    assert len(set(models("plain"))) == 2

import copy
from dataclasses import dataclass

import pytest

from raystitch.config import StudyConfig, parse_config
from raystitch.errors import InputError
from raystitch.plan import Catalogue, DataFacts, ModelFacts, Plan, expand, interpolate
from raystitch.units import unit_id

STUDY = {
    "name": "study",
    "data": {"plain": "digits", "marked": {"source": "digits", "cue": "pixel"}},
    "models": {
        "clean": {"arch": "resnet_mini", "data": "plain", "seeds": "0-2", "train": {}},
        "pixel": {"arch": "resnet_mini", "data": "marked", "seeds": "1-2", "train": {}},
    },
    "settings": {
        "identical": {"front": "clean/0", "end": "clean/0"},
        "cross-seed": {"front": "clean/1-2", "end": "clean/0"},
        "cross-bias": {"front": "pixel", "end": "clean/0"},
    },
    "seeds": "1-3",
    "iri": {"shard_size": 400},
}


@dataclass(frozen=True)
class FakePoint:
    index: int
    module: str


def points(count: int) -> tuple[FakePoint, ...]:
    return tuple(FakePoint(n, f"block{n}") for n in range(1, count + 1))


FACTS = DataFacts(train="aa", test="bb", num_classes=10, size=8, train_count=1437)
CATALOGUE = Catalogue(
    {"plain": FACTS, "marked": FACTS},
    {"clean": ModelFacts(points(4), {}), "pixel": ModelFacts(points(4), {})},
)


def study(**changes: object) -> StudyConfig:
    return parse_config({**copy.deepcopy(STUDY), **changes})


def ids(plan: Plan) -> set[str]:
    return {unit.id for unit in plan.units}


def test_counts_follow_from_the_grid() -> None:
    plan = expand(study(), CATALOGUE)
    pairs, n, seeds, arms, objectives = 1 + 2 + 2, 4, 3, 2, 4
    assert len(plan.models) == 5
    assert len(plan.iris) == 5 * n  # one per front and point, shared by seeds and objectives
    stitched = [fit for fit in plan.fits if fit.objective != "none"]
    assert len(stitched) == pairs * n * seeds * arms * objectives
    assert len(plan.fits) - len(stitched) == 2 * pairs
    assert len(plan.rows) == len(plan.fits)
    assert [len(iris.shards) for iris in plan.iris] == [4] * len(plan.iris)
    assert [(s.start, s.stop) for s in plan.iris[0].shards] == [(0, 400), (400, 800), (800, 1200), (1200, 1437)]


def test_fits_of_a_group_differ_only_in_objective() -> None:
    plan = expand(study(), CATALOGUE)
    groups: dict[str, list] = {}
    for fit in plan.fits:
        groups.setdefault(fit.group, []).append(fit)
    for fits in groups.values():
        if fits[0].objective == "none":
            assert len(fits) == 1
        else:
            assert {fit.objective for fit in fits} == {"hlm", "slm", "fula", "dm"}
            assert len({(f.front, f.end, f.front_point, f.end_point, f.arm, f.seed, f.iris) for f in fits}) == 1


def test_ids_do_not_depend_on_names_workers_or_storage() -> None:
    renamed = copy.deepcopy(STUDY)
    renamed["name"] = "other"
    renamed["storage"] = "s3://bucket/elsewhere"
    renamed["resources"] = {"fit": {"cpus": 2}}
    renamed["models"]["plain-net"] = renamed["models"].pop("clean")
    renamed["settings"] = {
        "same": {"front": "plain-net/0", "end": "plain-net/0"},
        "seeds": {"front": "plain-net/1-2", "end": "plain-net/0"},
        "bias": {"front": "pixel", "end": "plain-net/0"},
    }
    models = {"plain-net": CATALOGUE.models["clean"], "pixel": CATALOGUE.models["pixel"]}
    assert ids(expand(parse_config(renamed), Catalogue(CATALOGUE.data, models))) == ids(expand(study(), CATALOGUE))


def test_shared_work_is_merged_between_settings() -> None:
    twice = copy.deepcopy(STUDY["settings"])
    twice["again"] = twice["cross-seed"]
    plan, once = expand(study(settings=twice), CATALOGUE), expand(study(), CATALOGUE)
    assert ids(plan) == ids(once)
    assert len(plan.rows) > len(once.rows)


@pytest.mark.parametrize(
    ("changes", "models", "iris", "real_fits"),
    [
        ({"fit": {"epochs": 5}}, True, True, False),
        ({"iri": {"steps": 10}}, True, False, True),
        ({"iri": {"compile": False, "batch": 16}}, True, True, True),
        ({"protocol": "paper"}, True, True, False),
    ],
)
def test_a_change_touches_only_what_depends_on_it(changes: dict, models: bool, iris: bool, real_fits: bool) -> None:
    before, after = expand(study(iri={}), CATALOGUE), expand(study(**{"iri": {}, **changes}), CATALOGUE)

    def same(kind: str, arm: str | None = None) -> bool:
        a, b = (
            {u.id for u in getattr(plan, kind) if arm is None or u.arm == arm} for plan in (before, after)
        )  # fmt: skip
        assert len(a) == len(b) > 0
        assert a == b or not a & b
        return a == b

    assert (same("models"), same("iris"), same("fits", "real")) == (models, iris, real_fits)


def test_paper_protocol_leaves_the_iri_arm_as_it_is() -> None:
    matched, paper = expand(study(), CATALOGUE), expand(study(protocol="paper"), CATALOGUE)
    assert {f.id for f in matched.fits if f.arm == "iri"} == {f.id for f in paper.fits if f.arm == "iri"}


def test_other_weights_or_data_are_other_units() -> None:
    data = {**CATALOGUE.data, "plain": DataFacts("other", "bb", 10, 8, 1437)}
    changed = expand(study(), Catalogue(data, CATALOGUE.models))
    clean = {m.id for m in changed.models if m.name == "clean"}
    assert not clean & ids(expand(study(), CATALOGUE))
    assert {m.id for m in changed.models if m.name == "pixel"} <= ids(expand(study(), CATALOGUE))


def test_the_test_split_enters_only_what_is_measured_on_it() -> None:
    data = {**CATALOGUE.data, "plain": DataFacts("aa", "other", 10, 8, 1437)}
    before, after = expand(study(), CATALOGUE), expand(study(), Catalogue(data, CATALOGUE.models))
    assert [m.id for m in before.models] == [m.id for m in after.models]
    assert [i.id for i in before.iris] == [i.id for i in after.iris]
    assert not {f.id for f in before.fits if f.data == "plain"} & {f.id for f in after.fits}


def test_units_list_parents_first() -> None:
    seen: set[str] = set()
    for unit in expand(study(), CATALOGUE).units:
        for parent in getattr(unit, "parents", ()):
            assert parent.id in seen
        seen.add(unit.id)


def test_points_pair_by_relative_depth() -> None:
    # the published pair ResNet-20 → ResNet-32: 10 and 16 points, point 4 meets point 6
    assert [interpolate(i, 10, 16) for i in (1, 4, 7, 10)] == [1, 6, 11, 16]
    assert [interpolate(i, 9, 9) for i in range(1, 10)] == list(range(1, 10))
    assert interpolate(1, 1, 5) == 1


def test_point_choices() -> None:
    models = {"clean": ModelFacts(points(4), {}), "pixel": ModelFacts(points(7), {})}
    catalogue = Catalogue(CATALOGUE.data, models)

    def pairs(choice: object) -> list[tuple[int, int]]:
        config = study(
            points=choice, seeds=1, objectives="dm", arms="real", settings={"s": {"front": "pixel/1", "end": "clean/0"}}
        )
        return [(f.front_point, f.end_point) for f in expand(config, catalogue).fits if f.objective != "none"]

    assert pairs("all") == [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)]
    assert len(pairs("cross")) == 28
    assert pairs([1, [7, 2]]) == [(1, 1), (7, 2)]
    own = study(
        settings={"s": {"front": "pixel/1", "end": "clean/0", "points": [3]}}, seeds=1, objectives="dm", arms="real"
    )
    assert [(f.front_point, f.end_point) for f in expand(own, catalogue).fits if f.objective != "none"] == [(3, 2)]
    with pytest.raises(InputError, match="points = 8: the front has stitch points 1 to 7"):
        pairs([8])
    with pytest.raises(InputError, match="points = 0: the end has stitch points 1 to 4"):
        pairs([[1, 0]])


def test_unit_id_is_the_hash_of_canonical_json() -> None:
    import hashlib

    assert unit_id({"b": 1, "a": [2]}) == hashlib.sha256(b'{"a":[2],"b":1}').hexdigest()[:20]

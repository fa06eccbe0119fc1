"""Excess agreement, rAuA and spread over runs, on hand-made results tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raystitch.analysis import CURVE, FIT, POINT, by_residual, excess_agreement, over_runs, raua
from raystitch.errors import InputError
from raystitch.results import NAMES


def _row(point: int, agreement: float, **other: Any) -> dict[str, Any]:
    base = {
        "unit": f"{point}-{other}",
        "sweep": "s",
        "setting": "shortcut",
        "dataset": "marked",
        "front": "clean/1",
        "end": "clean/0",
        "front_arch": "resnet_mini",
        "end_arch": "resnet_mini",
        "front_point": point,
        "end_point": point,
        "front_module": f"layer{point}",
        "end_module": f"layer{point}",
        "objective": "slm",
        "arm": "real",
        "protocol": "matched",
        "seed": 1,
        "eval_set": "test",
        "agreement": agreement,
    }
    return {**base, **other}


def test_every_name_of_the_results_table_tells_curves_apart() -> None:
    # A new column of names must be told to the analysis, or runs that differ in it would be mixed up (and are refused).
    per_point = {"unit", "front_point", "end_point", "front_module", "end_module"}
    assert set(CURVE) == (set(NAMES.names) - per_point) | {
        "objective", "stitch", "arm", "iri_level", "inputs", "seed", "eval_set",
    }  # fmt: skip
    assert set(FIT) == (set(CURVE) - {"eval_set"}) | set(POINT)


def test_excess_is_marked_minus_shuffled_of_the_same_fit() -> None:
    table = pd.DataFrame(
        [
            _row(1, 97.0),
            _row(1, 90.0, eval_set="shuffled"),
            _row(2, 80.0),
            _row(2, 15.0, eval_set="shuffled"),
            _row(2, 50.0, eval_set="clean"),
            _row(2, 60.0, objective="fula"),  # its shuffled row is still to come
            _row(2, 70.0, seed=2),
            _row(2, 71.0, seed=2, eval_set="shuffled"),
            _row(0, 100.0, objective="none", arm="none", seed=None),
            _row(0, 99.0, objective="none", arm="none", seed=None, eval_set="shuffled"),
        ]
    )
    found = excess_agreement(table.sample(frac=1, random_state=0)).sort_values(["front_point", "seed"])
    assert found["excess"].tolist() == [1.0, 7.0, 65.0, -1.0]
    assert found["agreement"].tolist() == [100.0, 97.0, 80.0, 70.0]
    assert found["agreement_shuffled"].tolist() == [99.0, 90.0, 15.0, 71.0]
    assert "eval_set" not in found


def test_raua_is_the_mean_over_interior_points() -> None:
    table = pd.DataFrame(
        [
            _row(0, 100.0, objective="none", arm="none", seed=None),
            _row(1, 90.0),
            _row(2, 60.0),
            _row(3, 30.0),
            _row(4, 10.0, objective="none", arm="none", seed=None),
            _row(1, 80.0, eval_set="adversarial"),
            _row(2, 40.0, eval_set="adversarial"),
            _row(3, 0.0, eval_set="adversarial"),
            _row(1, 70.0, arm="iri"),  # the rest is still running
            _row(2, math.nan, arm="iri"),
        ]
    )
    found = raua(table).set_index(["arm", "eval_set"])
    assert found["raua"].to_dict() == {("real", "test"): 60, ("real", "adversarial"): 40, ("iri", "test"): 70}
    assert found["points"].to_dict() == {("real", "test"): 3, ("real", "adversarial"): 3, ("iri", "test"): 1}
    assert found["complete"].to_dict() == {
        ("real", "test"): True,
        ("real", "adversarial"): True,
        ("iri", "test"): False,
    }


def test_rows_that_cannot_be_told_apart_are_refused_and_a_new_factor_may_be_named() -> None:
    table = pd.DataFrame([_row(1, 90.0, level=0.1), _row(1, 50.0, level=0.4), _row(2, 70.0, level=0.1)])
    with pytest.raises(InputError, match=r"front_point 1; they differ in level"):
        raua(table)
    found = raua(table, by=[*CURVE, "level"])
    assert dict(zip(found["level"], found["raua"], strict=True)) == {0.1: 80.0, 0.4: 50.0}
    with pytest.raises(InputError, match="they differ in level"):
        excess_agreement(table)
    with pytest.raises(InputError, match="they differ in level"):
        over_runs(table, "agreement")
    with pytest.raises(InputError, match="the same row twice"):
        raua(pd.concat([table[:1], table[:1]]))
    with pytest.raises(InputError, match="they differ in end_point"):
        raua(pd.DataFrame([_row(1, 90.0), _row(1, 50.0, end_point=2)]))


def test_runs_of_a_group_have_mean_and_spread() -> None:
    runs = {("clean/1", 1): 80.0, ("clean/1", 2): 82.0, ("clean/2", 1): 90.0, ("clean/2", 2): 92.0}
    table = pd.DataFrame([_row(1, value, front=front, seed=seed) for (front, seed), value in runs.items()])
    found = over_runs(table, "agreement").iloc[0]
    assert (found["mean"], found["min"], found["max"], found["runs"]) == (86.0, 80.0, 92.0, 4)
    assert found["std"] == pytest.approx(np.std([80, 82, 90, 92], ddof=1))
    assert (found["front_model"], found["end_model"], found["front_point"]) == ("clean", "clean", 1)
    assert 80 <= found["low"] < 82  # one pair drawn twice has probability 1/4: its runs alone bound the interval
    assert 90 < found["high"] <= 92


def test_seeds_of_one_pair_alone_would_understate_the_spread() -> None:
    # Between pairs 0 or 10, within pairs nothing: of two pairs drawn, both are the low one with probability 1/4.
    table = pd.DataFrame([_row(1, 10.0 * (f - 1), front=f"clean/{f}", seed=s) for f in (1, 2) for s in range(50)])
    found = over_runs(table, "agreement", level=0.4).iloc[0]
    assert (found["low"], found["high"]) == (5.0, 5.0)  # the middle 40 % of ¼, ½, ¼
    found = over_runs(table, "agreement", level=0.9).iloc[0]
    assert (found["low"], found["high"]) == (0.0, 10.0)


def test_interval_over_the_seeds_of_one_pair_follows_the_normal_theory() -> None:
    values = np.linspace(40, 60, 100)
    table = pd.DataFrame([_row(1, value, seed=seed) for seed, value in enumerate(values)])
    found = over_runs(table, "agreement", resamples=4000).iloc[0]
    width = 1.96 * values.std() / math.sqrt(len(values))
    assert found["low"] == pytest.approx(50 - width, abs=0.1)
    assert found["high"] == pytest.approx(50 + width, abs=0.1)


def test_pairs_with_unequal_numbers_of_runs_are_drawn_within_their_own() -> None:
    table = pd.DataFrame(
        [_row(1, 3.0, front="clean/1", seed=s) for s in range(5)] + [_row(1, 7.0, front="clean/2", seed=1)]
    )
    found = over_runs(table, "agreement", level=0.9).iloc[0]
    assert found["mean"] == pytest.approx((5 * 3 + 7) / 6)
    assert (found["low"], found["high"]) == (3.0, 7.0)  # a run that does not exist would count as 0


def test_one_run_has_no_interval_and_draws_follow_the_seed() -> None:
    table = pd.DataFrame([_row(point, 50.0 + seed * point, seed=seed) for point in (1, 2) for seed in (1, 2, 3)])
    alone = over_runs(table[table["seed"] == 1], "agreement")
    assert alone[["std", "low", "high"]].isna().all(axis=None)
    assert alone["mean"].tolist() == [51.0, 52.0]
    first, again = (over_runs(table, "agreement", seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)


def test_scores_can_be_chained() -> None:
    table = pd.DataFrame(
        [
            _row(point, 80.0 - 10 * point * shuffled - seed, seed=seed, eval_set="shuffled" if shuffled else "test")
            for point in (1, 2)
            for seed in (1, 2)
            for shuffled in (0, 1)
        ]
    )
    excess = over_runs(excess_agreement(table), "excess")
    assert excess[["mean", "low", "high"]].to_numpy().tolist() == [[10.0, 10.0, 10.0], [20.0, 20.0, 20.0]]
    areas = over_runs(raua(table), "raua")
    assert dict(zip(areas["eval_set"], areas["mean"], strict=True)) == {"test": 78.5, "shuffled": 63.5}


def test_empty_tables_stay_empty_and_unknown_columns_are_refused() -> None:
    empty = pd.DataFrame([_row(1, 90.0)])[:0]
    assert excess_agreement(empty).empty
    assert raua(empty).empty
    assert over_runs(empty, "agreement").empty
    with pytest.raises(InputError, match="no such column"):
        over_runs(empty, "agreemnt")
    with pytest.raises(InputError, match="column = 'front': the table has no such column"):
        over_runs(empty.drop(columns="front"), "agreement")
    with pytest.raises(InputError, match="level"):
        over_runs(empty, "agreement", level=95)


def _iri(level: float | None, r: float, agreement: float, **other: Any) -> dict[str, Any]:
    known = {"arm": "iri", "iri_level": level, "iri_r_median": r, "iri_r_p90": 2 * r}
    return _row(other.pop("point", 1), agreement, **{**known, **other})


def test_by_residual_gives_the_change_and_the_slope_per_halving_of_each_run() -> None:
    table = pd.DataFrame(
        [
            _iri(0.4, 0.4, 80.0),
            _iri(0.1, 0.1, 60.0),  # two halvings: −10 each
            _iri(None, 0.05, 45.0),  # one more: −15
            _iri(0.4, 0.4, 90.0, seed=2),
            _iri(None, 0.2, 88.0, seed=2),
            _row(1, 95.0),
            _row(0, 100.0, objective="none", arm="none", iri_level=None),
        ]
    )
    found = by_residual(table.sample(frac=1, random_state=0))
    assert found["iri_r_median"].tolist() == [0.05, 0.1, 0.4, 0.2, 0.4]
    assert found["agreement"].tolist() == [45.0, 60.0, 80.0, 88.0, 90.0]
    assert found["change"].tolist() == [-35.0, -20.0, 0.0, -2.0, 0.0]
    assert found["per_halving"].tolist() == pytest.approx([-15.0, -10.0, math.nan, -2.0, math.nan], nan_ok=True)
    assert found["smallest"].tolist() == [True, False, False, True, False]
    assert found["iri_r_p90"].tolist() == [0.1, 0.2, 0.8, 0.4, 0.8]
    assert {"unit", "front_module"}.isdisjoint(found)


def test_a_trend_looks_past_levels_that_differ_by_too_little() -> None:
    rows = [_iri(0.4, 0.4, 80.0), _iri(0.2, 0.12, 50.0), _iri(0.1, 0.105, 70.0), _iri(None, 0.1, 60.0)]
    found = by_residual(pd.DataFrame(rows))
    # 0.105 and 0.12 are less than 1.25 × 0.1, so the next is 0.4: two halvings
    assert found["per_halving"][0] == pytest.approx((60.0 - 80.0) / 2)
    assert found["change"][0] == -20.0


def test_at_equal_residuals_the_best_of_the_run_is_quoted_and_one_level_alone_has_no_trend() -> None:
    same = by_residual(pd.DataFrame([_iri(0.1, 0.3, 50.0), _iri(0.4, 0.3, 52.0), _iri(None, 0.3, 51.0)]))
    assert same[same["smallest"]]["agreement"].tolist() == [51.0]
    assert same["per_halving"].isna().all()
    alone = by_residual(pd.DataFrame([_iri(None, 0.0, 50.0), _iri(None, math.nan, 1.0, seed=2)]))
    assert alone[["agreement", "smallest"]].to_numpy().tolist() == [[50.0, True]]
    assert alone[["change", "per_halving"]].isna().all(axis=None)


def test_trends_are_averaged_over_runs_by_the_same_means_as_all_scores() -> None:
    rows = [
        _iri(level, r, value + 2 * seed, seed=seed)
        for seed in (1, 2)
        for level, r, value in ((0.4, 0.4, 70.0), (None, 0.1, 50.0))
    ]
    trends = by_residual(pd.DataFrame(rows))
    quoted = over_runs(trends[trends["smallest"]], "agreement")
    assert quoted[["mean", "runs"]].to_numpy().tolist() == [[53.0, 2]]
    assert over_runs(trends[trends["smallest"]], "per_halving")["mean"].tolist() == [-10.0]


def test_excess_agreement_keeps_its_residual_and_so_has_a_trend_too() -> None:
    rows = []
    for level, r, marked in ((0.4, 0.4, 60.0), (None, 0.2, 50.0)):
        rows += [_iri(level, r, marked), _iri(level, r, 40.0, eval_set="shuffled")]
    found = excess_agreement(pd.DataFrame([*rows, _row(1, 90.0), _row(1, 10.0, eval_set="shuffled")]))
    assert found.sort_values("excess")["excess"].tolist() == [10.0, 20.0, 80.0]
    trends = by_residual(found, "excess")
    assert trends[["iri_r_median", "excess"]].to_numpy().tolist() == [[0.2, 10.0], [0.4, 20.0]]
    assert trends["per_halving"][0] == pytest.approx(-10.0)


def test_raua_tells_residual_levels_apart_and_says_the_largest_residual() -> None:
    rows = [
        _iri(level, r * point, 90.0 - 10 * point - (level is None), point=point, eval_set="apgd_ce_dlr")
        for level, r in ((0.4, 0.2), (None, 0.1))
        for point in (1, 2)
    ]
    rows += [_row(point, 70.0, eval_set="apgd_ce_dlr") for point in (1, 2)]
    found = raua(pd.DataFrame(rows)).set_index(["arm", "iri_level"])
    assert found.index.tolist()[0] == ("iri", 0.4)
    assert found["raua"].tolist() == [75.0, 74.0, 70.0]
    assert found["iri_r_largest"].tolist() == pytest.approx([0.4, 0.2, math.nan], nan_ok=True)
    assert found["complete"].all()
    assert "iri_r_largest" not in raua(pd.DataFrame([_row(1, 90.0)]))


def test_rows_of_representation_metrics_are_no_scores_of_stitches() -> None:
    alike = _row(1, math.nan, objective="none", arm="none", eval_set="train", cka=0.5, iri_level=0.4, iri_r_median=0.4)
    table = pd.DataFrame([_row(1, 90.0), _row(1, 80.0, eval_set="shuffled"), alike, {**alike, "iri_level": None}])
    assert excess_agreement(table)["excess"].tolist() == [10.0]
    assert raua(table)["points"].tolist() == [1, 1]
    assert over_runs(table, "agreement")["runs"].tolist() == [1, 1]
    assert over_runs(table, "cka")["mean"].tolist() == [0.5, 0.5]
    assert by_residual(table).empty


def test_representation_metrics_on_iris_have_a_trend_over_their_levels() -> None:
    nothing = {"objective": "none", "arm": "none", "eval_set": "train", "cka": 0.9}
    rows = [
        _iri(level, r, math.nan, **nothing, stir=stir, cka_iri=stir / 2)
        for level, r, stir in ((0.4, 0.4, 0.3), (0.2, 0.2, 0.4), (None, 0.1, 0.7))
    ]
    alone = _row(0, 100.0, objective="none", arm="none")  # an unstitched end is on no IRIs
    table = pd.DataFrame([*rows, _row(1, 90.0), _iri(None, 0.1, 60.0), alone])
    found = by_residual(table, "stir")
    assert found[["iri_r_median", "stir"]].to_numpy().tolist() == [[0.1, 0.7], [0.2, 0.4], [0.4, 0.3]]
    assert found["per_halving"].tolist() == pytest.approx([0.3, 0.1, math.nan], nan_ok=True)
    assert by_residual(table, "cka_iri")["change"].tolist() == pytest.approx([0.2, 0.05, 0.0])
    assert by_residual(table, "cka")["change"].tolist() == [0.0, 0.0, 0.0]
    assert by_residual(table)["agreement"].tolist() == [60.0]


def test_a_mean_over_runs_keeps_the_residual_of_its_iris() -> None:
    rows = [_iri(None, r * point, 80.0, seed=seed, point=point) for seed, r in ((1, 0.1), (2, 0.3)) for point in (1, 2)]
    table = pd.DataFrame([*rows, _row(1, 90.0, iri_level=None)])
    found = over_runs(table, "agreement").set_index(["arm", "front_point"])
    assert found["iri_r_median"].to_dict() == pytest.approx(
        {("iri", 1): 0.2, ("iri", 2): 0.4, ("real", 1): math.nan}, nan_ok=True
    )
    assert found["iri_r_largest"].to_dict() == pytest.approx(
        {("iri", 1): 0.3, ("iri", 2): 0.6, ("real", 1): math.nan}, nan_ok=True
    )
    areas = over_runs(raua(table), "raua").set_index("arm")  # of seeds 1 and 2 the largest are 0.2 and 0.6
    assert areas["iri_r_largest"].to_dict() == pytest.approx({"iri": 0.6, "real": math.nan}, nan_ok=True)
    assert {"iri_r_median", "iri_r_largest"}.isdisjoint(over_runs(pd.DataFrame([_row(1, 90.0)]), "agreement"))


@pytest.mark.parametrize("column", ["agreement", "eval_set"])
def test_excess_agreement_names_a_missing_column(column: str) -> None:
    with pytest.raises(InputError, match=f"column = '{column}': the table has no such column"):
        excess_agreement(pd.DataFrame([_row(1, 90.0)]).drop(columns=column))


@pytest.mark.parametrize("column", ["agreement", "objective", "front_point"])
def test_raua_names_a_missing_column(column: str) -> None:
    with pytest.raises(InputError, match=f"column = '{column}': the table has no such column"):
        raua(pd.DataFrame([_row(1, 90.0)]).drop(columns=column))


@pytest.mark.parametrize("score", [excess_agreement, raua, by_residual, lambda t, by: over_runs(t, "agreement", by)])
def test_a_table_without_any_column_of_by_is_refused(score: Callable[..., pd.DataFrame]) -> None:
    with pytest.raises(InputError, match=r"by = \['nets'\]: the table has none of these columns"):
        score(pd.DataFrame([_iri(None, 0.1, 50.0)]), by=["nets"])


def test_raua_of_a_map_says_what_to_leave_out() -> None:
    table = pd.DataFrame([_row(i, 90.0, end_point=j) for i in (1, 2) for j in (1, 2)])
    with pytest.raises(InputError, match=r"differ in end_point, kappa: .*leave out settings with points: cross"):
        raua(table.assign(kappa=range(4)))


def test_by_residual_refuses_what_it_cannot_tell_apart() -> None:
    with pytest.raises(InputError, match="they differ in note"):
        by_residual(pd.DataFrame([_iri(None, 0.1, 50.0, note="a"), _iri(None, 0.1, 50.0, note="b")]))
    with pytest.raises(InputError, match="column = 'iri_r_median': the table has no such column"):
        by_residual(pd.DataFrame([_row(1, 90.0)]))

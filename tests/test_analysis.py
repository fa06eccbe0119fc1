"""Excess agreement, rAuA and spread over runs, on hand-made results tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raystitch.analysis import CURVE, FIT, POINT, by_residual, excess_agreement, over_runs, raua
from raystitch.errors import InputError
from raystitch.results import NAMES


def row(point: int, agreement: float, **other: Any) -> dict[str, Any]:
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
            row(1, 97.0),
            row(1, 90.0, eval_set="shuffled"),
            row(2, 80.0),
            row(2, 15.0, eval_set="shuffled"),
            row(2, 50.0, eval_set="clean"),
            row(2, 60.0, objective="fula"),  # its shuffled row is still to come
            row(2, 70.0, seed=2),
            row(2, 71.0, seed=2, eval_set="shuffled"),
            row(0, 100.0, objective="none", arm="none", seed=None),
            row(0, 99.0, objective="none", arm="none", seed=None, eval_set="shuffled"),
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
            row(0, 100.0, objective="none", arm="none", seed=None),
            row(1, 90.0),
            row(2, 60.0),
            row(3, 30.0),
            row(4, 10.0, objective="none", arm="none", seed=None),
            row(1, 80.0, eval_set="adversarial"),
            row(2, 40.0, eval_set="adversarial"),
            row(3, 0.0, eval_set="adversarial"),
            row(1, 70.0, arm="iri"),  # the rest is still running
            row(2, math.nan, arm="iri"),
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
    table = pd.DataFrame([row(1, 90.0, level=0.1), row(1, 50.0, level=0.4), row(2, 70.0, level=0.1)])
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
        raua(pd.DataFrame([row(1, 90.0), row(1, 50.0, end_point=2)]))


def test_runs_of_a_group_have_mean_and_spread() -> None:
    runs = {("clean/1", 1): 80.0, ("clean/1", 2): 82.0, ("clean/2", 1): 90.0, ("clean/2", 2): 92.0}
    table = pd.DataFrame([row(1, value, front=front, seed=seed) for (front, seed), value in runs.items()])
    found = over_runs(table, "agreement").iloc[0]
    assert (found["mean"], found["min"], found["max"], found["runs"]) == (86.0, 80.0, 92.0, 4)
    assert found["std"] == pytest.approx(np.std([80, 82, 90, 92], ddof=1))
    assert (found["front_model"], found["end_model"], found["front_point"]) == ("clean", "clean", 1)
    assert 80 <= found["low"] < 82  # one pair drawn twice has probability 1/4: its runs alone bound the interval
    assert 90 < found["high"] <= 92


def test_seeds_of_one_pair_alone_would_understate_the_spread() -> None:
    # Between pairs 0 or 10, within pairs nothing: of two pairs drawn, both are the low one with probability 1/4.
    table = pd.DataFrame([row(1, 10.0 * (f - 1), front=f"clean/{f}", seed=s) for f in (1, 2) for s in range(50)])
    found = over_runs(table, "agreement", level=0.4).iloc[0]
    assert (found["low"], found["high"]) == (5.0, 5.0)  # the middle 40 % of ¼, ½, ¼
    found = over_runs(table, "agreement", level=0.9).iloc[0]
    assert (found["low"], found["high"]) == (0.0, 10.0)


def test_interval_over_the_seeds_of_one_pair_follows_the_normal_theory() -> None:
    values = np.linspace(40, 60, 100)
    table = pd.DataFrame([row(1, value, seed=seed) for seed, value in enumerate(values)])
    found = over_runs(table, "agreement", resamples=4000).iloc[0]
    width = 1.96 * values.std() / math.sqrt(len(values))
    assert found["low"] == pytest.approx(50 - width, abs=0.1)
    assert found["high"] == pytest.approx(50 + width, abs=0.1)


def test_pairs_with_unequal_numbers_of_runs_are_drawn_within_their_own() -> None:
    table = pd.DataFrame(
        [row(1, 3.0, front="clean/1", seed=s) for s in range(5)] + [row(1, 7.0, front="clean/2", seed=1)]
    )
    found = over_runs(table, "agreement", level=0.9).iloc[0]
    assert found["mean"] == pytest.approx((5 * 3 + 7) / 6)
    assert (found["low"], found["high"]) == (3.0, 7.0)  # a run that does not exist would count as 0


def test_one_run_has_no_interval_and_draws_follow_the_seed() -> None:
    table = pd.DataFrame([row(point, 50.0 + seed * point, seed=seed) for point in (1, 2) for seed in (1, 2, 3)])
    alone = over_runs(table[table["seed"] == 1], "agreement")
    assert alone[["std", "low", "high"]].isna().all(axis=None)
    assert alone["mean"].tolist() == [51.0, 52.0]
    first, again = (over_runs(table, "agreement", seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)


def test_scores_can_be_chained() -> None:
    table = pd.DataFrame(
        [
            row(point, 80.0 - 10 * point * shuffled - seed, seed=seed, eval_set="shuffled" if shuffled else "test")
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
    empty = pd.DataFrame([row(1, 90.0)])[:0]
    assert excess_agreement(empty).empty
    assert raua(empty).empty
    assert over_runs(empty, "agreement").empty
    with pytest.raises(InputError, match="no such column"):
        over_runs(empty, "agreemnt")
    with pytest.raises(InputError, match="column = 'front': the table has no such column"):
        over_runs(empty.drop(columns="front"), "agreement")
    with pytest.raises(InputError, match="level"):
        over_runs(empty, "agreement", level=95)


def test_rows_of_representation_metrics_are_no_scores_of_stitches() -> None:
    alike = row(1, math.nan, objective="none", arm="none", eval_set="train", cka=0.5, iri_level=0.4, iri_r_median=0.4)
    table = pd.DataFrame([row(1, 90.0), row(1, 80.0, eval_set="shuffled"), alike, {**alike, "iri_level": None}])
    assert excess_agreement(table)["excess"].tolist() == [10.0]
    assert raua(table)["points"].tolist() == [1, 1]
    assert over_runs(table, "agreement")["runs"].tolist() == [1, 1]
    assert over_runs(table, "cka")["mean"].tolist() == [0.5, 0.5]
    assert by_residual(table).empty


@pytest.mark.parametrize("column", ["agreement", "eval_set"])
def test_excess_agreement_names_a_missing_column(column: str) -> None:
    with pytest.raises(InputError, match=f"column = '{column}': the table has no such column"):
        excess_agreement(pd.DataFrame([row(1, 90.0)]).drop(columns=column))


@pytest.mark.parametrize("column", ["agreement", "objective", "front_point"])
def test_raua_names_a_missing_column(column: str) -> None:
    with pytest.raises(InputError, match=f"column = '{column}': the table has no such column"):
        raua(pd.DataFrame([row(1, 90.0)]).drop(columns=column))


def test_raua_of_a_map_says_what_to_leave_out() -> None:
    table = pd.DataFrame([row(i, 90.0, end_point=j) for i in (1, 2) for j in (1, 2)])
    with pytest.raises(InputError, match=r"differ in end_point, kappa: .*leave out settings with points: cross"):
        raua(table.assign(kappa=range(4)))

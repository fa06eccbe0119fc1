"""Scores on IRIs: their trend over residual levels, and the residual that stays with every score."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from test_analysis import row

from raystitch.analysis import by_residual, excess_agreement, over_runs, raua
from raystitch.errors import InputError


def _iri(level: float | None, r: float, agreement: float, **other: Any) -> dict[str, Any]:
    known = {"arm": "iri", "iri_level": level, "iri_r_median": r, "iri_r_p90": 2 * r}
    return row(other.pop("point", 1), agreement, **{**known, **other})


def test_by_residual_gives_the_change_and_the_slope_per_halving_of_each_run() -> None:
    table = pd.DataFrame(
        [
            _iri(0.4, 0.4, 80.0),
            _iri(0.1, 0.1, 60.0),  # two halvings: −10 each
            _iri(None, 0.05, 45.0),  # one more: −15
            _iri(0.4, 0.4, 90.0, seed=2),
            _iri(None, 0.2, 88.0, seed=2),
            row(1, 95.0),
            row(0, 100.0, objective="none", arm="none", iri_level=None),
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
    found = excess_agreement(pd.DataFrame([*rows, row(1, 90.0), row(1, 10.0, eval_set="shuffled")]))
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
    rows += [row(point, 70.0, eval_set="apgd_ce_dlr") for point in (1, 2)]
    found = raua(pd.DataFrame(rows)).set_index(["arm", "iri_level"])
    assert found.index.tolist()[0] == ("iri", 0.4)
    assert found["raua"].tolist() == [75.0, 74.0, 70.0]
    assert found["iri_r_largest"].tolist() == pytest.approx([0.4, 0.2, math.nan], nan_ok=True)
    assert found["complete"].all()
    assert "iri_r_largest" not in raua(pd.DataFrame([row(1, 90.0)]))


def test_representation_metrics_on_iris_have_a_trend_over_their_levels() -> None:
    nothing = {"objective": "none", "arm": "none", "eval_set": "train", "cka": 0.9}
    rows = [
        _iri(level, r, math.nan, **nothing, stir=stir, cka_iri=stir / 2)
        for level, r, stir in ((0.4, 0.4, 0.3), (0.2, 0.2, 0.4), (None, 0.1, 0.7))
    ]
    alone = row(0, 100.0, objective="none", arm="none")  # an unstitched end is on no IRIs
    table = pd.DataFrame([*rows, row(1, 90.0), _iri(None, 0.1, 60.0), alone])
    found = by_residual(table, "stir")
    assert found[["iri_r_median", "stir"]].to_numpy().tolist() == [[0.1, 0.7], [0.2, 0.4], [0.4, 0.3]]
    assert found["per_halving"].tolist() == pytest.approx([0.3, 0.1, math.nan], nan_ok=True)
    assert by_residual(table, "cka_iri")["change"].tolist() == pytest.approx([0.2, 0.05, 0.0])
    assert by_residual(table, "cka")["change"].tolist() == [0.0, 0.0, 0.0]
    assert by_residual(table)["agreement"].tolist() == [60.0]


def test_a_mean_over_runs_keeps_the_residual_of_its_iris() -> None:
    rows = [_iri(None, r * point, 80.0, seed=seed, point=point) for seed, r in ((1, 0.1), (2, 0.3)) for point in (1, 2)]
    table = pd.DataFrame([*rows, row(1, 90.0, iri_level=None)])
    found = over_runs(table, "agreement").set_index(["arm", "front_point"])
    assert found["iri_r_median"].to_dict() == pytest.approx(
        {("iri", 1): 0.2, ("iri", 2): 0.4, ("real", 1): math.nan}, nan_ok=True
    )
    assert found["iri_r_largest"].to_dict() == pytest.approx(
        {("iri", 1): 0.3, ("iri", 2): 0.6, ("real", 1): math.nan}, nan_ok=True
    )
    areas = over_runs(raua(table), "raua").set_index("arm")  # of seeds 1 and 2 the largest are 0.2 and 0.6
    assert areas["iri_r_largest"].to_dict() == pytest.approx({"iri": 0.6, "real": math.nan}, nan_ok=True)
    assert {"iri_r_median", "iri_r_largest"}.isdisjoint(over_runs(pd.DataFrame([row(1, 90.0)]), "agreement"))


@pytest.mark.parametrize("score", [excess_agreement, raua, by_residual, lambda t, by: over_runs(t, "agreement", by)])
def test_a_table_without_any_column_of_by_is_refused(score: Callable[..., pd.DataFrame]) -> None:
    with pytest.raises(InputError, match=r"by = \['nets'\]: the table has none of these columns"):
        score(pd.DataFrame([_iri(None, 0.1, 50.0)]), by=["nets"])


def test_by_residual_refuses_what_it_cannot_tell_apart() -> None:
    with pytest.raises(InputError, match="they differ in note"):
        by_residual(pd.DataFrame([_iri(None, 0.1, 50.0, note="a"), _iri(None, 0.1, 50.0, note="b")]))
    with pytest.raises(InputError, match="column = 'iri_r_median': the table has no such column"):
        by_residual(pd.DataFrame([row(1, 90.0)]))

"""Residual levels: what is shown at the smallest r, and how agreement depends on r."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_study import OBJECTIVES, facts, row
from report_study_full import levels
from test_report_page import page_of

from raystitch.report import IriFacts, IriLevel, StudyFacts
from raystitch.report.frame import tidy, with_excess
from raystitch.report.gaps import gap_rows
from raystitch.report.levels import Place, against_residual, places, reached, real_value, trend_table
from raystitch.report.levels_figure import levels_figure
from raystitch.report.look import figure_look
from raystitch.report.panels import Panel, make_panels
from raystitch.report.statistics import curve, residuals


@pytest.fixture(autouse=True)
def look() -> Iterator[None]:
    with figure_look():
        yield


def iri(level: float | None, r: float, agreement: float, point: int = 1, **other: Any) -> dict[str, Any]:
    known = {"iri_level": level, "iri_r_median": r, "iri_r_p90": 2 * r, "arm": "iri"}
    return row("s", other.pop("front", "a/1"), point, "slm", agreement=agreement, **{**known, **other})


def only_panel(rows: list[dict[str, Any]]) -> Panel:
    (panel,) = make_panels(with_excess(tidy(pd.DataFrame(rows))), ())
    return panel


def three_levels(**other: Any) -> list[dict[str, Any]]:
    return [iri(0.4, 0.4, 80.0, **other), iri(0.1, 0.1, 60.0, **other), iri(None, 0.05, 45.0, **other)]


def test_curves_and_gaps_show_the_smallest_residual_alone() -> None:
    panel = only_panel([*three_levels(), row("s", "a/1", 1, "slm", "real", 95.0)])
    assert panel.has_levels
    assert len(panel.levels) == 3
    assert curve(panel, "slm", "iri")["mean"].to_dict() == {1: 45.0}
    assert residuals(panel).loc[1].tolist() == [0.05, 0.1]
    (line,) = gap_rows(panel, ["slm"])
    assert (line.gaps[0].means, line.r_median) == ({"real": 95.0, "iri": 45.0}, 0.05)


def test_the_smallest_residual_need_not_be_the_end_of_the_run() -> None:
    panel = only_panel([iri(0.1, 0.09, 60.0), iri(None, 0.1, 45.0)])  # rounding to 8 bit may do that
    assert curve(panel, "slm", "iri")["mean"].to_dict() == {1: 60.0}


def test_of_equal_residuals_the_end_of_the_run_is_shown() -> None:
    panel = only_panel([iri(0.1, 0.3, 60.0), iri(0.2, 0.3, 61.0), iri(None, 0.3, 45.0)])
    assert curve(panel, "slm", "iri")["mean"].to_dict() == {1: 45.0}


def test_a_pair_has_one_level_for_all_its_runs_so_that_no_cell_mixes_residuals() -> None:
    rows = [iri(0.4, 0.4, 80.0, seed=1), iri(None, 0.1, 50.0, seed=1), iri(0.4, 0.4, 82.0, seed=2)]
    panel = only_panel([*rows, iri(0.4, 0.4, 70.0, front="a/2"), iri(0.4, 0.4, 90.0, point=2)])
    shown = curve(panel, "slm", "iri")
    assert shown.loc[1].tolist() == [60.0, 50.0, 70.0, 2]  # seed 2 of a/1 is still to come; a/2 has its own level
    assert shown.loc[2, "mean"] == 90.0


def test_without_a_recorded_residual_the_end_of_the_run_is_shown() -> None:
    panel = only_panel([iri(0.1, np.nan, 60.0), iri(None, np.nan, 45.0)])
    assert curve(panel, "slm", "iri")["mean"].to_dict() == {1: 45.0}
    assert not panel.has_levels


def test_excess_agreement_is_one_level_with_itself() -> None:
    rows = [
        iri(level, r, value, eval_set=name)
        for level, r, test, shuffled in ((0.4, 0.4, 70.0, 20.0), (None, 0.1, 60.0, 50.0))
        for name, value in (("test", test), ("shuffled", shuffled))
    ]
    panel = make_panels(with_excess(tidy(pd.DataFrame(rows))), ())[-1]
    assert panel.eval_set == "excess"
    assert curve(panel, "slm", "iri")["mean"].to_dict() == {1: 10.0}
    assert against_residual(panel, Place("iri", 1, 1), "slm")["mean"].tolist() == [50.0, 10.0]


def test_agreement_against_r_is_a_mean_over_runs_at_a_mean_over_sets() -> None:
    second = [iri(0.4, 0.5, 70.0, front="a/2"), iri(None, 0.15, 35.0, front="a/2")]
    panel = only_panel([*three_levels(seed=1), *three_levels(seed=2), *second, row("s", "a/1", 1, "slm", "real", 95.0)])
    found = against_residual(panel, Place("iri", 1, 1), "slm")
    assert found["r"].tolist() == pytest.approx(
        [0.45, 0.1, 0.1]
    )  # sets count once: (0.4 + 0.5) / 2, 0.1, (0.05 + 0.15) / 2
    by_level = found.set_index(found["level"].fillna(0.0))
    assert by_level["mean"].to_dict() == pytest.approx({0.4: 230 / 3, 0.1: 60.0, 0.0: 125 / 3})
    assert by_level["low"].to_dict() == {0.4: 70.0, 0.1: 60.0, 0.0: 35.0}
    assert real_value(panel, Place("iri", 1, 1), "slm") == 95.0
    assert real_value(panel, Place("iri", 1, 1), "dm") is None


def test_the_table_quotes_the_value_at_the_smallest_r_with_its_trend() -> None:
    panel = only_panel([*three_levels(), row("s", "a/1", 1, "slm", "real", 95.0)])
    (line,) = trend_table(panel, ["slm", "dm"])
    assert (line["arm"], line["point"], line["small"], line["large"]) == ("", "1", "0.050", "0.400")
    # one halving from 0.1 to 0.05: 60 → 45
    assert line["cells"][0] == {"value": "45.0", "change": "−35.0", "slope": "−15.0"}
    assert line["cells"][1] == {"value": "–", "change": "–", "slope": "–"}


def test_the_figure_has_axes_per_point_with_better_iris_to_the_right() -> None:
    (panel,) = make_panels(tidy(levels("cross-bias", points=(1, 4, 7))), ())
    figure = levels_figure(panel, OBJECTIVES)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["point 1", "point 4", "point 7"]
    ax = figure.axes[0]
    left, right = ax.get_xlim()
    assert left > 0.39 > 0.012 > right
    assert ax.get_xscale() == "log"
    line = next(each for each in ax.get_lines() if each.get_gid() == "levels-iri-1-1-slm")
    expected = against_residual(panel, Place("iri", 1, 1), "slm")
    np.testing.assert_allclose(np.asarray(line.get_data()), expected[["r", "mean"]].to_numpy().T)
    level_lines = [each for each in ax.get_lines() if not each.get_gid()]
    assert [each.get_ydata()[0] for each in level_lines] == [  # type: ignore[index]
        real_value(panel, Place("iri", 1, 1), objective) for objective in OBJECTIVES
    ]
    assert [text.get_text() for text in ax.texts] == ["best", "0.1", "0.2", "0.4"]


def told(point: int, *levels: tuple[float, int], front: str = "a/1") -> IriFacts:
    found = [IriLevel(level, count, 0.1) for level, count in levels]
    return replace(facts().iri_sets[0], front=front, point=point, levels=found)


def test_levels_that_no_image_reached_are_left_out_and_named() -> None:
    rows = [each for point in (1, 2) for each in three_levels(point=point)]
    panel = only_panel([*rows, *three_levels(front="a/2", point=2)])
    sets = [told(1, (0.4, 9), (0.1, 0)), told(2, (0.4, 9), (0.1, 1)), told(2, (0.1, 0), front="a/2")]
    found, words = reached(panel, sets)
    kept = found.levels.groupby(["front", "front_point"])["iri_level"].agg(lambda r: sorted(r.dropna()))
    assert kept.to_dict() == {("a/1", 1): [0.4], ("a/1", 2): [0.1, 0.4], ("a/2", 2): [0.4]}
    assert words == "0.1 at point 1; 0.1 at point 2"
    assert len(found.rows) == len(panel.rows)


def test_a_level_that_one_of_two_sets_reached_is_kept_and_so_is_one_of_which_nothing_is_told() -> None:
    panel = only_panel(three_levels())
    for sets in ([], [told(2, (0.1, 0))], [told(1, (0.1, 0)), told(1, (0.1, 3))]):
        found, words = reached(panel, sets)
        assert (len(found.levels), words) == (3, "")


def test_a_page_without_any_reached_level_shows_no_trend_but_its_example_still_takes_one_level() -> None:
    frame = pd.DataFrame([iri(0.1, 0.3, 60.0), iri(None, 0.3, 60.0)])
    for reached_by, shown in ((0, False), (1, True)):
        study = StudyFacts("s", iri_sets=[told(1, (0.1, reached_by))])
        page = page_of(frame, study)
        assert ("against the residual of the IRIs" in page.text) == shown
        assert ("the IRIs are those of the best: 0.1 at point 1." in page.text) == (not shown)
        assert "& df.iri_level.isna()]" in page.text
    partly = StudyFacts("s", iri_sets=[told(1, (0.4, 9), (0.1, 0))])
    assert "the IRIs are those of the best: 0.1 at point 1." in page_of(pd.DataFrame(three_levels()), partly).text


def test_single_sided_arms_have_axes_of_their_own() -> None:
    (panel,) = make_panels(tidy(levels("cross-seed", ("real", "iri", "iri_front"), points=(1, 9))), ())
    assert [(place.arm, place.front_point) for place in places(panel)] == [
        ("iri", 1),
        ("iri", 9),
        ("iri_front", 1),
        ("iri_front", 9),
    ]
    heads = [ax.get_ylabel().split("\n")[0] for ax in levels_figure(panel, OBJECTIVES).axes]
    assert heads == ["IRIs", "", "IRIs to the front only", ""]


def test_of_a_map_the_figure_shows_the_pairs_of_equal_points() -> None:
    rows = [each for j in (1, 2) for each in three_levels(end_point=j)]
    panel = only_panel(rows)
    assert panel.is_map
    assert places(panel) == [Place("iri", 1, 1)]
    assert [line["point"] for line in trend_table(panel, ["slm"])] == ["1", "1 → 2"]

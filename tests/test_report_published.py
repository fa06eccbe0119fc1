"""Published values beside ours: the data are those of the method's page, and statements are judged by hand-worked curves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_study import OBJECTIVES, curves, ends, row

from raystitch.report import shapes
from raystitch.report.beside import find_matches, find_pairs, pair_tables, paragraphs, statement_tables
from raystitch.report.beside_figure import beside_figure
from raystitch.report.frame import tidy, with_excess
from raystitch.report.look import figure_look
from raystitch.report.panels import Panel, make_panels
from raystitch.report.published import CURVES, SETTINGS
from raystitch.report.statements import STATEMENTS, published_finding
from raystitch.report.tracks import Track, at_depths, ends_in, family, panel_tracks, published_tracks


def panels(frame: pd.DataFrame) -> list[Panel]:
    return make_panels(with_excess(tidy(frame)), ())


def track(
    values: Sequence[float],
    arm: str = "iri",
    objective: str = "slm",
    count: int | None = None,
    r: Sequence[float | None] | None = None,
) -> Track:
    n = len(values)
    return Track(arm, objective, count or n, tuple(range(1, n + 1)), tuple(values), tuple(r or [None] * n))


def tracks(*found: Track, setting: str = "s") -> dict[tuple[str, str, str], Track]:
    return {(setting, each.arm, each.objective): each for each in found}


def test_the_curves_are_those_of_the_methods_page(shared: Path) -> None:
    lines = re.findall(
        r"^\| ([a-z-]+), (real|IRI), ([^|]+) \|((?: [\d.]+ \|){9})$", (shared / "METHOD.md").read_text(), re.M
    )
    assert len(lines) == len(CURVES["information"])
    for (setting, arm, objectives, values), ours in zip(lines, sorted_as_on_the_page(), strict=True):
        names = objectives.partition(" (")[0].lower()
        assert (ours.setting, ours.arm) == (setting, arm.lower())
        assert ours.objectives == (OBJECTIVES if names == "all" else tuple(names.split("/")))
        assert list(ours.values) == [float(value) for value in values.split("|")[:9]]


def sorted_as_on_the_page() -> list[Any]:
    """The page gives FuLA and DM of cross-seed before HLM."""
    found = list(CURVES["information"])
    found.insert(4, found.pop(2))
    return found


@pytest.mark.parametrize("study", list(STATEMENTS))
def test_every_statement_holds_of_the_paper_itself(study: str) -> None:
    for statement in STATEMENTS[study]:
        finding = published_finding(study, statement)
        assert finding.holds is True, statement.text
        assert finding.numbers
        assert all(name in SETTINGS[study] for name in statement.setting.split(", "))


def test_settings_are_known_by_the_end_of_their_names() -> None:
    assert ends_in("cross-seed", "cross-seed")
    assert ends_in("sign-200 cross-seed", "cross-seed")
    assert ends_in("adam-400-cross-seed", "cross-seed")
    assert not ends_in("cross-seed-34", "cross-seed")
    assert not ends_in("xpixel+class", "pixel+class")
    assert not ends_in("at-to-at attacked", "at-to-at")


def test_scores_come_from_the_evaluation_set_that_the_study_is_about() -> None:
    rows = [
        row("at-to-at", "at/1", 1, "slm", "real", 90.0),
        row("at-to-at", "at/1", 1, "slm", "real", 80.0, eval_set="clean"),
    ]
    rows += [row("x at-to-at attacked", "at/1", 1, "slm", "real", 70.0, eval_set="apgd_ce_dlr", eps=8 / 255)]
    rows += [row("clean-to-clean attacked", "at/1", 1, "slm", "real", 70.0)]
    found = find_matches(panels(pd.DataFrame(rows)), "robustness", OBJECTIVES)
    assert [(match.panel.setting, match.panel.eval_set, match.setting) for match in found] == [
        ("at-to-at", "test", "at-to-at"),
        ("x at-to-at attacked", "apgd_ce_dlr", "at-to-at attacked"),
    ]
    assert family(found[1].panel, found[1].setting) == ("x", ())
    excess = [row("rand+random", "a/1", 1, "slm", "real", 50.0, eval_set=name) for name in ("test", "shuffled")]
    (match,) = find_matches(panels(pd.DataFrame(excess)), "shortcuts", OBJECTIVES)
    assert match.tracks["rand+random", "real", "slm"].values == (0.0,)


def test_the_table_has_our_values_our_r_and_the_published_values_at_our_depths() -> None:
    rows = [
        row("cross-bias", "p/1", point, "fula", "iri", value, iri_r_median=0.1 * point, iri_r_p90=0.3)
        for point, value in ((1, 90.0), (2, 60.0), (5, 10.0))
    ]
    found = panels(pd.DataFrame([*rows, *ends("cross-bias", "p/1", 5, 92.0)]))
    pairs = find_pairs(find_matches(found, "information", OBJECTIVES), "information")
    (table,) = pair_tables(pairs)
    assert (table["points"], table["depths"], table["interpolated"]) == (
        ["1", "2", "5"],
        ["0.00", "0.25", "1.00"],
        True,
    )
    # five points to nine: ours are theirs of points 1, 3 and 9
    assert [(line["kind"], line["cells"]) for line in table["lines"]] == [
        ("ours", ["90.0", "60.0", "10.0"]),
        ("r", ["0.100", "0.200", "0.500"]),
        ("published", ["91.5", "26.0", "14.0"]),
    ]
    assert at_depths(published_tracks("information")["cross-bias", "iri", "fula"], [0.0625]) == [(91.5 + 50) / 2]


def test_one_published_curve_for_all_objectives_stands_below_each_of_ours() -> None:
    rows = [row("cross-seed", "a/1", p, o, "real", 90.0) for p in (1, 9) for o in ("slm", "dm")]
    pairs = find_pairs(find_matches(panels(pd.DataFrame(rows)), "information", OBJECTIVES), "information")
    (table,) = pair_tables(pairs)
    assert [line["name"] for line in table["lines"]] == [
        "SLM on real images, here",
        "DM on real images, here",
        "HLM, SLM, FuLA, DM on real images, published",
    ]
    assert not table["interpolated"]


def test_the_figure_lays_ours_over_the_published_curve_at_relative_depth() -> None:
    frame = curves(["cross-bias"], (1, 2), (1,))
    found = panels(frame)
    pairs = find_pairs(find_matches(found, "information", OBJECTIVES), "information")
    with figure_look():
        axes = beside_figure(pairs, OBJECTIVES).axes
    assert [ax.get_title(loc="left") for ax in axes] == [
        "cross-bias\nSLM on real images",
        "cross-bias\nDM on real images",
        "cross-bias\nFuLA on IRIs",
        "cross-bias\nDM on IRIs",
    ]
    lines = {str(line.get_gid()): line for line in axes[2].get_lines()}
    assert list(lines["published-2"].get_xdata()) == [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]
    assert list(lines["published-2"].get_ydata()) == [91.5, 50, 26, 12.5, 12, 12, 12, 12, 14]
    assert list(lines["ours-2-fula"].get_xdata()) == list(lines["published-2"].get_xdata())
    assert [text.get_text() for text in axes[2].texts] == ["our r 0.013 … 0.301"]  # 1.075 times 0.012 and 0.28
    assert not axes[0].texts


def test_bounds_name_the_value_that_decides_with_its_residual() -> None:
    found = tracks(track([100, 99.5, 98.0], r=[0.01, 0.02, 0.3]), track([99.0, 100, 100], objective="dm"))
    finding = shapes.at_least("s", 99, ["iri"], ["slm", "dm", "fula"])(found)
    assert finding == shapes.Finding(False, "smallest 98.0 at point 3 (r 0.300), SLM on IRIs")
    assert shapes.at_least("s", 98, ["iri"], ["slm", "dm"])(found).holds
    assert shapes.at_most("s", 99.4, ["iri"], ["slm"], (0.75, 1))(found).holds
    assert not shapes.at_most("s", 99.4, ["iri"], ["slm"], (0.5, 1))(found).holds
    assert shapes.reaches("s", 100, ["iri"], ["slm", "dm"])(found).holds
    assert shapes.at_least("s", 99, ["real"], ["slm"])(found) == shapes.NOT_MEASURED
    near = shapes.near_zero("s", 2, ["iri"], ["slm"])(tracks(track([1.0, -2.5, 0.0])))
    assert near == shapes.Finding(False, "furthest from 0: −2.5 at point 2, SLM on IRIs")


def test_what_must_hold_everywhere_is_open_until_the_last_point_is_measured() -> None:
    begun = tracks(track([100, 100], count=5))
    assert shapes.at_least("s", 99, ["iri"], ["slm"])(begun).holds is None
    assert shapes.at_least("s", 101, ["iri"], ["slm"])(begun).holds is False
    assert shapes.at_most("s", 20, ["iri"], ["slm"], (0.5, 1))(begun) == shapes.NOT_MEASURED
    assert shapes.reaches("s", 99, ["iri"], ["slm"])(begun).holds is True


def test_a_curve_falls_below_three_quarters_of_its_first_value() -> None:
    falling = tracks(track([80, 60, 59.9, 70, 80]))  # three quarters of 80 are 60
    finding = shapes.falls("s", "iri", "slm", True)(falling)
    assert finding == shapes.Finding(True, "from 80.0 at point 1 to 59.9 at point 3, relative depth 0.50")
    assert shapes.falls("s", "iri", "slm", False)(falling).holds is False
    steady = tracks(track([80, 60, 70]))
    assert shapes.falls("s", "iri", "slm", False)(steady) == shapes.Finding(
        True, "from 80.0 at point 1, smallest 60.0 at point 2"
    )
    assert shapes.falls("s", "iri", "slm", True)(steady).holds is False
    assert shapes.falls("s", "iri", "slm", True)(tracks(track([80, 70], count=3))).holds is None


def test_curves_fall_to_a_bound_only_if_all_do() -> None:
    found = tracks(track([90, 30, 60]), track([90, 40, 36], objective="dm"))
    assert shapes.falls_to("s", 36, "iri", ["slm", "dm", "fula"])(found).holds is True
    assert shapes.falls_to("s", 35, "iri", ["slm", "dm"])(found).holds is False
    assert shapes.falls_to("s", 35, "iri", ["slm"])(tracks(track([90, 80], count=3))).holds is None


def test_orders_of_objectives_and_settings() -> None:
    found = tracks(track([50, 90]), track([60, 80], objective="fula"), track([95, 90], objective="dm"))
    assert shapes.ordered_at_end("s", "iri", ["slm", "fula"])(found).holds is True
    assert shapes.ordered_at_end("s", "iri", ["slm", "dm"])(found).holds is False  # equal is not above
    assert shapes.ordered_at_end("s", "iri", ["slm", "hlm"])(found) == shapes.NOT_MEASURED
    assert shapes.ordered_peaks("s", "iri", ["dm", "slm", "fula"])(found).holds is True
    assert shapes.ordered_peaks("s", "iri", ["slm", "dm"])(found).holds is False
    both = {**tracks(track([100, 50]), setting="a"), **tracks(track([90, 70, 20]), setting="b")}
    finding = shapes.ordered_settings(["a", "b"], "iri", "slm", 0.5)(both)
    assert finding == shapes.Finding(True, "a 75.0; b 70.0")
    assert shapes.ordered_settings(["a", "c"], "iri", "slm", 0.5)(both) == shapes.NOT_MEASURED


def test_gaps_between_arms() -> None:
    found = tracks(track([90, 90, 90], "real"), track([88, 95, 60], r=[0.1, 0.2, 0.3]))
    finding = shapes.together("s", 5, "slm")(found)
    assert finding.holds is False
    assert finding.numbers.startswith("furthest apart: 90.0 at point 3, SLM on real images; 60.0 at point 3 (r 0.300)")
    assert shapes.together("s", 30, "slm")(found).holds is True
    grown = shapes.gap_grows("s", "slm")(found)
    assert grown == shapes.Finding(True, "gap 2.0 at the first point, 30.0 at the last; r 0.100 and 0.300")
    assert (
        shapes.gap_grows("s", "slm")(tracks(track([90], "real", count=3), track([80], count=3))) == shapes.NOT_MEASURED
    )


def test_a_dip_is_below_half_of_both_ends() -> None:
    assert shapes.dips("s", "iri", "slm")(tracks(track([90, 39, 80]))).holds is True
    assert shapes.dips("s", "iri", "slm")(tracks(track([90, 41, 80]))).holds is False
    assert shapes.dips("s", "iri", "slm")(tracks(track([90, 80, 10]))).holds is False


def test_the_middle_is_a_mean_over_half_of_the_depth() -> None:
    iri = track([80, 4, 6, 5, 80], r=[0.1, 0.2, 0.3, 0.2, 0.1])
    finding = shapes.middle_mean("s", -100, 6, "iri", "slm")(tracks(iri))
    assert finding == shapes.Finding(True, "mean 5.0 over points 2–4 (largest r 0.300), SLM on IRIs")
    assert shapes.middle_mean("s", -2, 2, "iri", "slm")(tracks(iri)).holds is False
    both = tracks(iri, track([0, 10, 10, 10, 0], "real"))
    assert shapes.middle_share("s", 0.5, "slm")(both).holds is True
    assert shapes.middle_share("s", 0.51, "slm")(both).holds is False


def test_settings_of_one_family_are_judged_together_and_what_is_missing_is_not_measured() -> None:
    frame = curves(fronts=(1,), seeds=(1,))
    frame = pd.concat(
        [frame.assign(setting="sign-200 " + frame["setting"]), frame.assign(setting="adam " + frame["setting"])]
    )
    tables = statement_tables(find_matches(panels(frame), "information", OBJECTIVES), "information")
    assert [table["label"] for table in tables] == ["adam", "sign-200"]
    verdicts = {(line["setting"], line["text"]): line["verdict"] for line in tables[0]["lines"]}
    assert verdicts["cross-bias", "FuLA and DM on IRIs are at most 20 from relative depth 0.5 on"] == "holds"
    assert {verdict for (setting, _), verdict in verdicts.items() if "supervision" in setting} == {"not measured"}


def test_without_any_setting_of_the_paper_all_is_not_measured() -> None:
    (table,) = statement_tables([], "shortcuts")
    assert {line["verdict"] for line in table["lines"]} == {"not measured"}
    assert all(line["published"] for line in table["lines"])


def test_relative_depth_counts_the_points_of_the_front_not_those_measured() -> None:
    rows = [row("identical", "a/1", 2, "slm", "real", 90.0), *ends("identical", "a/1", 5, 90.0)]
    (panel,) = panels(pd.DataFrame(rows))
    own = panel_tracks(panel, "identical", ["slm"])["identical", "real", "slm"]
    assert (own.depths, own.last) == ((0.25,), None)


def test_notes_are_paragraphs() -> None:
    assert paragraphs(" One\nline.\n\n \nTwo  blanks. \n") == ["One line.", "Two blanks."]
    assert paragraphs(" \n") == []

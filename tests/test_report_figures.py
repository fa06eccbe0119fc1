"""What a reader can take from the figures: the lines are the means, and residuals stand below IRI scores."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report_study import OBJECTIVES, cross_map, curves, ends, row

from raystitch.report.figures import overview_figure, panel_figure
from raystitch.report.frame import tidy
from raystitch.report.look import ARM_COLOURS, figure_look
from raystitch.report.panels import Panel, make_panels
from raystitch.report.render import inline_svg, to_png, to_svg


@pytest.fixture(autouse=True)
def look() -> Iterator[None]:
    with figure_look():
        yield


def panel_of(frame: pd.DataFrame) -> Panel:
    (panel,) = make_panels(tidy(frame), ())
    return panel


def draw(rows: list[dict[str, object]]) -> Figure:
    return panel_figure(panel_of(pd.DataFrame(rows)), OBJECTIVES)


def lines(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    named = [line for line in ax.get_lines() if line.get_gid()]
    return {str(line.get_gid()): tuple(np.asarray(line.get_data()).tolist()) for line in named}


def test_lines_are_the_means_of_the_table() -> None:
    frame = curves(["cross-bias"])
    upper, lower = panel_figure(panel_of(frame), OBJECTIVES).axes
    stitched = frame[frame["objective"] != "none"]
    means = stitched.groupby(["arm", "objective", "front_point"])["agreement"].mean()
    found = lines(upper)
    assert len(found) == 2 * 4 + 1
    for (arm, objective), own in means.groupby(["arm", "objective"]):
        xs, ys = found[f"curve-{arm}-{objective}"]
        assert xs == list(range(1, 10))
        np.testing.assert_allclose(ys, own.to_numpy(), rtol=1e-12)
    alone = frame[frame["front_point"] == 10]["agreement"].mean()
    np.testing.assert_allclose(found["unstitched"], [[0, 10], [100.0, alone]])

    iri = frame[(frame["arm"] == "iri") & (frame["seed"] == 1) & (frame["objective"] == "slm")]
    medians = iri.groupby("front_point")["iri_r_median"].mean()
    np.testing.assert_allclose(lines(lower)["r-median"], [medians.index, medians])
    np.testing.assert_allclose(lines(lower)["r-p90"][1], 1.7 * medians)


def test_bands_reach_from_the_smallest_to_the_largest_run() -> None:
    scores = {1: 80.0, 2: 90.0, 3: 85.0}
    figure = draw([row("s", "a/1", p, "slm", "real", s, seed=seed) for p in (1, 2) for seed, s in scores.items()])
    band = figure.axes[0].collections[0].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == (80.0, 90.0)


def test_colour_tells_the_arm_and_style_tells_the_objective() -> None:
    upper = panel_figure(panel_of(curves(["cross-seed"], (1,), (1,))), OBJECTIVES).axes[0]
    looks: dict[str, dict[str, tuple[object, ...]]] = {"real": {}, "iri": {}}
    for line in upper.get_lines():
        if str(line.get_gid()).startswith("curve-"):
            _, arm, objective = str(line.get_gid()).split("-")
            assert line.get_color() == ARM_COLOURS[arm]
            looks[arm][objective] = (line.get_marker(), line.get_linestyle())
    assert looks["real"] == looks["iri"]
    assert len(set(looks["real"].values())) == len(OBJECTIVES)


def test_axis_is_percent_and_names_the_unstitched_ends() -> None:
    upper, lower = panel_figure(panel_of(curves(["cross-seed"], (1,), (1,))), OBJECTIVES).axes
    low, high = upper.get_ylim()
    assert -5 <= low <= 0
    assert 100 <= high <= 105
    labels = [label.get_text() for label in lower.get_xticklabels()]
    assert labels == ["0\nend", *map(str, range(1, 10)), "10\nfront"]


def test_without_iri_scores_there_is_no_residual_strip() -> None:
    assert len(draw([row("s", "a/1", 1, "slm", "real", 90.0), *ends("s", "a/1", 1, 95.0)]).axes) == 1


def test_one_iri_run_alone_is_drawn_with_its_residual() -> None:
    upper, lower = draw([row("s", "a/1", 3, "dm", "iri", 50.0, iri_r_median=0.2, iri_r_p90=0.3)]).axes
    assert lines(upper)["curve-iri-dm"] == ([3.0], [50.0])
    assert lines(lower)["r-median"] == ([3.0], [0.2])


def test_an_iri_score_without_residual_is_marked() -> None:
    known = row("s", "a/1", 1, "dm", "iri", 50.0, iri_r_median=0.2, iri_r_p90=0.3)
    lower = draw([known, row("s", "a/1", 2, "dm", "iri", 50.0)]).axes[1]
    assert [(text.get_text(), text.xy[0]) for text in lower.texts] == [("?", 2)]  # type: ignore[attr-defined]


def test_maps_show_every_pair_and_the_residuals_below() -> None:
    figure = panel_figure(panel_of(cross_map(points=3)), OBJECTIVES)
    titles = [ax.get_title(loc="left") for ax in figure.axes[:6]]
    assert titles == ["SLM, real images", "FuLA, real images", "SLM, IRIs", "FuLA, IRIs", "", ""]
    values = figure.axes[0].collections[0].get_array()
    # 98 on the diagonal, −7 per step of the front beyond the end, −2.5 per step of the end beyond the front
    np.testing.assert_allclose(values, [[98, 91, 84], [95.5, 98, 91], [93, 95.5, 98]])
    for strip, objective in zip(figure.axes[4:6], ("slm", "fula"), strict=True):
        assert lines(strip)[f"{objective}-r-median"][1] == pytest.approx([0.03, 0.06, 0.09])


def test_different_end_points_are_named_on_the_axis() -> None:
    axes = draw([row("s", "a/1", i, "slm", "real", 90.0, end_point=j) for i, j in ((1, 1), (2, 4))]).axes
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["0\n\nend", "1\n1", "2\n4"]


def test_overview_has_a_panel_per_setting_each_with_its_strip() -> None:
    frame = pd.concat([curves(fronts=(1,), seeds=(1,)), cross_map(3)])
    panels = make_panels(tidy(frame), ("cross-seed", "cross-bias", "maps"))
    figure = overview_figure(panels, OBJECTIVES)
    axes = [ax for cell in figure.subfigs for ax in cell.axes]
    assert [ax.get_title(loc="left").split("\n")[0] for ax in axes[::2]] == ["cross-seed", "cross-bias", "maps"]
    strips = [[name for name in lines(ax) if name.endswith("r-median")] for ax in axes]
    assert strips == [[], ["cross-seed-r-median"], [], ["cross-bias-r-median"], [], ["maps-r-median"]]


def test_objectives_that_are_not_of_the_method_are_drawn() -> None:
    figure = draw([row("s", "a/1", 1, name, "real", 90.0) for name in ("slm", "fula+slm", "other")])
    assert {"curve-real-slm", "curve-real-fula+slm", "curve-real-other"} <= set(lines(figure.axes[0]))


def test_a_dollar_sign_or_markup_in_a_name_is_just_text() -> None:
    svg = to_svg(draw([row("$x^{<b>&$", "a/1", 1, "slm", "real", 90.0)])).decode()
    assert "$x^{&lt;b&gt;&amp;$" in svg


def test_files_are_the_same_every_time_and_carry_no_date() -> None:
    frame = curves(["cross-bias"], (1,), (1,))
    first, second = (panel_figure(panel_of(frame), OBJECTIVES) for _ in range(2))
    svg = to_svg(first)
    assert svg == to_svg(second)
    assert b"dc:date" not in svg
    png = to_png(first)
    assert png == to_png(second)
    assert b"Software" not in png


def test_inline_svg_prefixes_every_id_and_uses_the_colours_of_the_page() -> None:
    svg = to_svg(draw([row("s #0072b2", "a/1", 1, "slm", "real", 90.0)]))
    text = str(inline_svg(svg, "one", 'label "quoted" <b>'))
    assert text.startswith('<svg role="img" aria-label="label &#34;quoted&#34; &lt;b&gt;" viewBox=')
    assert text.count(' id="') == text.count(' id="one-') > 0
    assert text.count("url(#") == text.count("url(#one-") > 0
    assert text.count('href="#') == text.count('href="#one-') > 0
    assert "<style" not in text
    assert "<metadata" not in text
    assert "var(--real)" in text
    assert text.count("#0072b2") == 1  # the name keeps its text


def test_the_users_matplotlib_settings_neither_matter_nor_change() -> None:
    with mpl.rc_context({"svg.hashsalt": "own", "font.size": 30.0}):
        with figure_look():
            assert mpl.rcParams["font.size"] == 9
        assert mpl.rcParams["svg.hashsalt"] == "own"
        assert mpl.rcParams["font.size"] == 30.0

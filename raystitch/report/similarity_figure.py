"""The figure of representation metrics beside agreement: how alike nets look, next to whether they can be stitched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raystitch.report.axes import draw_cells, draw_curves, draw_spread, draw_strip, label_points
from raystitch.report.frame import in_order
from raystitch.report.look import ARM_COLOURS, PAPER
from raystitch.report.parts import (
    TITLE,
    arm_handles,
    legend,
    objective_handles,
    tell_ids_apart,
    unstitched_handle,
    wrapped,
)
from raystitch.report.similarity import NAMES, Similarity, metric_curve
from raystitch.report.statistics import grid_of, residuals_of

_STYLES: dict[str, dict[str, Any]] = {
    "cka": {"color": ARM_COLOURS["real"], "markerfacecolor": ARM_COLOURS["real"], "marker": "o", "linestyle": "-"},
    "cka_iri": {"color": ARM_COLOURS["iri"], "markerfacecolor": PAPER, "marker": "o", "linestyle": "-"},
    "stir": {"color": ARM_COLOURS["iri"], "markerfacecolor": PAPER, "marker": "D", "linestyle": "--"},
    "stir_front": {"color": ARM_COLOURS["iri"], "marker": "_", "linestyle": ":", "linewidth": 1.0},
}
"""Blue on real images and vermilion on IRIs, as everywhere."""


def similarity_figure(each: Similarity, objectives: Sequence[str]) -> Figure:
    """Metrics on the left, agreement of the same pairs on the right, residuals below both; of a map, a map per metric."""
    return _maps(each) if each.is_map else _curves(each, objectives)


def _curves(each: Similarity, objectives: Sequence[str]) -> Figure:
    panel = None if each.panel is None or each.panel.is_map else each.panel
    has_iris = any(name != "cka" for name in each.metrics)
    lines, columns = 1 + has_iris, 1 + (panel is not None)
    figure = Figure(figsize=(0.6 + 4.2 * columns, 5.4 if has_iris else 4.3), layout="constrained")
    ratios = [4, 1] if has_iris else [1]
    axes = figure.subplots(lines, columns, sharex=True, squeeze=False, height_ratios=ratios)
    _draw_metrics(axes[0, 0], each)
    if has_iris:
        _strip(axes[1, 0], each)
    if panel is not None:
        draw_curves(axes[0, 1], panel, in_order(panel.rows["objective"], objectives))
        axes[0, 1].set_title("agreement", fontsize=9)
        if panel.iri_arms:
            draw_strip(axes[-1, 1], residuals_of(panel.rows[panel.rows["arm"] != "real"]))
            tell_ids_apart(axes[-1, 1], "agreement")
        elif has_iris:
            axes[-1, 1].set_axis_off()
    for ax in axes[-1]:
        _label(ax, each)
    _legend(figure, each, objectives)
    return figure


def _label(ax: Axes, each: Similarity) -> None:
    if each.panel is not None and not each.panel.is_map:
        label_points(ax, each.panel)
        return
    points = sorted(set(each.rows["front_point"]))
    ax.set_xticks(points, list(map(str, points)))
    ax.set_xlabel("stitch point of the front model")


def _draw_metrics(ax: Axes, each: Similarity) -> None:
    for name in each.metrics:
        values = metric_curve(each.rows, name)
        draw_spread(ax, values, str(_STYLES[name]["color"]))
        ax.plot(values.index, values["mean"], gid=f"metric-{name}", zorder=3, **_STYLES[name])
    lowest = min(0.0, float(each.rows[each.metrics].min().min()))
    ax.set_ylim(lowest - 0.03, 1.03)
    ax.grid(axis="y")
    ax.set_ylabel("similarity (0 … 1)")
    ax.set_title("representation metrics", fontsize=9)


def _strip(ax: Axes, each: Similarity) -> None:
    draw_strip(ax, residuals_of(each.rows))
    tell_ids_apart(ax, "metrics")


def _maps(each: Similarity) -> Figure:
    columns = len(each.metrics)
    has_iris = any(name != "cka" for name in each.metrics)
    figure = Figure(figsize=(1.2 + 3.1 * columns, 4.9 if has_iris else 3.8), layout="constrained")
    heights = [3.6, 1.0] if has_iris else [1]
    axes = figure.subplots(1 + has_iris, columns, squeeze=False, height_ratios=heights)
    for column, name in enumerate(each.metrics):
        mesh = draw_cells(axes[0, column], grid_of(each.rows, name), "cividis", (0, 1), 0.55, "{:.2f}")
        axes[0, column].set_title(NAMES[name])
        axes[0, column].set_xlabel("front point")
        if has_iris and name == "cka":
            axes[1, column].set_axis_off()
        elif has_iris:
            _strip_below_map(axes[1, column], each, name)
    axes[0, 0].set_ylabel("end point")
    figure.colorbar(mesh, ax=axes.ravel().tolist(), shrink=0.6, aspect=40)
    figure.suptitle(wrapped(each.label), x=0.01, ha="left", gid=TITLE)
    return figure


def _strip_below_map(ax: Axes, each: Similarity, name: str) -> None:
    values = residuals_of(each.rows)
    ax.set_xticks(range(len(values)), list(map(str, values.index)))
    draw_strip(ax, values.reset_index(drop=True))
    ax.set_xlim(-0.5, len(values) - 0.5)
    tell_ids_apart(ax, name)


def _legend(figure: Figure, each: Similarity, objectives: Sequence[str]) -> None:
    handles = [Line2D([], [], label=NAMES[name], **_STYLES[name]) for name in each.metrics]
    panel = each.panel
    if panel is None or panel.is_map:
        legend(figure, handles, each.label)
        return
    shown = in_order(panel.rows["objective"], objectives)
    legend(
        figure,
        [*handles, *arm_handles(panel.arms), *objective_handles(shown), unstitched_handle()],
        wrapped(each.label),
    )

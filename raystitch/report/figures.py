"""Figures of a study. Wherever IRI scores are shown, the residuals of these IRIs stand right below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from raystitch.report.axes import agreement_label, draw_curves, draw_map, draw_residuals, label_points
from raystitch.report.frame import in_order
from raystitch.report.look import ARM_NAMES, ARMS, objective_name
from raystitch.report.panels import Panel
from raystitch.report.parts import (
    TITLE,
    arm_handles,
    legend,
    objective_handles,
    tell_ids_apart,
    unstitched_handle,
    wrapped,
)

_OVERVIEW_COLUMNS = 3


def panel_figure(panel: Panel, objectives: Sequence[str]) -> Figure:
    """The figure of one panel: curves, or maps where front points meet several end points."""
    shown = in_order(panel.rows["objective"], objectives)
    return _map_figure(panel, shown) if panel.is_map else _curves_figure(panel, shown)


def overview_figure(panels: Sequence[Panel], objectives: Sequence[str]) -> Figure:
    """All panels side by side; of a map, the pairs of equal points."""
    columns = min(_OVERVIEW_COLUMNS, max(1, len(panels)))
    lines = max(1, ceil(len(panels) / columns))
    figure = Figure(figsize=(0.6 + 3.3 * columns, 0.7 + 3.2 * lines), layout="constrained")
    cells = figure.subfigures(lines, columns, squeeze=False).ravel()
    found = in_order((name for panel in panels for name in panel.rows["objective"]), objectives)
    for cell, panel in zip(cells, panels, strict=False):
        _overview_cell(cell, panel, found)
    arms = in_order((arm for panel in panels for arm in panel.arms), ARMS)
    _legend(figure, arms, found)
    return figure


def _overview_cell(cell: SubFigure, panel: Panel, objectives: Sequence[str]) -> None:
    title = wrapped(panel.label, 42)
    if panel.is_map:
        rows = panel.rows[panel.rows["front_point"] == panel.rows["end_point"]]
        title += "\n(equal points of the map)"
        panel = replace(panel, rows=rows)
    if len(panel.rows):
        _curves_and_strip(cell, panel, objectives).set_title(title, fontsize=8.5)
        tell_ids_apart(cell, panel.slug)
    else:
        cell.suptitle(f"{title}: none done", fontsize=8.5)


def _curves_figure(panel: Panel, objectives: Sequence[str]) -> Figure:
    strip = bool(panel.iri_arms)
    figure = Figure(figsize=(8.4, 5.6 if strip else 4.5), layout="constrained")
    upper = _curves_and_strip(figure, panel, objectives)
    upper.set_title(wrapped(panel.label), gid=TITLE)
    _legend(figure, panel.arms, objectives)
    return figure


def _curves_and_strip(figure: Figure | SubFigure, panel: Panel, objectives: Sequence[str]) -> Axes:
    """Curves above, residuals of their IRIs below (only if there are IRI runs); returns the upper axes."""
    if not panel.iri_arms:
        upper = lower = figure.subplots()
    else:
        upper, lower = figure.subplots(2, sharex=True, height_ratios=[4, 1])
        draw_residuals(lower, panel)
    draw_curves(upper, panel, objectives)
    label_points(lower, panel)
    return upper


def _map_figure(panel: Panel, objectives: Sequence[str]) -> Figure:
    """A map per objective (columns) and arm (rows), with the residual of every front point below the IRI maps."""
    rows = [*panel.arms, "r"] if panel.iri_arms else panel.arms
    heights = [1.0 if row == "r" else 3.6 for row in rows]
    figure = Figure(figsize=(1.2 + 3.1 * len(objectives), 0.9 + 0.85 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(rows), len(objectives), squeeze=False, height_ratios=heights)
    for line, row in enumerate(rows):
        for column, objective in enumerate(objectives):
            if row == "r":
                _strip_below_map(axes[line, column], panel, objective)
                continue
            mesh = draw_map(axes[line, column], panel, objective, row)
            axes[line, column].set_title(f"{objective_name(objective)}, {ARM_NAMES.get(row, row)}")
            axes[line, column].set_xlabel("front point")
        axes[line, 0].set_ylabel("residual r" if row == "r" else "end point")
    figure.colorbar(mesh, ax=axes.ravel().tolist(), label=agreement_label(panel), shrink=0.6, aspect=40)
    figure.suptitle(wrapped(panel.label), x=0.01, ha="left", gid=TITLE)
    return figure


def _strip_below_map(ax: Axes, panel: Panel, objective: str) -> None:
    places = {point: place for place, point in enumerate(sorted(set(panel.rows["front_point"])))}
    rows = panel.rows.assign(front_point=panel.rows["front_point"].map(places))
    draw_residuals(ax, replace(panel, rows=rows))
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.set_xticks(list(places.values()), list(map(str, places)))
    ax.set_ylabel("")
    tell_ids_apart(ax, objective)


def _legend(figure: Figure, arms: Sequence[str], objectives: Sequence[str]) -> None:
    legend(figure, [*arm_handles(arms), *objective_handles(objectives), unstitched_handle()])

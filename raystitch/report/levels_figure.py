"""The figure of agreement against the residual of the IRIs: better IRIs to the right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import ceil
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raystitch.report.axes import agreement_label, draw_spread, scale_agreement
from raystitch.report.frame import in_order
from raystitch.report.levels import Place, against_residual, places, real_value
from raystitch.report.look import ARM_COLOURS, ARM_NAMES, MUTED, arm_style, line_style
from raystitch.report.panels import Panel
from raystitch.report.parts import NARROWEST, arm_handles, legend, objective_handles
from raystitch.report.tables import points

_MOST_COLUMNS = 5
_NARROWEST = 0.075
"""Least distance between two labels along an axis, as a share of its length."""


def levels_figure(panel: Panel, objectives: Sequence[str]) -> Figure:
    """One small pair of axes per arm and point: a line per objective over its residual levels, real images as a level line."""
    shown = in_order(panel.levels["objective"], objectives)
    arms = [[place for place in places(panel) if place.arm == arm] for arm in panel.iri_arms]
    most = max(map(len, arms))
    columns = ceil(most / ceil(most / _MOST_COLUMNS))
    lines = [own[start : start + columns] for own in arms for start in range(0, len(own), columns)]
    figure = Figure(figsize=(max(NARROWEST, 0.9 + 1.75 * columns), 1.2 + 2.0 * len(lines)), layout="constrained")
    axes = figure.subplots(len(lines), columns, sharex=True, sharey=True, squeeze=False)
    _scale_residuals(axes[0, 0], panel)
    for row, line in zip(axes, lines, strict=True):
        for ax, place in zip(row, line, strict=False):
            _draw_place(ax, panel, place, shown, f"{place.arm}-{place.front_point}-{place.end_point}")
        for ax in row[len(line) :]:
            ax.set_axis_off()
        arm = f"{ARM_NAMES.get(line[0].arm, line[0].arm)}\n" if len(arms) > 1 else ""
        row[0].set_ylabel(f"{arm}{agreement_label(panel)}")
    _show_lowest_ticks(axes.tolist(), lines)
    figure.supxlabel("median r of the IRIs as stored; better IRIs to the right", fontsize=9)
    level_line = Line2D([], [], color=ARM_COLOURS["real"], linewidth=1, label="real images: the level lines")
    handles = [*arm_handles(panel.iri_arms), level_line, *objective_handles(shown)]
    legend(figure, handles, panel.label)
    return figure


def _draw_place(ax: Axes, panel: Panel, place: Place, objectives: Sequence[str], gid: str) -> None:
    marks: dict[str, float] = {}
    for objective in objectives:
        values = against_residual(panel, place, objective)
        reference = real_value(panel, place, objective)
        style = line_style(objective, objectives)
        if reference is not None:
            ax.axhline(reference, color=ARM_COLOURS["real"], linewidth=0.9, linestyle=style["linestyle"], zorder=1)
        draw_spread(ax, values.set_index("r"), ARM_COLOURS.get(place.arm, MUTED))
        look = {**arm_style(place.arm), **style, "markersize": 3.5, "linewidth": 1.2}
        ax.plot(values["r"], values["mean"], gid=f"levels-{gid}-{objective}", zorder=3, **look)
        marks |= {_level_name(level): r for level, r in zip(values["level"], values["r"], strict=True)}
    scale_agreement(ax, panel)
    ax.grid(axis="x", color="#e2e4e8")
    _label_marks(ax, marks)
    ax.set_title(f"point {points(place.front_point, place.end_point)}", pad=20, fontsize=8.5)


def _level_name(level: float) -> str:
    return "best" if math.isnan(level) else f"{level:g}"


def _label_marks(ax: Axes, marks: dict[str, float]) -> None:
    """Name the level of each mark above the axes; of marks too close to be named, the better ones are."""
    high, low = (math.log(edge) for edge in ax.get_xlim())
    taken: list[float] = []
    for name, r in sorted(marks.items(), key=lambda mark: (mark[1], mark[0] != "best")):
        place = (high - math.log(r)) / (high - low)
        if all(abs(place - other) > _NARROWEST for other in taken):
            taken.append(place)
            where: dict[str, Any] = {
                "xycoords": ("data", "axes fraction"),
                "textcoords": "offset points",
                "xytext": (0, 3),
            }
            ax.annotate(name, (r, 1.0), rotation=90, ha="center", va="bottom", fontsize=6.5, color=MUTED, **where)


def _scale_residuals(ax: Axes, panel: Panel) -> None:
    """One logarithmic scale for all, from the largest r on the left to the smallest."""
    r = panel.levels["iri_r_median"]
    low, high = (float(edge) for edge in (r[r > 0].min(), r.max()))
    room = (high / low) ** 0.06 * 1.04
    ax.set_xscale("log")
    ax.set_xlim(high * room, low / room)
    ticks = _round_numbers(low / room, high * room)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def _round_numbers(low: float, high: float) -> list[float]:
    """At most five round numbers between two bounds, evenly spread on a logarithmic scale where possible."""
    decades = range(math.floor(math.log10(low)), ceil(math.log10(high)) + 1)
    choices = [(1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)]
    found: list[float] = []
    for digits in choices:
        found = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
        found = [number for number in found if low <= number <= high]
        if len(found) <= 5:
            return found
    return found[:: ceil(len(found) / 5)]


def _show_lowest_ticks(axes: Sequence[Sequence[Axes]], lines: Sequence[Sequence[Place]]) -> None:
    """Residuals are written below the lowest axes of each column."""
    for column in range(len(axes[0])):
        filled = [row for row, line in enumerate(lines) if column < len(line)]
        axes[filled[-1]][column].tick_params(labelbottom=True)

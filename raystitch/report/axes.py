"""What is drawn inside one pair of axes: curves, unstitched ends, the strip of residuals, a front × end map."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from raystitch.report.look import ARM_COLOURS, INK, MUTED, PAPER, line_style
from raystitch.report.panels import Panel
from raystitch.report.statistics import curve, grid, residuals, unstitched

LARGEST_LABELLED_MAP = 150


def draw_curves(ax: Axes, panel: Panel, objectives: Sequence[str]) -> None:
    """One line of means per arm and objective with its min–max band, between the two unstitched ends."""
    ends = unstitched(panel)
    for arm in panel.arms:
        for objective in objectives:
            values = curve(panel, objective, arm)
            if len(values):
                _draw_curve(ax, values, arm, objective, objectives)
                _join_to_ends(ax, values["mean"], ends["mean"], arm)
    _draw_ranges(ax, ends, INK)
    ax.plot(ends.index, ends["mean"], "h", color=INK, markersize=6, gid="unstitched", label="unstitched", zorder=4)
    _scale_agreement(ax, panel)
    ax.set_ylabel(agreement_label(panel))


def agreement_label(panel: Panel) -> str:
    """What the values of a panel are."""
    return "excess agreement (%)" if panel.eval_set == "excess" else "agreement (%)"


def _draw_curve(ax: Axes, values: pd.DataFrame, arm: str, objective: str, objectives: Sequence[str]) -> None:
    colour = ARM_COLOURS.get(arm, MUTED)
    _draw_spread(ax, values, colour)
    ax.plot(
        values.index,
        values["mean"],
        color=colour,
        markerfacecolor=colour if arm == "real" else PAPER,
        gid=f"curve-{arm}-{objective}",
        label=f"{arm} {objective}",
        zorder=3,
        **line_style(objective, objectives),
    )


def _draw_spread(ax: Axes, values: pd.DataFrame, colour: str) -> None:
    if (values["high"] > values["low"]).any():
        ax.fill_between(values.index, values["low"], values["high"], color=colour, alpha=0.12, linewidth=0)
    _draw_ranges(ax, values, colour)


def _draw_ranges(ax: Axes, values: pd.DataFrame, colour: str) -> None:
    if (values["high"] > values["low"]).any():
        ax.vlines(values.index, values["low"], values["high"], color=colour, alpha=0.35, linewidth=0.8)


def _join_to_ends(ax: Axes, means: pd.Series, ends: pd.Series, arm: str) -> None:
    """Faint lines to the unstitched end model and front model, where these are the next points."""
    for near, far in ((means.index[0], means.index[0] - 1), (means.index[-1], means.index[-1] + 1)):
        if far in ends.index:
            xs, ys = [far, near], [ends[far], means[near]]
            ax.plot(xs, ys, color=ARM_COLOURS.get(arm, MUTED), alpha=0.3, linewidth=0.8, label="_join", zorder=2)


def _scale_agreement(ax: Axes, panel: Panel) -> None:
    lowest = min(0.0, float(panel.rows["agreement"].min()))
    ax.set_ylim(-3 if lowest >= 0 else max(-103.0, lowest - 5), 103)
    ax.set_yticks([tick for tick in range(-100, 101, 20) if tick >= lowest])
    ax.grid(axis="y")


def label_points(ax: Axes, panel: Panel) -> None:
    """Ticks at every stitch point, the unstitched ends named; a second line where the end point differs."""
    last = int(max(panel.rows["front_point"].max(), panel.ends["front_point"].max() if len(panel.ends) else 0))
    other = {} if panel.is_map else dict(zip(panel.rows["front_point"], panel.rows["end_point"], strict=True))
    labels = {
        point: f"{point}\n→ {other[point]}" if other.get(point, point) != point else f"{point}" for point in other
    }
    names = {0: "0\nend", **{int(p): f"{p}\nfront" for p in panel.ends["front_point"] if p > 0}}
    ax.set_xlim(-0.4, last + 0.4)
    step = max(1, (last + 1) // 24)
    ticks = [point for point in range(last + 1) if point % step == 0 or point in names]
    ax.set_xticks(ticks, [names.get(point) or labels.get(point) or str(point) for point in ticks])


def draw_residuals(ax: Axes, panel: Panel) -> None:
    """Median and 90th percentile of r per front point; a question mark where an IRI fit has no residual."""
    values = residuals(panel)
    known = values.dropna(subset=["median"])
    colour = ARM_COLOURS["iri"]
    ax.fill_between(known.index, known["median"], known["p90"], color=colour, alpha=0.12, linewidth=0)
    ax.plot(
        known.index, known["median"], "o-", color=colour, markersize=3, linewidth=1.1, gid="r-median", label="median"
    )
    ax.plot(known.index, known["p90"], "_:", color=colour, markersize=5, linewidth=0.9, gid="r-p90", label="p90")
    top = float(known[["median", "p90"]].max().max()) if len(known) else 0.0
    ax.set_ylim(0, 1.18 * top or 1)
    for point in values.index[values["median"].isna()]:
        ax.annotate("?", (point, 0.5), xycoords=("data", "axes fraction"), ha="center", va="center", color=colour)
    ax.locator_params(axis="y", nbins=3)
    ax.grid(axis="y")
    ax.set_ylabel("IRI r")


def draw_map(ax: Axes, panel: Panel, objective: str, arm: str) -> QuadMesh:
    """Mean agreement for every front point (x) and end point (y), with its number where there is room."""
    values = grid(panel, objective, arm)
    excess = panel.eval_set == "excess"
    colours, low = ("PuOr_r", -100) if excess else ("cividis", 0)
    xs, ys = range(values.shape[1]), range(values.shape[0])
    mesh = ax.pcolormesh(xs, ys, values.to_numpy(), cmap=colours, vmin=low, vmax=100, shading="nearest")
    ax.set_xticks(list(xs), list(map(str, values.columns)))
    ax.set_yticks(list(ys), list(map(str, values.index)))
    ax.tick_params(length=0)
    if values.size <= LARGEST_LABELLED_MAP:
        _label_cells(ax, values, dark_below=-200 if excess else 55)
    return mesh


def _label_cells(ax: Axes, values: pd.DataFrame, dark_below: float) -> None:
    for x, column in enumerate(values.columns):
        for y, value in enumerate(values[column]):
            if value == value:
                colour = "#fdfdfd" if value < dark_below else "#101114"
                ax.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=6.5, color=colour)

"""What is drawn inside one pair of axes: curves, unstitched ends, the strip of residuals, a front × end map."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from raystitch.report.look import ARM_COLOURS, INK, MUTED, arm_style, line_style
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
    scale_agreement(ax, panel)
    ax.set_ylabel(agreement_label(panel))


def agreement_label(panel: Panel) -> str:
    """What the values of a panel are."""
    return "excess agreement (%)" if panel.eval_set == "excess" else "agreement (%)"


def _draw_curve(ax: Axes, values: pd.DataFrame, arm: str, objective: str, objectives: Sequence[str]) -> None:
    draw_spread(ax, values, ARM_COLOURS.get(arm, MUTED))
    ax.plot(
        values.index,
        values["mean"],
        gid=f"curve-{arm}-{objective}",
        label=f"{arm} {objective}",
        zorder=3,
        **arm_style(arm),
        **line_style(objective, objectives),
    )


def draw_spread(ax: Axes, values: pd.DataFrame, colour: str) -> None:
    """Band and strokes from ``low`` to ``high`` over the index, where these differ anywhere."""
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


def scale_agreement(ax: Axes, panel: Panel) -> None:
    """From 0 (or the lowest value below) to 100 percent."""
    lowest = min(0.0, *(float(rows["agreement"].min()) for rows in (panel.rows, panel.levels) if len(rows)))
    ax.set_ylim(-3 if lowest >= 0 else max(-103.0, lowest - 5), 103)
    ax.set_yticks([tick for tick in range(-100, 101, 20) if tick >= lowest])
    ax.grid(axis="y")


def label_points(ax: Axes, panel: Panel) -> None:
    """Ticks at every stitch point, the unstitched ends named; a second line of end points where these differ."""
    last = int(max(panel.rows["front_point"].max(), panel.ends["front_point"].max() if len(panel.ends) else 0))
    other = {} if panel.is_map else dict(zip(panel.rows["front_point"], panel.rows["end_point"], strict=True))
    differ = any(i != j for i, j in other.items())
    apart = "\n\n" if differ else "\n"  # names stand below the end points, which would touch them
    names = {0: f"0{apart}end", **{int(p): f"{p}{apart}front" for p in panel.ends["front_point"] if p > 0}}
    labels = {i: f"{i}\n{j}" for i, j in other.items()} if differ else {}
    ax.set_xlim(-0.4, last + 0.4)
    step = max(1, (last + 1) // 24)
    ticks = sorted({*range(0, last + 1, step), *names})
    ax.set_xticks(ticks, [names.get(point) or labels.get(point) or str(point) for point in ticks])
    ax.set_xlabel("stitch point (front above, end below)" if differ else "stitch point of the front model")


def draw_residuals(ax: Axes, panel: Panel) -> None:
    """Residuals of a panel's IRIs; see :func:`draw_strip`."""
    draw_strip(ax, residuals(panel))


def draw_strip(ax: Axes, values: pd.DataFrame) -> None:
    """Median and 90th percentile of r per front point; a question mark where an IRI fit has no residual."""
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
    if panel.eval_set == "excess":
        return draw_cells(ax, grid(panel, objective, arm), "PuOr_r", (-100, 100), -200)
    return draw_cells(ax, grid(panel, objective, arm), "cividis", (0, 100), 55)


def draw_cells(
    ax: Axes, values: pd.DataFrame, colours: str, bounds: tuple[float, float], dark_below: float, form: str = "{:.0f}"
) -> QuadMesh:
    """A map of values within bounds; numbers are light on cells below ``dark_below``."""
    xs, ys = range(values.shape[1]), range(values.shape[0])
    low, high = bounds
    mesh = ax.pcolormesh(xs, ys, values.to_numpy(), cmap=colours, vmin=low, vmax=high, shading="nearest")
    ax.set_xticks(list(xs), list(map(str, values.columns)))
    ax.set_yticks(list(ys), list(map(str, values.index)))
    ax.tick_params(length=0)
    if values.size <= LARGEST_LABELLED_MAP:
        _label_cells(ax, values, dark_below, form)
    return mesh


def _label_cells(ax: Axes, values: pd.DataFrame, dark_below: float, form: str) -> None:
    for x, column in enumerate(values.columns):
        for y, value in enumerate(values[column]):
            if value == value:
                colour = "#fdfdfd" if value < dark_below else "#101114"
                ax.text(x, y, form.format(value), ha="center", va="center", fontsize=6.5, color=colour)

"""The figure of a study's curves over the published ones, each at its relative depth."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raystitch.report.axes import draw_spread
from raystitch.report.beside import Pair
from raystitch.report.frame import in_order
from raystitch.report.look import ARM_COLOURS, ARM_NAMES, ARMS, INK, MUTED, arm_style, line_style, objective_name
from raystitch.report.parts import NARROWEST, arm_handles, legend, objective_handles, wrapped
from raystitch.report.published import READING_ERROR
from raystitch.report.statistics import curve
from raystitch.report.tables import residual
from raystitch.report.tracks import published_track, relative_depth

_COLUMNS = 4


def beside_figure(pairs: Sequence[Pair], objectives: Sequence[str]) -> Figure:
    """One pair of axes per published curve: that one in ink with its reading error, ours in the colour of the arm."""
    columns = min(_COLUMNS, len(pairs))
    lines = ceil(len(pairs) / columns)
    figure = Figure(figsize=(max(NARROWEST, 0.8 + 2.3 * columns), 0.9 + 2.1 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for place, ax in enumerate(axes.ravel()):
        if place < len(pairs):
            _draw_pair(ax, pairs[place], objectives, place)
        else:
            ax.set_axis_off()
        if len(pairs) - columns <= place < len(pairs):
            ax.tick_params(labelbottom=True)
    for row in axes:
        row[0].set_ylabel("agreement (%)")
    figure.supxlabel("relative depth of the stitch point in the front", fontsize=9)
    arms = in_order((pair.published.arm for pair in pairs), ARMS)
    shown = in_order((track.objective for pair in pairs for track in pair.ours), objectives)
    published = Line2D([], [], color=INK, linewidth=2.5, alpha=0.55, label=f"published (±{READING_ERROR:g})")
    legend(figure, [published, *arm_handles(arms), *objective_handles(shown)])
    return figure


def _draw_pair(ax: Axes, pair: Pair, objectives: Sequence[str], place: int) -> None:
    theirs = published_track(pair.published, pair.published.objectives[0])
    values = np.array(theirs.values)
    ax.fill_between(theirs.depths, values - READING_ERROR, values + READING_ERROR, color=INK, alpha=0.12, linewidth=0)
    ax.plot(theirs.depths, values, color=INK, alpha=0.55, linewidth=2.5, gid=f"published-{place}")
    for track in pair.ours:
        own = curve(pair.match.panel, track.objective, track.arm)
        own.index = [relative_depth(int(point), track.count) for point in own.index]
        draw_spread(ax, own, ARM_COLOURS.get(track.arm, MUTED))
        look = {**arm_style(track.arm), **line_style(track.objective, objectives), "linewidth": 1.2}
        ax.plot(own.index, own["mean"], gid=f"ours-{place}-{track.objective}", zorder=3, markersize=3.5, **look)
    ax.set_ylim(-14, 103)
    ax.set_yticks(range(0, 101, 20))
    ax.set_xlim(-0.04, 1.04)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.grid(axis="y")
    names = ", ".join(objective_name(name) for name in pair.published.objectives)
    what = f"{names} on {ARM_NAMES[pair.published.arm]}"
    ax.set_title(f"{wrapped(pair.match.panel.label, 34)}\n{wrapped(what, 34)}", fontsize=8)
    _write_residuals(ax, pair)


def _write_residuals(ax: Axes, pair: Pair) -> None:
    """No IRI score without its residual: the range of r over the points."""
    known = [r for r in pair.ours[0].r if r is not None]
    if known:
        text = f"our r {residual(min(known))} … {residual(max(known))}"
        ax.text(0.03, 0.03, text, transform=ax.transAxes, fontsize=7, color=MUTED)

"""What several figures have in common: legends, wrapped titles, ids that are unique within a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raystitch.report.look import ARM_NAMES, INK, PAPER, arm_style, line_style, objective_name

TITLE = "title"
"""Id of the title in an SVG; a page that has the name as its heading hides it."""
NARROWEST = 4.6
"""Least width of a figure with a legend, in inches."""


def tell_ids_apart(parent: Artist, prefix: str) -> None:
    """Put a prefix before the id of everything drawn in ``parent``."""
    for artist in parent.findobj(lambda each: bool(each.get_gid())):
        artist.set_gid(f"{prefix}-{artist.get_gid()}")


def wrapped(label: str, width: int = 100) -> str:
    """At most three lines."""
    return "\n".join(textwrap.wrap(label, width)[:3])


def arm_handles(arms: Sequence[str]) -> list[Artist]:
    """A square of each arm's colour and filling."""
    look: dict[str, Any] = {"linestyle": "", "marker": "s", "markersize": 8}
    return [Line2D([], [], label=ARM_NAMES.get(arm, arm), **look, **arm_style(arm)) for arm in arms]


def objective_handles(objectives: Sequence[str]) -> list[Artist]:
    """The marker and line style of each objective."""
    return [
        Line2D([], [], color=INK, markerfacecolor=PAPER, label=objective_name(name), **line_style(name, objectives))
        for name in objectives
    ]


def unstitched_handle() -> Artist:
    """The mark of a net alone."""
    return Line2D([], [], color=INK, marker="h", linestyle="", markersize=6, label="unstitched")


def legend(figure: Figure, handles: Sequence[Artist], title: str = "") -> None:
    """One legend above all axes, below the title if there is one, with as many columns as are sure to fit."""
    widths = sorted((0.65 + 0.065 * len(str(handle.get_label())) for handle in handles), reverse=True)
    room = figure.get_figwidth() - 0.3
    columns = sum(total <= room for total in accumulate(widths))
    found = figure.legend(
        handles=list(handles),
        loc="outside upper left",
        ncols=max(1, columns),
        handlelength=3.2,
        columnspacing=1.4,
        title=wrapped(title, int(9 * figure.get_figwidth())) or None,
        title_fontproperties={"weight": "bold", "size": 11},
        alignment="left",
    )
    found.get_title().set_gid(TITLE if title else None)

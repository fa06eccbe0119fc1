"""How figures look: colours, markers and the matplotlib settings that keep files the same from run to run.

Arms are told apart by colour (blue and vermilion of Okabe & Ito 2008, safe for colour-blind readers) and by filled or
open markers; objectives by line style and marker shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

INK, MUTED, RULE, PAPER = "#23262b", "#6a6f78", "#e2e4e8", "#fffffe"
ARM_COLOURS = {"real": "#0072b2", "iri": "#d55e00"}
ARM_NAMES = {"real": "real images", "iri": "IRIs"}
OBJECTIVE_NAMES = {"hlm": "HLM", "slm": "SLM", "dm": "DM", "fula": "FuLA"}
_STYLES = {"hlm": ("^", ":"), "slm": ("o", "-"), "dm": ("s", "-."), "fula": ("D", "--")}
_OTHER_STYLES = (("v", (0, (5, 1))), ("P", (0, (1, 1))), ("X", (0, (3, 1, 1, 1))))

CSS_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    ARM_COLOURS["real"]: "var(--real)",
    ARM_COLOURS["iri"]: "var(--iri)",
}
"""What stands for each colour inside the page, so that figures follow its light or dark theme."""

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "raystitch",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # names are shown as they are: a dollar sign does not start a formula
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "figure.facecolor": PAPER,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
}


@contextmanager
def figure_look() -> Iterator[None]:
    """Draw and save within this look, whatever the user's matplotlib settings are; they are restored at the end."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def objective_name(objective: str) -> str:
    """The usual spelling of an objective: ``fula`` → FuLA."""
    return OBJECTIVE_NAMES.get(objective, objective)


def line_style(objective: str, objectives: Sequence[str]) -> dict[str, Any]:
    """Marker and line style of an objective; ones that are not of the method get styles by their place in the list."""
    others = [name for name in objectives if name not in _STYLES]
    own = _STYLES.get(objective) or _OTHER_STYLES[others.index(objective) % len(_OTHER_STYLES)]
    return {"marker": own[0], "linestyle": own[1]}

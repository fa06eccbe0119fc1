"""How figures look: names, colours, markers and the matplotlib settings that keep files the same from run to run.

Arms are told apart by colour (of Okabe & Ito 2008, safe for colour-blind readers) and by the filling of markers: full on
real images, open on IRIs, half where only one net sees the IRI; objectives by line style and marker shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

INK, MUTED, RULE, PAPER = "#23262b", "#6a6f78", "#e2e4e8", "#fffffe"
ARMS = ("real", "iri", "iri_front", "iri_end")
ARM_COLOURS = {"real": "#0072b2", "iri": "#d55e00", "iri_front": "#009e73", "iri_end": "#aa4499"}
ARM_NAMES = {
    "real": "real images",
    "iri": "IRIs",
    "iri_front": "IRIs to the front only",
    "iri_end": "IRIs to the end only",
}
ARM_HEADS = {"real": "real", "iri": "IRI", "iri_front": "front only", "iri_end": "end only"}
"""Names for the heads of tables."""
_FILLS = {"real": "full", "iri": "none", "iri_front": "left", "iri_end": "right"}
_EVALUATION_NAMES = {"apgd_ce_dlr": "attacked: APGD", "autoattack": "attacked: AutoAttack"}
OBJECTIVE_NAMES = {"hlm": "HLM", "slm": "SLM", "dm": "DM", "fula": "FuLA", "dm_exact": "DM exact"}
_STYLES = {"hlm": ("^", ":"), "slm": ("o", "-"), "dm": ("s", "-."), "fula": ("D", "--")}
_OTHER_MARKERS = ("v", "P", "X", "<", ">", "p", "*", "d")
_OTHER_LINES = ((0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))

CSS_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    **{colour: f"var(--{arm.replace('_', '-')})" for arm, colour in ARM_COLOURS.items()},
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


def evaluation_name(eval_set: str, radius: str = "none") -> str:
    """An evaluation set for readers: ``attacked: APGD, ε 8/255``."""
    return _EVALUATION_NAMES.get(eval_set, eval_set) + (f", ε\u00a0{radius}" if radius != "none" else "")


def arm_style(arm: str) -> dict[str, Any]:
    """Colour and filling of an arm's markers."""
    colour, fill = ARM_COLOURS.get(arm, MUTED), _FILLS.get(arm, "none")
    half = fill in ("left", "right")
    face = PAPER if fill == "none" else colour
    return {
        "color": colour,
        "fillstyle": fill if half else "full",
        "markerfacecolor": face,
        "markerfacecoloralt": PAPER,
        "markeredgecolor": colour,
    }


def objective_name(objective: str) -> str:
    """The usual spelling of an objective: ``fula`` → FuLA, ``0.5*fula@2+slm`` → 0.5·FuLA@2 + SLM."""
    if objective in OBJECTIVE_NAMES:
        return OBJECTIVE_NAMES[objective]
    spaced = re.sub(r"(?<!\de)\+", " + ", objective).replace("*", "·")  # not the plus of 1e+3
    return re.sub(r"[a-z_]+(?![a-z_])", lambda name: OBJECTIVE_NAMES.get(name[0], name[0]), spaced)


def line_style(objective: str, objectives: Sequence[str]) -> dict[str, Any]:
    """Marker and line style of an objective; further ones get theirs by their place in the list, 24 before any repeats."""
    others = [name for name in (*objectives, objective) if name not in _STYLES]
    place = 0 if objective in _STYLES else others.index(objective)
    other = _OTHER_MARKERS[place % len(_OTHER_MARKERS)], _OTHER_LINES[place % len(_OTHER_LINES)]
    marker, line = _STYLES.get(objective, other)
    return {"marker": marker, "linestyle": line}

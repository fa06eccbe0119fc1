"""Curves over relative depth, in one form for published values and for those of a study, so that the same checks fit both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raystitch.report.gaps import number
from raystitch.report.look import ARM_NAMES, objective_name
from raystitch.report.panels import Panel
from raystitch.report.published import CURVES, EVALUATION, SETTINGS, PublishedCurve
from raystitch.report.statistics import curve, residuals
from raystitch.report.tables import residual


@dataclass(frozen=True)
class Track:
    """One curve: values (percent) at stitch points of a front that has ``count`` points, in order.

    ``r`` is the median residual of the IRIs at each point; None on real images and where it is not known.
    """

    arm: str
    objective: str
    count: int
    points: tuple[int, ...]
    values: tuple[float, ...]
    r: tuple[float | None, ...]

    @property
    def depths(self) -> tuple[float, ...]:
        """Relative depth of each point: 0 at the first of the front, 1 at its last."""
        return tuple(relative_depth(point, self.count) for point in self.points)

    @property
    def name(self) -> str:
        """``FuLA on IRIs``."""
        return f"{objective_name(self.objective)} on {ARM_NAMES.get(self.arm, self.arm)}"

    def at(self, place: int) -> str:
        """``50.0 at point 9 (r 0.28)``: a value of the track, never without the residual of its IRIs."""
        r = self.r[place]
        beside = "" if r is None else f" (r {residual(r)})"
        return f"{self.values[place]:.1f} at point {self.points[place]}{beside}".replace("-", "−")

    @property
    def last(self) -> int | None:
        """Place of the front's last point, None while it is not measured."""
        return len(self.points) - 1 if self.points and self.points[-1] == self.count else None


Tracks = Mapping[tuple[str, str, str], Track]
"""By published setting, arm and objective."""


def relative_depth(point: int, count: int) -> float:
    """0 at the first of ``count`` points, 1 at the last (and at the only one)."""
    return (point - 1) / (count - 1) if count > 1 else 1.0


def published_track(curve: PublishedCurve, objective: str) -> Track:
    """A published curve as that of one of its objectives."""
    n = len(curve.values)
    return Track(curve.arm, objective, n, tuple(range(1, n + 1)), curve.values, (None,) * n)


def published_tracks(study: str) -> dict[tuple[str, str, str], Track]:
    """The published curves of a study, one per objective."""
    named = ((curve, objective) for curve in CURVES[study] for objective in curve.objectives)
    return {(curve.setting, curve.arm, objective): published_track(curve, objective) for curve, objective in named}


def panel_tracks(panel: Panel, setting: str, objectives: Sequence[str]) -> dict[tuple[str, str, str], Track]:
    """The mean curves of a panel that stands for a published setting."""
    r, found = residuals(panel)["median"], {}
    for arm in panel.arms:
        for objective in objectives:
            means = curve(panel, objective, arm)["mean"]
            at = tuple(int(point) for point in means.index)
            own_r = tuple(None if arm == "real" else number(r.get(point)) for point in at)
            if at:
                values = tuple(float(value) for value in means)
                found[setting, arm, objective] = Track(arm, objective, panel.depth, at, values, own_r)
    return found


def at_depths(track: Track, depths: Sequence[float]) -> list[float]:
    """Values of a track at other relative depths, by linear interpolation between its points."""
    return [float(value) for value in np.interp(depths, track.depths, track.values)]


def published_setting(panel: Panel, study: str) -> str | None:
    """The published setting that a panel stands for: by the end of its name and its evaluation set; None if none."""
    if panel.is_map:
        return None
    for name in SETTINGS[study]:
        evaluation = "apgd_ce_dlr" if name.endswith(" attacked") else EVALUATION[study]
        if ends_in(panel.setting, name) and panel.eval_set == evaluation:
            return name
    return None


def ends_in(setting: str, name: str) -> bool:
    """Whether a setting's name is another name, or ends in it as a word of its own."""
    return re.search(rf"(?:^|[^A-Za-z0-9]){re.escape(name)}$", setting) is not None


def family(panel: Panel, name: str) -> tuple[str, tuple[str, ...]]:
    """Settings that belong together: what stands before the published name, and what tells the panel from its like."""
    return panel.setting.removesuffix(name).rstrip(" -_.:,·"), panel.apart

"""The numbers behind figures and tables: means with their spread, IRI residuals, and real − IRI gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from raystitch.report.panels import NO_VALUE, RUN, Panel

_PAIR = ["front_point", "end_point"]


def curve(panel: Panel, objective: str, arm: str) -> pd.DataFrame:
    """Agreement per front point over fronts × seeds: columns ``mean``, ``low`` (min), ``high`` (max), ``runs``."""
    rows = panel.rows
    return _spread(rows[(rows["objective"] == objective) & (rows["arm"] == arm)])


def unstitched(panel: Panel) -> pd.DataFrame:
    """The same columns for the unstitched nets: point 0 is the end model alone, point n+1 the front alone."""
    return _spread(panel.ends)


def _spread(rows: pd.DataFrame) -> pd.DataFrame:
    groups = rows.groupby("front_point")["agreement"]
    return pd.DataFrame({"mean": groups.mean(), "low": groups.min(), "high": groups.max(), "runs": groups.size()})


def grid(panel: Panel, objective: str, arm: str) -> pd.DataFrame:
    """Mean agreement with end points as rows and front points as columns; NaN where nothing is done."""
    rows = panel.rows
    own = rows[(rows["objective"] == objective) & (rows["arm"] == arm)]
    every_end, every_front = (sorted(set(rows[column])) for column in ("end_point", "front_point"))
    means = own.groupby(["end_point", "front_point"])["agreement"].mean().unstack()
    return means.reindex(index=every_end, columns=every_front)


def residuals(panel: Panel) -> pd.DataFrame:
    """IRI residuals per front point that has IRI fits: columns ``median``, ``p90``, each the mean over IRI sets.

    A set is used by many fits and counts once. NaN where no residual was recorded.
    """
    iri = panel.rows[panel.rows["arm"] == "iri"]
    sets = iri.groupby(["front_point", "front"])[["iri_r_median", "iri_r_p90"]].mean()
    points = sets.groupby("front_point").mean()
    return points.rename(columns={"iri_r_median": "median", "iri_r_p90": "p90"})


@dataclass(frozen=True)
class Gap:
    """Mean agreement of both arms for one objective at one pair of points, and their difference in points of percent.

    Where both arms have runs of the same (front, end, seed), all values are over these ``pairs``, so that the gap is
    not one between different nets; ``low`` and ``high`` are the smallest and largest gap of a pair. Otherwise each
    arm stands for itself and there is no gap. ``None`` = nothing to show.
    """

    real: float | None
    iri: float | None
    gap: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0


@dataclass(frozen=True)
class GapRow:
    """The gaps of one pair of stitch points, one per objective in the order asked for, and the residual of its IRIs."""

    front_point: int
    end_point: int
    module: str
    gaps: tuple[Gap, ...]
    r_median: float | None
    r_p90: float | None


def gap_rows(panel: Panel, objectives: Sequence[str]) -> list[GapRow]:
    """One row per pair of stitch points, in order."""
    r = residuals(panel)
    rows = []
    for _, own in panel.rows.groupby(_PAIR):
        front_point, end_point = (int(own[column].iloc[0]) for column in _PAIR)
        has_iri = bool((own["arm"] == "iri").any())
        known = r.loc[front_point] if has_iri else {"median": None, "p90": None}
        module = next((name for name in own["front_module"] if name != NO_VALUE), "")
        gaps = tuple(_gap(own[own["objective"] == objective]) for objective in objectives)
        rows.append(GapRow(front_point, end_point, module, gaps, _number(known["median"]), _number(known["p90"])))
    return rows


def _gap(rows: pd.DataFrame) -> Gap:
    real, iri = (rows[rows["arm"] == arm].groupby(list(RUN))["agreement"].mean() for arm in ("real", "iri"))
    both = real.index.intersection(iri.index)
    if both.empty:
        return Gap(_number(real.mean()), _number(iri.mean()))
    real, iri = real.loc[both], iri.loc[both]
    differences = real - iri
    low, high = float(differences.min()), float(differences.max())
    return Gap(float(real.mean()), float(iri.mean()), float(differences.mean()), low, high, len(both))


def _number(value: object) -> float | None:
    number = float("nan") if value is None else float(str(value))
    return None if number != number else number

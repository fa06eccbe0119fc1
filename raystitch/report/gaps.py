"""Real − IRI gaps: means over runs that all arms have, and the bootstrap interval of the gap over these runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from raystitch.analysis import over_runs
from raystitch.report.frame import NO_VALUE
from raystitch.report.panels import Panel
from raystitch.report.statistics import residuals

_RUN = ["front", "end", "seed"]
_POINTS = ["front_point", "end_point"]
_CELL = ["objective", *_POINTS]


@dataclass(frozen=True)
class Interval:
    """A mean over runs and its 95 % bootstrap interval over pairs and seeds; None for one run."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Gap:
    """Mean agreement by arm for one objective at one pair of points, and real minus each IRI arm in points of percent.

    Where all arms that have runs share some of the same (front, end, seed), all values are over these ``pairs``, so that
    no gap is one between different nets. Otherwise each arm stands for itself and there is no gap.
    """

    means: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, Interval] = field(default_factory=dict)
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
    cells, r = _cells(panel), residuals(panel)
    rows = []
    for _, own in panel.rows.groupby(_POINTS):
        front_point, end_point = (int(own[column].iloc[0]) for column in _POINTS)
        has_iri = bool((own["arm"] != "real").any())
        known = r.loc[front_point] if has_iri else {"median": None, "p90": None}
        module = next((name for name in own["front_module"] if name != NO_VALUE), "")
        gaps = tuple(cells.get((name, front_point, end_point), Gap()) for name in objectives)
        rows.append(GapRow(front_point, end_point, module, gaps, number(known["median"]), number(known["p90"])))
    return rows


def _cells(panel: Panel) -> dict[tuple[str, int, int], Gap]:
    """The gap of every objective and pair of points, all intervals found in one go."""
    runs = panel.rows.groupby([*_CELL, *_RUN, "arm"])["agreement"].mean().unstack("arm")
    shared = _shared_runs(runs)
    means = shared.groupby(_CELL).mean().combine_first(runs.groupby(_CELL).mean())
    pairs, intervals = shared.groupby(_CELL).size().reindex(means.index, fill_value=0), _intervals(shared)
    cells = {}
    for row, count in zip(means.reset_index().to_dict("records"), pairs, strict=True):
        cell = str(row["objective"]), int(row["front_point"]), int(row["end_point"])
        own = {arm: float(row[arm]) for arm in map(str, means) if not pd.isna(row[arm])}
        gaps = {arm: intervals[(*cell, arm)] for arm in own if (*cell, arm) in intervals}
        cells[cell] = Gap(own, gaps, int(count))
    return cells


def _shared_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs (front, end, seed) that every arm with any run of a cell has; none where there is one arm only."""
    has = runs.notna()
    used = has.groupby(_CELL).transform("any")
    return runs[(has | ~used).all(axis=1) & (used.sum(axis=1) > 1)]


def _intervals(shared: pd.DataFrame) -> dict[tuple[str, int, int, str], Interval]:
    """The gap between real images and every other arm, by cell and arm."""
    if "real" not in shared:
        return {}
    gaps = -shared.drop(columns="real").sub(shared["real"], axis=0)
    runs = gaps.reset_index().melt([*_CELL, *_RUN], var_name="arm", value_name="gap").dropna(subset=["gap"])
    found = over_runs(runs, "gap", [*_CELL, "arm"])[[*_CELL, "arm", "mean", "low", "high"]]
    return {
        (objective, int(i), int(j), arm): Interval(float(mean), number(low), number(high))
        for objective, i, j, arm, mean, low, high in found.itertuples(index=False)
    }


def number(value: object) -> float | None:
    """A float; None for what is missing or not a number."""
    known = float("nan") if value is None else float(str(value))
    return None if known != known else known

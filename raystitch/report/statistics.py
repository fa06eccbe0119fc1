"""The numbers behind figures and tables: means with their spread, maps, IRI residuals."""

from __future__ import annotations

import pandas as pd

from raystitch.report.panels import Panel


def curve(panel: Panel, objective: str, arm: str) -> pd.DataFrame:
    """Agreement per front point over fronts × seeds: columns ``mean``, ``low`` (min), ``high`` (max), ``runs``."""
    rows = panel.rows
    return spread(rows[(rows["objective"] == objective) & (rows["arm"] == arm)])


def unstitched(panel: Panel) -> pd.DataFrame:
    """The same columns for the unstitched nets: point 0 is the end model alone, point n+1 the front alone."""
    return spread(panel.ends)


def spread(rows: pd.DataFrame, value: str = "agreement") -> pd.DataFrame:
    """``mean``, ``low`` (min), ``high`` (max) and number of ``runs`` of a column per front point."""
    groups = rows.dropna(subset=[value]).groupby("front_point")[value]
    return pd.DataFrame({"mean": groups.mean(), "low": groups.min(), "high": groups.max(), "runs": groups.size()})


def grid(panel: Panel, objective: str, arm: str) -> pd.DataFrame:
    """Mean agreement with end points as rows and front points as columns; NaN where nothing is done."""
    rows = panel.rows
    means = grid_of(rows[(rows["objective"] == objective) & (rows["arm"] == arm)], "agreement")
    every_end, every_front = (sorted(set(rows[column])) for column in ("end_point", "front_point"))
    return means.reindex(index=every_end, columns=every_front)


def grid_of(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Means of a column with end points as rows and front points as columns."""
    return rows.groupby(["end_point", "front_point"])[value].mean().unstack()


def residuals(panel: Panel) -> pd.DataFrame:
    """IRI residuals per front point that has IRI fits; see :func:`residuals_of`."""
    return residuals_of(panel.rows[panel.rows["arm"] != "real"])


def residuals_of(iri: pd.DataFrame) -> pd.DataFrame:
    """Residuals of rows on IRIs per front point: columns ``median``, ``p90``, each the mean over IRI sets.

    A set is used by many rows and counts once. NaN where no residual was recorded.
    """
    sets = iri.groupby(["front_point", "front"])[["iri_r_median", "iri_r_p90"]].mean()
    points = sets.groupby("front_point").mean()
    return points.rename(columns={"iri_r_median": "median", "iri_r_p90": "p90"})

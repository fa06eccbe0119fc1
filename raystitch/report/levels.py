"""How scores depend on the residual of the IRIs (METHOD §2): agreement at every residual level, and its trend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from raystitch.analysis import by_residual
from raystitch.report.facts import IriFacts
from raystitch.report.frame import in_order
from raystitch.report.gaps import number
from raystitch.report.look import ARM_NAMES, ARMS, objective_name
from raystitch.report.panels import Panel
from raystitch.report.tables import percent, points, residual, signed

_POINTS = ["front_point", "end_point"]


@dataclass(frozen=True)
class Place:
    """Where scores are looked at: one arm at one pair of stitch points."""

    arm: str
    front_point: int
    end_point: int


def reached(panel: Panel, sets: Sequence[IriFacts]) -> tuple[Panel, str]:
    """The panel without the levels that no image of their IRI sets reached, and these in words: ``0.15 at point 10``.

    The images of such a level are those of the best, so its scores are no scores at another residual. A level of which no set
    tells how many images reached it is kept.
    """
    counts: dict[tuple[str, str, int, float], int] = {}
    for each in sets:
        for level in each.levels:
            place = (each.front, each.dataset, each.point, level.level)
            counts[place] = counts.get(place, 0) + level.reached
    named = panel.levels[["front", "dataset", "front_point", "iri_level"]].itertuples(index=False, name=None)
    left_out = pd.Series([counts.get(place, 1) == 0 for place in named], index=panel.levels.index, dtype=bool)
    found = panel.levels[left_out].groupby("front_point")["iri_level"].unique()
    words = [f"{', '.join(f'{r:g}' for r in sorted(levels))} at point {point}" for point, levels in found.items()]
    return replace(panel, levels=panel.levels[~left_out]), "; ".join(words)


def places(panel: Panel) -> list[Place]:
    """All that have levels, by arm and point; of a map, the pairs of equal points."""
    found = panel.levels[["arm", *_POINTS]].drop_duplicates()
    if panel.is_map:
        found = found[found["front_point"] == found["end_point"]]
    arms = in_order(found["arm"], ARMS)
    each = [Place(arm, int(i), int(j)) for arm, i, j in found.itertuples(index=False)]
    return sorted(each, key=lambda place: (arms.index(place.arm), place.front_point, place.end_point))


def against_residual(panel: Panel, place: Place, objective: str) -> pd.DataFrame:
    """Agreement over the residual levels of a place, from the largest r to the smallest.

    Returns:
        One row per level: ``level`` (NaN: as good as the run got), ``r`` (mean over IRI sets of their median, as stored),
        ``mean``, ``low`` (min) and ``high`` (max) of agreement over runs. Levels without a residual above 0 are left out.
    """
    rows = _at(panel.levels, place)
    rows = rows[(rows["objective"] == objective) & (rows["iri_r_median"] > 0)]
    level = rows["iri_level"].fillna(-1.0).rename("level")
    scores = rows.groupby(level)["agreement"].agg(mean="mean", low="min", high="max")
    table: pd.DataFrame = scores.assign(r=_mean_over_sets(rows, level)).reset_index()
    table["level"] = table["level"].where(table["level"] >= 0)
    return table.sort_values("r", ascending=False, kind="stable", ignore_index=True)


def _mean_over_sets(rows: pd.DataFrame, level: pd.Series) -> pd.Series:
    """A set is used by many fits and counts once."""
    return rows.groupby([level, "front"])["iri_r_median"].mean().groupby("level").mean()


def real_value(panel: Panel, place: Place, objective: str) -> float | None:
    """Mean agreement on real images at the same points, for comparison."""
    real = panel.rows[(panel.rows["arm"] == "real") & (panel.rows["objective"] == objective)]
    return number(_at(real.assign(arm=place.arm), place)["agreement"].mean())


def _at(rows: pd.DataFrame, place: Place) -> pd.DataFrame:
    here = (rows["front_point"] == place.front_point) & (rows["end_point"] == place.end_point)
    return rows[here & (rows["arm"] == place.arm)]


def trend_table(panel: Panel, objectives: Sequence[str]) -> list[dict[str, Any]]:
    """One line per arm and pair of points: what :func:`raystitch.analysis.by_residual` says of each objective, over runs."""
    trends = by_residual(panel.levels)
    lines = []
    for arm in panel.iri_arms:
        own = trends[trends["arm"] == arm]
        for _, here in own.groupby(_POINTS):
            i, j = (int(here[column].iloc[0]) for column in _POINTS)
            cells = [_trend_cell(here[here["objective"] == objective]) for objective in objectives]
            small, large = (_range(here, pick) for pick in ("min", "max"))
            name = ARM_NAMES.get(arm, arm) if len(panel.iri_arms) > 1 else ""
            lines.append({"arm": name, "point": points(i, j), "cells": cells, "small": small, "large": large})
    return lines


def _trend_cell(rows: pd.DataFrame) -> dict[str, str]:
    means = rows[rows["smallest"]][["agreement", "change", "per_halving"]].mean()
    value, change, slope = (number(mean) for mean in means)
    return {"value": percent(value), "change": signed(change), "slope": signed(slope)}


def _range(rows: pd.DataFrame, pick: str) -> str:
    """The smallest or largest median r of each IRI set, mean over sets."""
    return residual(number(rows.groupby("front")["iri_r_median"].agg(pick).mean()))


def heads(objectives: Sequence[str]) -> list[str]:
    """Names for the head of the table."""
    return [objective_name(name) for name in objectives]

"""Representation metrics beside agreement (METHOD §7, §9): which rows belong together, and their one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from raystitch.report.frame import SIMILARITIES, in_order
from raystitch.report.gaps import number
from raystitch.report.look import ARM_HEADS, objective_name
from raystitch.report.panels import EVAL_SETS, Panel, slug_of, unique
from raystitch.report.tables import NOTHING, percent, points, residual

NAMES = {
    "cka": "CKA, real images",
    "cka_iri": "CKA, IRIs",
    "stir": "STIR",
    "stir_front": "STIR of the front with itself",
}
_KEY = ["setting", "front_model", "end_model", "dataset"]
_POINTS = ["front_point", "end_point"]


@dataclass(frozen=True, eq=False)
class Similarity:
    """Representation metrics of one pair of models in one setting, and the panel with its agreement, once there is one."""

    label: str
    slug: str
    rows: pd.DataFrame
    panel: Panel | None

    @property
    def metrics(self) -> list[str]:
        """Those of the metrics that are measured: all, or CKA on real images alone."""
        return [name for name in SIMILARITIES if self.rows[name].notna().any()]

    @property
    def is_map(self) -> bool:
        """Whether some front point is compared with several end points."""
        return bool(self.rows.groupby("front_point")["end_point"].nunique().max() > 1)


def find_similarities(rows: pd.DataFrame, panels: Sequence[Panel], settings: Sequence[str]) -> list[Similarity]:
    """One per setting (in the given order), pair of models and dataset."""
    found, used = [], set[str]()
    for setting in in_order(rows["setting"], settings):
        own = rows[rows["setting"] == setting]
        groups = [([str(name) for name in names], part) for names, part in own.groupby(_KEY)]
        for key, part in groups:
            apart = [f"{key[1]} → {key[2]}", key[3]] if len(groups) > 1 else []
            slug = unique(".".join(map(slug_of, [setting, *apart])), used)
            found.append(Similarity(" · ".join([setting, *apart]), slug, part, _panel_of(key, panels)))
    return found


def _panel_of(key: list[str], panels: Sequence[Panel]) -> Panel | None:
    own = [panel for panel in panels if [panel.key[name] for name in _KEY] == key]
    first = in_order((panel.eval_set for panel in own), EVAL_SETS)
    return next((panel for panel in own if panel.eval_set == first[0]), None)


def metric_curve(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """``mean``, ``low`` (min) and ``high`` (max) of a metric over pairs, per front point."""
    groups = rows.dropna(subset=[metric]).groupby("front_point")[metric]
    return pd.DataFrame({"mean": groups.mean(), "low": groups.min(), "high": groups.max()})


def similarity_table(each: Similarity, objectives: Sequence[str]) -> dict[str, Any]:
    """One line per pair of points: the metrics, r of their IRIs, and agreement of every arm and objective there."""
    agreement = _agreement(each.panel)
    columns = _columns(each.panel, objectives)
    means = each.rows.groupby(_POINTS)[[*SIMILARITIES, "iri_r_median"]].mean()
    lines = []
    for own in means.reset_index().to_dict("records"):
        i, j = int(own["front_point"]), int(own["end_point"])
        lines.append(
            {
                "point": points(i, j),
                "metrics": [share(number(own[name])) for name in each.metrics],
                "r": residual(number(own["iri_r_median"])),
                "agreement": [percent(agreement.get((i, j, *column))) for column in columns],
            }
        )
    return {
        "metrics": [NAMES[name] for name in each.metrics],
        "columns": [(objective_name(objective), arm, ARM_HEADS.get(arm, arm)) for objective, arm in columns],
        "has_iris": any(name != "cka" for name in each.metrics),
        "lines": lines,
    }


def _agreement(panel: Panel | None) -> dict[tuple[int, int, str, str], float]:
    """Mean agreement by front point, end point, objective and arm."""
    if panel is None:
        return {}
    means = panel.rows.groupby([*_POINTS, "objective", "arm"])["agreement"].mean().reset_index()
    return {(int(i), int(j), name, arm): float(mean) for i, j, name, arm, mean in means.itertuples(index=False)}


def _columns(panel: Panel | None, objectives: Sequence[str]) -> list[tuple[str, str]]:
    """The objectives and arms that have fits, in order."""
    if panel is None:
        return []
    found = set(panel.rows[["objective", "arm"]].itertuples(index=False, name=None))
    every = [(name, arm) for name in in_order(panel.rows["objective"], objectives) for arm in panel.arms]
    return [column for column in every if column in found]


def share(value: float | None) -> str:
    """A number around 0 … 1 with two digits."""
    return NOTHING if value is None else f"{value:.2f}".replace("-", "−")

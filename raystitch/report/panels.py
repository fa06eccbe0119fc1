"""From the results table to panels: the rows that may be averaged into one set of curves.

Runs are averaged only over seeds of the same front and end model. Different models, datasets, protocols or evaluation
sets of one setting become panels of their own, named by what tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

TEXT = ("unit", "setting", "dataset", "front", "end", "front_module", "end_module", "objective", "arm", "protocol")
NUMBERS = ("front_point", "end_point", "seed", "n_eval", "agreement", "iri_r_median", "iri_r_p90")
KEY = ("setting", "front_model", "end_model", "dataset", "protocol", "eval_set")
RUN = ("front", "end", "seed")
EVAL_SETS = ("test", "shuffled", "clean", "excess")
ARMS = ("real", "iri")
NO_VALUE = "none"


@dataclass(frozen=True, eq=False)
class Panel:
    """One set of curves. ``rows`` are its stitched runs, ``ends`` the unstitched end (point 0) and front (n+1)."""

    setting: str
    label: str
    slug: str
    eval_set: str
    rows: pd.DataFrame
    ends: pd.DataFrame

    @property
    def arms(self) -> list[str]:
        """The arms that have runs, ``real`` first."""
        return in_order(self.rows["arm"], ARMS)

    @property
    def is_map(self) -> bool:
        """Whether some front point is stitched to several end points, so that a curve cannot show the panel."""
        return bool(self.rows.groupby("front_point")["end_point"].nunique().max() > 1)


def tidy(results: pd.DataFrame) -> pd.DataFrame:
    """The columns a report uses, with fixed types: text (missing → ``"none"``), integer points, float values.

    Rows without an agreement or a front point are left out; columns that are missing count as empty. The rows are
    sorted, so that a report does not depend on the order in which they were written.
    """
    frame = results.reindex(columns=[*TEXT, "eval_set", *NUMBERS])
    for column in (*TEXT, "eval_set"):
        frame[column] = [NO_VALUE if pd.isna(value) else _printable(str(value)) for value in frame[column]]
    for column in NUMBERS:
        frame[column] = pd.to_numeric(frame[column], errors="coerce").astype("float64")
    frame = frame.dropna(subset=["agreement", "front_point"]).sort_values(
        [*TEXT, "eval_set", *NUMBERS], ignore_index=True
    )
    frame["end_point"] = frame["end_point"].fillna(frame["front_point"]).astype(int)
    frame["front_point"] = frame["front_point"].astype(int)
    frame["seed"] = frame["seed"].fillna(-1).astype(int)
    for side in ("front", "end"):
        frame[f"{side}_model"] = [name.partition("/")[0] for name in frame[side]]
    return frame


def _printable(text: str) -> str:
    """Control characters have no place in SVG."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def in_order(found: Iterable[str], order: Sequence[str]) -> list[str]:
    """The distinct found names: first those of ``order``, in that order, then the others alphabetically."""
    names = set(found)
    return [name for name in dict.fromkeys(order) if name in names] + sorted(names - set(order))


def with_excess(frame: pd.DataFrame) -> pd.DataFrame:
    """Add rows ``eval_set`` = ``excess``: agreement on marked minus on shuffled-marker test images (METHOD §8)."""
    same = ["setting", "dataset", "front", "end", "front_point", "end_point", "objective", "arm", "protocol", "seed"]
    marked, shuffled = (frame[frame["eval_set"] == name] for name in ("test", "shuffled"))
    other = shuffled[[*same, "agreement"]].drop_duplicates(same)
    excess = marked.merge(other, on=same, suffixes=("", "_shuffled"))
    excess["agreement"] -= excess.pop("agreement_shuffled")
    excess["eval_set"] = "excess"
    return pd.concat([frame, excess], ignore_index=True) if len(excess) else frame


def make_panels(frame: pd.DataFrame, settings: Sequence[str]) -> list[Panel]:
    """Split a tidy frame into panels: by setting (in the given order), then by whatever must not be averaged."""
    stitched = frame[frame["objective"] != NO_VALUE]
    unstitched = frame[frame["objective"] == NO_VALUE]
    used = {"overview"}
    panels = []
    for setting in in_order(stitched["setting"], settings):
        own = stitched[stitched["setting"] == setting]
        keys = own[list(KEY)].drop_duplicates().to_dict("records")
        eval_sets = in_order(own["eval_set"], EVAL_SETS)
        for key in sorted(keys, key=lambda k: (eval_sets.index(k["eval_set"]), *map(str, k.values()))):
            parts = _told_apart_by({str(k): str(v) for k, v in key.items()}, own)
            short = [part for part in parts if part != eval_sets[0]]
            slug = _unique(".".join(map(_slug, [setting, *short])), used)
            rows = _select(own, key, wildcard=False)
            label = " · ".join([setting, *parts])
            panels.append(Panel(setting, label, slug, str(key["eval_set"]), rows, _select(unstitched, key, True)))
    return panels


def _told_apart_by(key: dict[str, str], own: pd.DataFrame) -> list[str]:
    """The parts of a panel's key that differ within its setting."""
    varies = {column for column in KEY if own[column].nunique() > 1}
    parts = [f"{key['front_model']} → {key['end_model']}"] if varies & {"front_model", "end_model"} else []
    return parts + [key[column] for column in ("dataset", "protocol", "eval_set") if column in varies]


def _select(frame: pd.DataFrame, key: dict[Any, Any], wildcard: bool) -> pd.DataFrame:
    """The rows of a key; unstitched rows may leave parts of it open (``none`` matches everything)."""
    keep = pd.Series(True, index=frame.index)
    for column, value in key.items():
        keep &= (frame[column] == value) | (wildcard & (frame[column] == NO_VALUE))
    return frame[keep]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "setting"


def _unique(slug: str, used: set[str]) -> str:
    """Names differ even where letter case is ignored, since they become file names."""
    name, count = slug, 1
    while name.lower() in used:
        count += 1
        name = f"{slug}-{count}"
    used.add(name.lower())
    return name

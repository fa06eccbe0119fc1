"""From tidy rows to panels: the rows that may be averaged into one set of curves.

Runs are averaged only over seeds of the same front and end model. Different models, datasets, protocols, stitches, training
inputs or evaluation sets of one setting become panels of their own, named by what tells them apart. Of the residual levels
of a pair's IRIs, curves show the best one alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from raystitch.report.frame import NO_VALUE, in_order, smallest_residual
from raystitch.report.look import ARMS, evaluation_name

KEY = (
    "setting", "front_model", "end_model", "dataset", "test_dataset", "protocol", "stitch", "inputs", "eval_set", "radius",
)  # fmt: skip
EVAL_SETS = ("test", "shuffled", "clean", "excess", "apgd_ce_dlr", "autoattack")
ATTACKED = ("apgd_ce_dlr", "autoattack")
LONGEST_SLUG = 150
"""Characters; names of all that may tell panels apart would make more than a file's name can have."""
_WORDED = {
    "dataset": "{}",
    "test_dataset": "tested on {}",
    "protocol": "{}",
    "stitch": "stitch {}",
    "inputs": "trained on {} images",
}
"""How the part of a key is said in a label."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One set of curves.

    Attributes:
        apart: what tells the panel from others of its setting and evaluation set, for readers; empty if there are none.
        key: the values of :data:`KEY`.
        rows: its stitched runs, those on IRIs at the smallest residual of their pair.
        levels: all its runs on IRIs, at every residual level.
        ends: the unstitched end (point 0) and front (n+1).
    """

    setting: str
    label: str
    slug: str
    apart: tuple[str, ...]
    key: dict[str, str]
    rows: pd.DataFrame
    levels: pd.DataFrame
    ends: pd.DataFrame

    @property
    def eval_set(self) -> str:
        """The evaluation set, or ``excess``."""
        return self.key["eval_set"]

    @property
    def attacked(self) -> bool:
        """Whether the evaluation images are adversarial."""
        return self.eval_set in ATTACKED

    @property
    def arms(self) -> list[str]:
        """The arms that have runs, ``real`` first."""
        return in_order(self.rows["arm"], ARMS)

    @property
    def iri_arms(self) -> list[str]:
        """Those of them that were trained on IRIs: all but ``real``."""
        return [arm for arm in self.arms if arm != "real"]

    @property
    def has_levels(self) -> bool:
        """Whether its IRIs come at more than one residual level of which r is known."""
        known = self.levels[self.levels["iri_r_median"] > 0]
        return bool(known["iri_level"].nunique(dropna=False) > 1)

    @property
    def is_map(self) -> bool:
        """Whether some front point is stitched to several end points, so that a curve cannot show the panel."""
        return bool(self.rows.groupby("front_point")["end_point"].nunique().max() > 1)

    @property
    def depth(self) -> int:
        """Number of stitch points of the front; where that is not known yet, its last point that is stitched."""
        alone = self.ends[self.ends["front_point"] > 0]["front_point"]
        return int(alone.max()) - 1 if len(alone) else int(self.rows["front_point"].max())


def make_panels(frame: pd.DataFrame, settings: Sequence[str]) -> list[Panel]:
    """Split a tidy frame into panels: by setting (in the given order), then by whatever must not be averaged."""
    stitched = frame[frame["objective"] != NO_VALUE]
    unstitched = frame[frame["objective"] == NO_VALUE]
    used = {"overview", "published"}
    panels = []
    for setting in in_order(stitched["setting"], settings):
        own = stitched[stitched["setting"] == setting]
        keys = [{str(k): str(v) for k, v in key.items()} for key in own[list(KEY)].drop_duplicates().to_dict("records")]
        eval_sets = in_order(own["eval_set"], EVAL_SETS)
        for key in sorted(keys, key=lambda k: (eval_sets.index(k["eval_set"]), *k.values())):
            ends = _select(unstitched, key, wildcard=True)
            panels.append(_panel(_select(own, key, wildcard=False), ends, key, own, eval_sets[0], used))
    return panels


def _panel(
    rows: pd.DataFrame, ends: pd.DataFrame, key: dict[str, str], own: pd.DataFrame, first_set: str, used: set[str]
) -> Panel:
    varies = {column for column in KEY if own[column].nunique() > 1}
    pair = f"{key['front_model']} → {key['end_model']}"
    parts = [(pair, pair)] if varies & {"front_model", "end_model"} else []
    parts += [(word.format(key[column]), key[column]) for column, word in _WORDED.items() if column in varies]
    apart = tuple(label for label, _ in parts)
    evaluation = evaluation_name(key["eval_set"], key["radius"])
    named = [evaluation] if "eval_set" in varies or key["eval_set"] in ATTACKED else []
    file_parts = [raw for _, raw in parts] + [key["eval_set"]] * (key["eval_set"] != first_set)
    file_parts += [key["radius"]] * (
        "radius" in varies and own[own["eval_set"] == key["eval_set"]]["radius"].nunique() > 1
    )
    slug = unique(".".join(map(slug_of, [key["setting"], *file_parts])), used)
    iri = rows[rows["arm"] != "real"]
    shown = pd.concat([rows[rows["arm"] == "real"], smallest_residual(iri)]).sort_index()
    return Panel(key["setting"], " · ".join([key["setting"], *apart, *named]), slug, apart, key, shown, iri, ends)


def _select(frame: pd.DataFrame, key: dict[str, Any], wildcard: bool) -> pd.DataFrame:
    """The rows of a key; unstitched rows may leave parts of it open (``none`` matches everything)."""
    keep = pd.Series(True, index=frame.index)
    for column, value in key.items():
        keep &= (frame[column] == value) | (wildcard & (frame[column] == NO_VALUE))
    return frame[keep]


def slug_of(text: str) -> str:
    """Text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "setting"


def unique(slug: str, used: set[str]) -> str:
    """Names differ even where letter case is ignored, and are not too long, since they become file names."""
    if len(slug) > LONGEST_SLUG:
        slug = f"{slug[: LONGEST_SLUG - 9]}-{hashlib.sha256(slug.encode()).hexdigest()[:8]}"
    name, count = slug, 1
    while name.lower() in used:
        count += 1
        name = f"{slug}-{count}"
    used.add(name.lower())
    return name

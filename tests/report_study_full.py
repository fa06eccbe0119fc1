"""The made-up study with all that a report can show: residual levels, single-sided arms, attacks, representation metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from report_study import CURVES, FRONTS, RESIDUALS, curves, ends, row

LEVELS = (0.4, 0.2, 0.1)


def _score(setting: str, arm: str, objective: str, point: int) -> float:
    """Single-sided arms lie between the two; where the made-up study has no curve, that of cross-seed serves."""
    known = {"real": 0.0, "iri": 1.0, "iri_front": 0.6, "iri_end": 0.25}[arm]
    name = setting if (setting, "real", objective) in CURVES else "cross-seed"
    real, iri = (CURVES[name, each, objective][point - 1] for each in ("real", "iri"))
    return (1 - known) * real + known * iri


def levels(
    setting: str = "cross-bias",
    arms: Sequence[str] = ("real", "iri"),
    fronts: Sequence[int] = (1, 2),
    points: Sequence[int] = range(1, 10),
    **other: Any,
) -> pd.DataFrame:
    """Fits on IRIs at several residual levels; a level is not reached where the best r of the point is larger."""
    rng, rows = np.random.default_rng(0), []
    model, alone = FRONTS.get(setting, ("clean", 95.0))
    for front in fronts:
        rows += ends(setting, f"{model}/{front}", 9, alone, inputs="none", stitch="none", **other)
        for point in points:
            best = RESIDUALS[point - 1] * (1 + 0.05 * front)
            for arm in arms:
                for level in (*LEVELS, None) if arm != "real" else (None,):
                    r = best if level is None else max(level * 0.98, best)
                    for objective in ("hlm", "slm", "fula", "dm"):
                        goal, real = (_score(setting, a, objective, point) for a in (arm, "real"))
                        share = 1 - 0.25 * np.log2(r / best) if arm != "real" else 1.0
                        value = float(np.clip(real + share * (goal - real) + rng.normal(0, 1), 5, 100))
                        known = {"iri_r_median": r, "iri_r_p90": 1.6 * r, "iri_level": level} if arm != "real" else {}
                        own = {"inputs": "clean", "stitch": "affine", **known, **other}
                        rows.append(row(setting, f"{model}/{front}", point, objective, arm, value, seed=front, **own))
    return pd.DataFrame(rows)


def attacked(setting: str = "at-to-at attacked") -> pd.DataFrame:
    """Stitches trained and evaluated on adversarial images."""
    frame = curves(["cross-seed"], (1, 2), (1,)).assign(
        setting=setting, eval_set="apgd_ce_dlr", eps=8 / 255, inputs="adversarial"
    )
    frame.loc[frame["objective"] == "none", ["inputs", "agreement"]] = ["none", 88.0]
    return frame


def shortcut(setting: str = "pixel+class") -> pd.DataFrame:
    """Marked and shuffled test images: hlm and slm follow the marker in the middle, and hlm on IRIs too."""
    frame = curves(["cross-seed"], (1, 2), (1,)).assign(setting=setting, eval_set="test")
    middle = np.exp(-(((frame["front_point"] - 5) / 2.2) ** 2))
    height = frame["objective"].map({"hlm": 88, "slm": 80, "fula": 15, "dm": 6, "none": 0})
    height = height.where((frame["arm"] != "iri") | (frame["objective"] == "hlm"), 0.03 * height)
    return pd.concat([frame, frame.assign(eval_set="shuffled", agreement=frame["agreement"] - height * middle)])


def similarities(setting: str = "cross-bias", fronts: Sequence[int] = (1, 2), cross: bool = False) -> pd.DataFrame:
    """Rows of representation metrics, at every level of the IRIs."""
    rows = []
    nothing = {"eval_set": "train", "inputs": "none", "stitch": "none", "seed": 0}
    for front in fronts:
        for point in range(1, 10):
            for end_point in range(1, 10) if cross else (point,):
                best = RESIDUALS[point - 1] * (1 + 0.05 * front)
                for level in (*LEVELS, None):
                    r = best if level is None else max(level, best)
                    far = 0.05 * abs(point - end_point)
                    values = {
                        "cka": 0.98 - 0.02 * point - far,
                        "cka_iri": 0.97 - 0.06 * point - far - 0.1 * (0.4 - r),
                        "stir": 0.9 - 0.09 * point - far,
                        "stir_front": 1 - 0.7 * r,
                    }
                    own = {"end_point": end_point, "iri_r_median": r, "iri_r_p90": 1.6 * r, "iri_level": level}
                    name = f"{FRONTS[setting][0]}/{front}"
                    rows.append(row(setting, name, point, "none", "none", np.nan, **{**nothing, **own, **values}))
    return pd.DataFrame(rows)


def everything() -> pd.DataFrame:
    """All of it in one results table."""
    return pd.concat(
        [
            levels("cross-bias", ("real", "iri")),
            levels("cross-seed", ("real", "iri", "iri_front", "iri_end")),
            attacked(),
            shortcut(),
            similarities(),
        ],
        ignore_index=True,
    )

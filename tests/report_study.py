"""A made-up study with the shapes of the published curves, for the tests of the report: no measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raystitch.report import GalleryEntry, IriFacts, StudyFacts

OBJECTIVES = ("hlm", "slm", "fula", "dm")
CURVES = {
    ("cross-seed", "real", "hlm"): [98.0, 97, 96.5, 96, 95.5, 95, 95, 95, 95],
    ("cross-seed", "real", "slm"): [98.5, 97.5, 97, 96.5, 96, 95, 95, 95, 95],
    ("cross-seed", "real", "fula"): [98.5, 97.5, 97, 96.5, 96, 95, 95, 95, 95],
    ("cross-seed", "real", "dm"): [98.4, 96.5, 95, 93, 94, 93, 94.5, 95, 95],
    ("cross-seed", "iri", "hlm"): [98.0, 94, 93, 94, 92.5, 93, 94, 94.5, 95],
    ("cross-seed", "iri", "slm"): [98.2, 93, 90, 86, 84, 80, 77, 70, 66],
    ("cross-seed", "iri", "fula"): [98.5, 94, 92.5, 88.5, 86, 78, 73, 60, 50],
    ("cross-seed", "iri", "dm"): [98.0, 92, 79, 66, 75, 56, 71, 58, 50],
    ("cross-bias", "real", "hlm"): [94.0, 92, 91, 92, 92, 92, 92, 92, 92],
    ("cross-bias", "real", "slm"): [95.0, 91, 88, 91.5, 92, 92, 92, 92, 92],
    ("cross-bias", "real", "fula"): [95.0, 87, 80, 74, 72, 74, 83, 90, 92],
    ("cross-bias", "real", "dm"): [95.0, 78, 67, 47.5, 40, 39, 73, 89, 92],
    ("cross-bias", "iri", "hlm"): [92.0, 66, 52, 40, 38, 36, 33, 30, 28],
    ("cross-bias", "iri", "slm"): [92.0, 55, 33, 20, 18, 15, 14, 13, 14],
    ("cross-bias", "iri", "fula"): [91.5, 50, 26, 12.5, 12, 12, 12, 12, 14],
    ("cross-bias", "iri", "dm"): [91.0, 16, 11.5, 11.5, 11.5, 11.5, 11.5, 12, 13],
}
RESIDUALS = [0.012, 0.03, 0.05, 0.085, 0.14, 0.19, 0.23, 0.26, 0.28]
FRONTS = {"cross-seed": ("clean", 95.0), "cross-bias": ("pixel", 92.0)}


def row(
    setting: str, front: str, point: int, objective: str, arm: str, agreement: float, **other: Any
) -> dict[str, Any]:
    """One row of a results table; ``other`` sets or adds columns."""
    fit: dict[str, Any] = {
        "unit": f"{setting}-{front}-{point}-{objective}-{arm}-{other.get('seed')}-{other.get('end_point')}",
        "sweep": "demo",
        "setting": setting,
        "dataset": "cifar10",
        "front": front,
        "end": "clean/0",
        "front_point": point,
        "end_point": point,
        "front_module": f"layer{(point + 2) // 2}.{point % 2}",
        "end_module": f"layer{(point + 2) // 2}.{point % 2}",
        "objective": objective,
        "arm": arm,
        "protocol": "matched",
        "seed": 1,
        "eval_set": "test",
        "n_eval": 10_000,
        "agreement": agreement,
        "iri_r_median": np.nan,
        "iri_r_p90": np.nan,
    }
    return {**fit, **other}


def ends(setting: str, front: str, points: int, agreement: float, **other: Any) -> list[dict[str, Any]]:
    """The unstitched end model (point 0) and front model (point ``points`` + 1)."""
    alone = {"front_module": None, "end_module": None, "protocol": None, "seed": None}
    return [
        row(setting, front, 0, "none", "none", 100.0, **alone, **other),
        row(setting, front, points + 1, "none", "none", agreement, **alone, **other),
    ]


def curves(
    settings: Iterable[str] = ("cross-seed", "cross-bias"),
    fronts: Sequence[int] = (1, 2, 3),
    seeds: Sequence[int] = (1, 2, 3),
) -> pd.DataFrame:
    """Two settings with both arms and four objectives at nine points, three fronts and three seeds."""
    rng, rows = np.random.default_rng(0), []
    for setting in settings:
        model, alone = FRONTS[setting]
        for front in fronts:
            rows += ends(setting, f"{model}/{front}", 9, alone + rng.normal(0, 0.3))
        for (name, arm, objective), means in CURVES.items():
            for point, mean in enumerate(means, start=1):
                for front in fronts if name == setting else ():
                    r = RESIDUALS[point - 1] * (1 + 0.05 * front)
                    known = {"iri_r_median": r, "iri_r_p90": 1.7 * r} if arm == "iri" else {}
                    noise = 0.3 if arm == "real" else 2.0
                    rows += [
                        row(
                            setting,
                            f"{model}/{front}",
                            point,
                            objective,
                            arm,
                            float(np.clip(mean + rng.normal(0, noise), 5, 100)),
                            seed=seed,
                            **known,
                        )
                        for seed in seeds
                    ]
    return pd.DataFrame(rows)


def cross_map(points: int = 9, arms: Sequence[str] = ("real", "iri")) -> pd.DataFrame:
    """Every front point with every end point, for two objectives."""
    rows = ends("maps", "clean/1", points, 94.8)
    for arm in arms:
        for objective in ("slm", "fula"):
            for i in range(1, points + 1):
                for j in range(1, points + 1):
                    value = (98 if arm == "real" else 92) - 7.0 * max(0, i - j) - 2.5 * max(0, j - i)
                    r = {"iri_r_median": 0.03 * i, "iri_r_p90": 0.05 * i} if arm == "iri" else {}
                    rows.append(row("maps", "clean/1", i, objective, arm, max(11.0, value), end_point=j, **r))
    return pd.DataFrame(rows)


def facts(**other: Any) -> StudyFacts:
    """The facts of the study above, with IRI sets, a gallery and a failure."""
    rng = np.random.default_rng(1)
    images = _pictures(rng)
    sets = [
        IriFacts(
            front=f"pixel/{front}",
            dataset="cifar10",
            point=point,
            module=f"layer{(point + 2) // 2}.{point % 2}",
            count=50_000,
            r_median=RESIDUALS[point - 1],
            r_p90=1.7 * RESIDUALS[point - 1],
            r_max=4 * RESIDUALS[point - 1],
            r_median_float=0.9 * RESIDUALS[point - 1],
            optimiser="adam",
            steps=400,
            r_p90_float=1.6 * RESIDUALS[point - 1],
            r_max_float=3.9 * RESIDUALS[point - 1],
            dtype="uint8",
        )
        for front in (1, 2)
        for point in range(1, 10)
    ]
    gallery = [
        GalleryEntry("pixel/1", "cifar10", point, images, _noisy(images, point, rng), np.full(8, RESIDUALS[point - 1]))
        for point in (1, 4, 7)
    ]
    study: dict[str, Any] = {
        "name": "demo",
        "title": "What do two networks share?",
        "created": "2026-01-31 12:00 UTC",
        "version": "0.1.0",
        "protocol": "matched: no augmentation on either arm, BatchNorm frozen.",
        "settings": ("cross-seed", "cross-bias"),
        "objectives": OBJECTIVES,
        "iri_sets": sets,
        "failures": [
            {
                "unit": "fit-0a1b2c",
                "kind": "fit",
                "error": "Traceback (most recent call last):\n  …\nMemoryError: 8 GiB",
            }
        ],
        "gallery": gallery,
        "fits_total": 1440,
    }
    return StudyFacts(**{**study, **other})


def _pictures(rng: np.random.Generator, count: int = 8, size: int = 32) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Coloured discs on gradients: something to see."""
    y, x = np.mgrid[:size, :size] / size
    images = []
    for _ in range(count):
        low, high, disc = rng.integers(0, 256, (3, 3))
        centre, radius = rng.uniform(0.3, 0.7, 2), rng.uniform(0.15, 0.3)
        image = low + (high - low) * y[..., None]
        image[np.hypot(y - centre[0], x - centre[1]) < radius] = disc
        images.append(image)
    return np.stack(images).round().astype(np.uint8)


def _noisy(images: np.ndarray[Any, Any], point: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
    noise, share = rng.integers(0, 256, images.shape), min(0.9, 0.15 + 0.1 * point)
    return ((1 - share) * images + share * noise).round().astype(np.uint8)

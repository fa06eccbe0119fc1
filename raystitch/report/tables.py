"""Table rows and other parts of the page as plain text, ready for the template, which escapes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raystitch.analysis import over_runs, raua
from raystitch.report.facts import GalleryEntry, IriFacts, IriLevel, StudyFacts
from raystitch.report.frame import NO_VALUE
from raystitch.report.gaps import Gap, GapRow, Interval
from raystitch.report.look import objective_name
from raystitch.report.panels import Panel
from raystitch.report.render import image_uri

NOTHING = "–"


def percent(value: float | None) -> str:
    """``93.04`` → ``93.0``; nothing → a dash."""
    return NOTHING if value is None else f"{value:.1f}".replace("-", "−")


def signed(value: float | None) -> str:
    """The same with its sign: ``+12.3``, ``−0.4``; a zero has none."""
    text = NOTHING if value is None else f"{value:+.1f}".replace("-", "−")
    return text[1:] if text[1:] == "0.0" else text


def residual(value: float | None) -> str:
    """Three digits after the point, two significant ones below 0.01: ``0.052``, ``0.0041``."""
    if value is None or math.isnan(value):
        return NOTHING
    return f"{value:.3f}" if value >= 0.01 or value == 0 else f"{value:.1e}" if value < 1e-4 else f"{value:.4f}"


def interval(found: Interval | None) -> str:
    """``+23.0 … +35.0``; nothing for one run."""
    return "" if found is None or found.low is None else f"{signed(found.low)} … {signed(found.high)}"


def gap_cells(gap: Gap, arms: Sequence[str], most_pairs: int) -> dict[str, Any]:
    """The cells of one objective: a value per arm, below that of a single-sided arm its own gap; and the gap of IRIs."""
    incomplete = f"{gap.pairs} of {most_pairs} pairs" if gap.pairs < most_pairs and gap.means else ""
    beside = {arm: f"gap {signed(own.mean)}" for arm, own in gap.gaps.items() if arm != "iri"}
    main = gap.gaps.get("iri")
    return {
        "values": [{"mean": percent(gap.means.get(arm)), "gap": beside.get(arm, "")} for arm in arms],
        "gap": signed(None if main is None else main.mean),
        "spread": interval(main),
        "incomplete": incomplete,
    }


def gap_table(rows: Sequence[GapRow], arms: Sequence[str]) -> dict[str, Any]:
    """Lines of the gap table and how many pairs (front, end, seed) its cells have."""
    most = max((gap.pairs for row in rows for gap in row.gaps), default=0)
    lines = [
        {
            "point": points(row.front_point, row.end_point),
            "module": row.module,
            "cells": [gap_cells(gap, arms, most) for gap in row.gaps],
            "r_median": residual(row.r_median),
            "r_p90": residual(row.r_p90),
        }
        for row in rows
    ]
    return {"lines": lines, "pairs": most}


def points(front_point: int, end_point: int) -> str:
    """``3``, or ``3 → 5`` where the end is cut elsewhere."""
    return f"{front_point}" if front_point == end_point else f"{front_point} → {end_point}"


def raua_table(panel: Panel, objectives: Sequence[str]) -> list[dict[str, Any]]:
    """One line per arm and objective: rAuA over its runs, of how many points, and the largest r of its IRIs.

    Empty for a map: a mean over all pairs of points would be another score.
    """
    if panel.is_map:
        return []
    curves = raua(panel.rows.drop(columns="iri_level"))  # which level is best may change from point to point
    most = int(curves["points"].max())
    lines = []
    for arm in panel.arms:
        for objective in objectives:
            own = curves[(curves["arm"] == arm) & (curves["objective"] == objective)]
            if len(own):
                lines.append(_raua_line(own, arm, objective, most))
    return lines


def _raua_line(own: pd.DataFrame, arm: str, objective: str, most: int) -> dict[str, Any]:
    found = over_runs(own, "raua", ["arm"]).iloc[0]
    mean, low, high = (percent(float(found[name])) for name in ("mean", "low", "high"))
    fewest = int(own["points"].min())
    return {
        "arm": arm,
        "objective": objective_name(objective),
        "mean": mean,
        "interval": "" if len(own) < 2 else f"{low} … {high}",
        "runs": str(len(own)),
        "points": str(most) if fewest == most else f"{fewest} of {most}",
        "r": residual(float(own["iri_r_largest"].max())),
    }


def iri_table(sets: Sequence[IriFacts]) -> list[dict[str, Any]]:
    """One line per IRI set, by front, dataset and point; residuals before rounding and as stored, and its levels in words."""
    return [
        {
            "front": facts.front,
            "dataset": facts.dataset,
            "point": str(facts.point),
            "module": facts.module,
            "count": f"{facts.count:,}",
            "optimiser": facts.optimiser,
            "steps": str(facts.steps),
            "dtype": facts.dtype or NOTHING,
            "levels": [_level_text(each) for each in facts.levels],
            "before": [residual(r) for r in (facts.r_median_float, facts.r_p90_float, facts.r_max_float)],
            "stored": [residual(r) for r in (facts.r_median, facts.r_p90, facts.r_max)],
        }
        for facts in sorted(sets, key=lambda s: (s.front, s.dataset, s.point, *_recipe_order(s)))
    ]


def _level_text(level: IriLevel) -> str:
    images = "1 image" if level.reached == 1 else f"{level.reached:,} images"
    return f"{level.level:g} reached by {images}, median r {residual(level.r_median)}"


@dataclass
class GalleryTable:
    """Images of one dataset in one row, and below them one row of IRIs per point of one front."""

    front: str
    dataset: str
    pixels: NDArray[Any]
    images: list[str]
    rows: list[dict[str, Any]]


def gallery_tables(entries: Sequence[GalleryEntry]) -> list[GalleryTable]:
    """Group entries that show IRIs of the same images and front, so that these images are shown once."""
    tables: list[GalleryTable] = []
    for (front, dataset, point), group in groupby(sorted(entries, key=_gallery_order), _gallery_place):
        alike = list(group)
        for entry, recipe in zip(alike, told_apart([entry.made for entry in alike]), strict=True):
            last = tables[-1] if tables else None
            fits = last is not None and (last.front, last.dataset) == (front, dataset)
            if last is None or not fits or not np.array_equal(last.pixels, entry.images):
                last = GalleryTable(front, dataset, entry.images, list(map(image_uri, entry.images)), [])
                tables.append(last)
            last.rows.append({"point": point, "recipe": recipe, "iris": _gallery_cells(entry)})
    return tables


def _gallery_cells(entry: GalleryEntry) -> list[dict[str, str]]:
    shown = zip(entry.iris, entry.residual, strict=True)
    return [{"uri": image_uri(pixels), "r": residual(float(r))} for pixels, r in shown]


def _gallery_place(entry: GalleryEntry) -> tuple[str, str, int]:
    return entry.front, entry.dataset, entry.point


def _gallery_order(entry: GalleryEntry) -> tuple[Any, ...]:
    made = entry.made
    return *_gallery_place(entry), *(("", 0, "", "") if made is None else _recipe_order(made))


def _recipe_order(facts: IriFacts) -> tuple[str, int, str, str]:
    return facts.optimiser, facts.steps, facts.dtype, facts.id


def told_apart(sets: Sequence[IriFacts | None]) -> list[str]:
    """For each set of one place how it was made, in as many words as tell them apart; nothing for a set alone.

    First optimiser and steps, then dtype and levels, in the end the id: sets may differ in what their index does not say.
    """
    if len(sets) < 2:
        return [""] * len(sets)
    recipes = [[] if facts is None else _recipe(facts) for facts in sets]
    texts: list[str] = []
    for size in range(1, 5):
        texts = [", ".join(part for part in recipe[:size] if part) for recipe in recipes]
        if len(set(texts)) == len(texts):
            break
    return texts


def _recipe(facts: IriFacts) -> list[str]:
    levels = ", ".join(f"{each.level:g}" for each in facts.levels)
    return [f"{facts.optimiser}, {facts.steps} steps", facts.dtype, f"levels {levels}" if levels else "", facts.id]


def failure_list(failures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each failure as short fields and long texts (several lines or over 160 characters), which are folded."""
    found = []
    for failure in failures:
        texts = {str(key): str(value) for key, value in failure.items() if value is not None}
        long = {key: text for key, text in texts.items() if len(text) > 160 or "\n" in text.strip()}
        folded = [{"key": key, "last": text.strip().splitlines()[-1][:160], "text": text} for key, text in long.items()]
        found.append({"short": {k: t for k, t in texts.items() if k not in long}, "long": folded})
    return found


def study_facts(frame: pd.DataFrame, panels: Sequence[Panel], study: StudyFacts) -> list[tuple[str, str]]:
    """What the study consists of, as far as it is done: name and value of each fact."""
    stitched = frame[(frame["objective"] != NO_VALUE) & (frame["eval_set"] != "excess")]
    fits = stitched["unit"].nunique()  # settings may share fits
    sizes = sorted({int(n) for n in stitched["n_eval"].dropna()})
    seeds = sorted({seed for seed in stitched["seed"] if seed >= 0})
    facts = [
        ("Stitch fits", f"{fits:,}" + (f" of {study.fits_total:,} planned" if study.fits_total else "")),
        ("Settings", str(stitched["setting"].nunique())),
        ("Fronts × ends", f"{stitched['front'].nunique()} × {stitched['end'].nunique()} base models"),
        ("Stitch seeds", ", ".join(map(str, seeds))),
        ("Test images per score", " or ".join(f"{n:,}" for n in sizes)),
        ("IRI sets", _iri_counts(study.iri_sets)),
        ("Failed units", str(len(study.failures)) if study.failures else ""),
    ]
    return [(name, value) for name, value in facts if value]


def _iri_counts(sets: Sequence[IriFacts]) -> str:
    return f"{len(sets):,} with {sum(s.count for s in sets):,} images" if sets else ""

"""Table rows and other parts of the page as plain text, ready for the template, which escapes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raystitch.report.facts import GalleryEntry, IriFacts, StudyFacts
from raystitch.report.panels import NO_VALUE, Panel
from raystitch.report.render import image_uri
from raystitch.report.statistics import Gap, GapRow

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


def gap_cells(gap: Gap, most_pairs: int) -> dict[str, Any]:
    """The three cells of one objective: real, iri, gap; with the range of the gap where several pairs have one."""
    spread = f"{signed(gap.low)} … {signed(gap.high)}" if gap.pairs > 1 else ""
    incomplete = f"{gap.pairs} of {most_pairs} pairs" if gap.pairs < most_pairs else ""
    return {
        "real": percent(gap.real),
        "iri": percent(gap.iri),
        "gap": signed(gap.gap),
        "spread": spread,
        "incomplete": incomplete if gap.real is not None or gap.iri is not None else "",
    }


def gap_table(rows: Sequence[GapRow]) -> dict[str, Any]:
    """Lines of the gap table and how many pairs (front, end, seed) its cells have."""
    most = max((gap.pairs for row in rows for gap in row.gaps), default=0)
    lines = [
        {
            "point": f"{row.front_point}"
            if row.front_point == row.end_point
            else f"{row.front_point} → {row.end_point}",
            "module": row.module,
            "cells": [gap_cells(gap, most) for gap in row.gaps],
            "r_median": residual(row.r_median),
            "r_p90": residual(row.r_p90),
        }
        for row in rows
    ]
    return {"lines": lines, "pairs": most}


def iri_table(sets: Sequence[IriFacts]) -> list[dict[str, Any]]:
    """One line per IRI set, by front, dataset and point; residuals before rounding and as stored."""
    return [
        {
            "front": facts.front,
            "dataset": facts.dataset,
            "point": str(facts.point),
            "module": facts.module,
            "count": f"{facts.count:,}",
            "optimiser": facts.optimiser,
            "steps": str(facts.steps),
            "before": [residual(r) for r in (facts.r_median_float, facts.r_p90_float, facts.r_max_float)],
            "stored": [residual(r) for r in (facts.r_median, facts.r_p90, facts.r_max)],
        }
        for facts in sorted(sets, key=lambda s: (s.front, s.dataset, s.point))
    ]


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
    for entry in sorted(entries, key=lambda e: (e.front, e.dataset, e.point)):
        last = tables[-1] if tables else None
        fits = last is not None and (last.front, last.dataset) == (entry.front, entry.dataset)
        if last is None or not fits or not np.array_equal(last.pixels, entry.images):
            last = GalleryTable(entry.front, entry.dataset, entry.images, list(map(image_uri, entry.images)), [])
            tables.append(last)
        iris = [
            {"uri": image_uri(pixels), "r": residual(float(r))}
            for pixels, r in zip(entry.iris, entry.residual, strict=True)
        ]
        last.rows.append({"point": entry.point, "iris": iris})
    return tables


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

"""A study's curves beside the published ones: tables, and the verdict on every statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raystitch.report.look import ARM_NAMES, objective_name
from raystitch.report.panels import Panel
from raystitch.report.published import CURVES, PublishedCurve
from raystitch.report.shapes import Finding
from raystitch.report.statements import STATEMENTS, published_finding
from raystitch.report.tables import percent, points, residual
from raystitch.report.tracks import (
    Track,
    Tracks,
    at_depths,
    family,
    panel_tracks,
    published_setting,
    published_track,
    relative_depth,
)

VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}


@dataclass(frozen=True)
class Match:
    """A panel, the published setting that it stands for, and its curves."""

    panel: Panel
    setting: str
    tracks: Tracks


@dataclass(frozen=True)
class Pair:
    """One published curve and the curves of the study that it is to be compared with, one per objective that is measured."""

    match: Match
    published: PublishedCurve
    ours: tuple[Track, ...]


def find_matches(panels: Sequence[Panel], study: str, objectives: Sequence[str]) -> list[Match]:
    """The panels that stand for settings of a published study, in the order of the panels."""
    found = []
    for panel in panels:
        name = published_setting(panel, study)
        if name is not None:
            found.append(Match(panel, name, panel_tracks(panel, name, objectives)))
    return found


def find_pairs(matches: Sequence[Match], study: str) -> list[Pair]:
    """Every published curve of which the study has at least one objective, panel by panel."""
    pairs = []
    for match in matches:
        for curve in CURVES[study]:
            keys = [(match.setting, curve.arm, objective) for objective in curve.objectives]
            ours = tuple(match.tracks[key] for key in keys if key in match.tracks)
            if curve.setting == match.setting and ours:
                pairs.append(Pair(match, curve, ours))
    return pairs


def pair_tables(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """One table per panel: its points as columns, and for each published curve our values, our r, and the published values."""
    tables = []
    for panel in dict.fromkeys(pair.match.panel for pair in pairs):
        own = [pair for pair in pairs if pair.match.panel is panel]
        shown = sorted({point for pair in own for track in pair.ours for point in track.points})
        ends = dict(zip(panel.rows["front_point"], panel.rows["end_point"], strict=True))
        depths = [relative_depth(point, panel.depth) for point in shown]
        tables.append(
            {
                "label": panel.label,
                "points": [points(point, int(ends[point])) for point in shown],
                "depths": [f"{depth:.2f}" for depth in depths],
                "lines": [line for pair in own for line in _pair_lines(pair, shown, depths)],
                "interpolated": any(len(pair.published.values) != panel.depth for pair in own),
            }
        )
    return tables


def _pair_lines(pair: Pair, shown: Sequence[int], depths: Sequence[float]) -> list[dict[str, Any]]:
    curve = pair.published
    lines = [_line("ours", f"{track.name}, here", _cells(track, shown)) for track in pair.ours]
    if curve.arm != "real":
        r = {point: value for track in pair.ours for point, value in zip(track.points, track.r, strict=True)}
        lines.append(_line("r", "median r, here", [residual(r.get(point)) for point in shown]))
    track = published_track(curve, curve.objectives[0])
    values = [percent(value) for value in at_depths(track, depths)]
    names = ", ".join(objective_name(name) for name in curve.objectives)
    lines.append(_line("published", f"{names} on {ARM_NAMES[curve.arm]}, published", values))
    return lines


def _line(kind: str, name: str, cells: Sequence[str]) -> dict[str, Any]:
    return {"kind": kind, "name": name, "cells": cells}


def _cells(track: Track, shown: Sequence[int]) -> list[str]:
    values = dict(zip(track.points, track.values, strict=True))
    return [percent(values.get(point)) for point in shown]


def statement_tables(matches: Sequence[Match], study: str) -> list[dict[str, Any]]:
    """One table per family of settings (names alike but for the published name): every statement, the paper's numbers, ours."""
    families: dict[tuple[str, tuple[str, ...]], dict[tuple[str, str, str], Track]] = {}
    for match in matches:
        families.setdefault(family(match.panel, match.setting), {}).update(match.tracks)
    tables = []
    for (prefix, apart), tracks in (families or {("", ()): {}}).items():
        lines = [
            {
                "setting": statement.setting,
                "text": statement.text,
                "published": published_finding(study, statement).numbers,
                **_verdict(statement.check(tracks)),
            }
            for statement in STATEMENTS[study]
        ]
        tables.append({"label": " · ".join([*([prefix] if prefix else []), *apart]), "lines": lines})
    return tables


def _verdict(finding: Finding) -> dict[str, str]:
    kind = {True: "holds", False: "fails", None: "open"}[finding.holds]
    return {"verdict": VERDICTS[finding.holds], "kind": kind, "ours": finding.numbers}


def paragraphs(text: str) -> list[str]:
    """Notes as paragraphs: blank lines part them, other line ends are blanks."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]

"""What the paper says of its three studies (METHOD §8), as statements that can be checked on any study's curves.

Where the paper's curves are known, what they say is computed by the same check; elsewhere its words are quoted. Bounds that the
paper states are its own; those that make its figures into statements (three quarters, half, the middle, 5 and 50 points) are
ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raystitch.report.look import ARM_NAMES, objective_name
from raystitch.report.published import CURVES, PublishedCurve
from raystitch.report.shapes import (
    FALL,
    Check,
    Finding,
    at_least,
    at_most,
    dips,
    falls,
    falls_to,
    gap_grows,
    middle_mean,
    middle_share,
    near_zero,
    ordered_at_end,
    ordered_peaks,
    ordered_settings,
    reaches,
    together,
)
from raystitch.report.tracks import published_tracks

BOTH = ("real", "iri")
ALL = ("hlm", "slm", "fula", "dm")


@dataclass(frozen=True)
class Statement:
    """A sentence about a setting, how it is checked, and the paper's words where its curves are not known."""

    setting: str
    text: str
    check: Check
    quoted: str = ""


def published_finding(study: str, statement: Statement) -> Finding:
    """What the paper's own curves say of a statement; all statements are made so that it holds."""
    return Finding(True, statement.quoted) if statement.quoted else statement.check(published_tracks(study))


def _fall(curve: PublishedCurve, objective: str) -> Statement:
    """Whether the curve falls is asked of the published one, so that the statement says what that one does."""
    fallen = min(curve.values) < FALL * curve.values[0]
    what = f"{objective_name(objective)} on {ARM_NAMES[curve.arm]}"
    text = f"{what} {'falls below' if fallen else 'never falls below'} {FALL:.0%} of its value at the first point"
    return Statement(curve.setting, text, falls(curve.setting, curve.arm, objective, fallen))


def _information() -> tuple[Statement, ...]:
    seed, supervision, bias = "cross-seed", "cross-supervision", "cross-bias"
    return (
        Statement(
            "identical",
            "SLM, FuLA and DM on IRIs are at least 99 at every point",
            at_least("identical", 99, ["iri"], ["slm", "fula", "dm"]),
        ),
        Statement(
            seed, "HLM on IRIs stays within 5 points of HLM on real images at every point", together(seed, 5, "hlm")
        ),
        Statement(
            seed,
            "HLM is above FuLA and DM on IRIs at the last point",
            ordered_at_end(seed, "iri", ["hlm", "fula", "dm"]),
        ),
        Statement(
            seed, "The real − IRI gap of FuLA is larger at the last point than at the first", gap_grows(seed, "fula")
        ),
        Statement(
            supervision,
            "The real − IRI gap of FuLA is larger at the last point than at the first",
            gap_grows(supervision, "fula"),
        ),
        Statement(
            bias,
            "DM on real images dips: its smallest value is below half of its first and of its last",
            dips(bias, "real", "dm"),
        ),
        Statement(
            bias,
            "FuLA and DM on IRIs are at most 20 from relative depth 0.5 on",
            at_most(bias, 20, ["iri"], ["fula", "dm"], (0.5, 1)),
        ),
        Statement(
            f"{seed}, {supervision}, {bias}",
            "FuLA on IRIs at relative depth 0.5: cross-seed above cross-supervision above cross-bias",
            ordered_settings([seed, supervision, bias], "iri", "fula", 0.5),
        ),
        *(_fall(curve, objective) for curve in CURVES["information"] for objective in curve.objectives),
    )


def _shortcuts() -> tuple[Statement, ...]:
    fixed, anywhere, noise = "pixel+class", "pixel+random", "rand+random"
    return (
        Statement(
            fixed, "HLM on real images reaches 50", reaches(fixed, 50, ["real"], ["hlm"]), "about 90, middle points"
        ),
        Statement(
            fixed, "SLM on real images reaches 50", reaches(fixed, 50, ["real"], ["slm"]), "about 82, middle points"
        ),
        Statement(
            fixed,
            "On real images the largest values are ordered HLM ≥ SLM ≥ FuLA",
            ordered_peaks(fixed, "real", ["hlm", "slm", "fula"]),
            "about 90, about 82, at most 25",
        ),
        Statement(
            fixed,
            "FuLA on real images is at most 25 at every point",
            at_most(fixed, 25, ["real"], ["fula"]),
            "at most 25",
        ),
        Statement(
            anywhere,
            "HLM or SLM on real images reaches 50",
            reaches(anywhere, 50, ["real"], ["hlm", "slm"]),
            "61, middle points",
        ),
        Statement(
            anywhere,
            "FuLA on real images is at most 7 at every point",
            at_most(anywhere, 7, ["real"], ["fula"]),
            "at most 7",
        ),
        *(each for setting in (fixed, anywhere) for each in _shortcuts_on_iris(setting)),
        Statement(
            noise,
            "The control is within 2 of 0 at every point, on both arms, for every objective",
            near_zero(noise, 2, BOTH, ALL),
            "0 everywhere",
        ),
    )


def _shortcuts_on_iris(setting: str) -> tuple[Statement, ...]:
    return (
        Statement(
            setting,
            "SLM on IRIs is at most 6 in the middle (mean over relative depths 0.25 to 0.75)",
            middle_mean(setting, -100, 6, "iri", "slm"),
            "at most 6",
        ),
        Statement(
            setting,
            "FuLA on IRIs is within 2 of 0 in the middle (the same mean)",
            middle_mean(setting, -2, 2, "iri", "fula"),
            "0",
        ),
        Statement(
            setting,
            "HLM on IRIs keeps at least half of its value on real images in the middle (the same means)",
            middle_share(setting, 0.5, "hlm"),
            "stays high",
        ),
    )


def _robustness() -> tuple[Statement, ...]:
    found = []
    measured = ("slm", "fula", "dm")
    for attacked in ("", " attacked"):
        same = f"at-to-at{attacked}"
        found += [
            Statement(same, f"At least 75 at every point on {name}", at_least(same, 75, [arm], measured), "at least 75")
            for arm, name in (("real", "real images"), ("iri", "IRIs"))
        ]
        found += [
            Statement(
                f"{pair}{attacked}",
                "On IRIs every objective falls to 35 or less",
                falls_to(f"{pair}{attacked}", 35, "iri", measured),
                "falls to 15–35",
            )
            for pair in ("clean-to-at", "at-to-clean")
        ]
    return tuple(found)


STATEMENTS: Mapping[str, tuple[Statement, ...]] = {
    "information": _information(),
    "shortcuts": _shortcuts(),
    "robustness": _robustness(),
}
"""By study."""

"""What the paper says of its three studies (METHOD §8), as statements that can be checked on any study's curves.

Where the paper's curves are known, what they say is computed by the same check; elsewhere its words are quoted. Bounds that the
paper states are its own; those that make its figures into statements (three quarters, half, the middle, 5 and 50 points) are
ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def _same_cues() -> tuple[Statement, ...]:
    """Of nets that learnt the same task."""
    seed, supervision = "cross-seed", "cross-supervision"
    same, twin = "SLM, FuLA and DM on IRIs are at least 99 at every point", "HLM on IRIs stays within 5 points of HLM"
    grows = "The real − IRI gap of FuLA is larger at the last point than at the first"
    first = "HLM is above FuLA and DM on IRIs at the last point"
    return (
        Statement("identical", same, at_least("identical", 99, ["iri"], ["slm", "fula", "dm"])),
        Statement(seed, f"{twin} on real images at every point", together(seed, 5, "hlm")),
        Statement(seed, first, ordered_at_end(seed, "iri", ["hlm", "fula", "dm"])),
        Statement(seed, grows, gap_grows(seed, "fula")),
        Statement(supervision, grows, gap_grows(supervision, "fula")),
    )


def _other_cues() -> tuple[Statement, ...]:
    """Of nets that look at different cues, and how all pairs compare."""
    bias, pairs = "cross-bias", ("cross-seed", "cross-supervision", "cross-bias")
    dip = "DM on real images dips: its smallest value is below half of its first and of its last"
    floor = "FuLA and DM on IRIs are at most 20 from relative depth 0.5 on"
    order = f"FuLA on IRIs at relative depth 0.5: {' above '.join(pairs)}"
    return (
        Statement(bias, dip, dips(bias, "real", "dm")),
        Statement(bias, floor, at_most(bias, 20, ["iri"], ["fula", "dm"], (0.5, 1))),
        Statement(", ".join(pairs), order, ordered_settings(pairs, "iri", "fula", 0.5)),
    )


def _information() -> tuple[Statement, ...]:
    curves = CURVES["information"]
    return (*_same_cues(), *_other_cues(), *(_fall(curve, name) for curve in curves for name in curve.objectives))


def _shortcuts() -> tuple[Statement, ...]:
    fixed, anywhere, noise = "pixel+class", "pixel+random", "rand+random"
    order = "On real images the largest values are ordered HLM ≥ SLM ≥ FuLA"
    control = "The control is within 2 of 0 at every point, on both arms, for every objective"
    return (
        _reaches(fixed, ["hlm"], "about 90, middle points"),
        _reaches(fixed, ["slm"], "about 82, middle points"),
        Statement(fixed, order, ordered_peaks(fixed, "real", ["hlm", "slm", "fula"]), "about 90, about 82, at most 25"),
        _bounded(fixed, 25),
        _reaches(anywhere, ["hlm", "slm"], "61, middle points"),
        _bounded(anywhere, 7),
        *(each for setting in (fixed, anywhere) for each in _shortcuts_on_iris(setting)),
        Statement(noise, control, near_zero(noise, 2, BOTH, ALL), "0 everywhere"),
    )


def _reaches(setting: str, objectives: Sequence[str], quoted: str) -> Statement:
    names = " or ".join(map(objective_name, objectives))
    return Statement(setting, f"{names} on real images reaches 50", reaches(setting, 50, ["real"], objectives), quoted)


def _bounded(setting: str, bound: float) -> Statement:
    text = f"FuLA on real images is at most {bound:g} at every point"
    return Statement(setting, text, at_most(setting, bound, ["real"], ["fula"]), f"at most {bound:g}")


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

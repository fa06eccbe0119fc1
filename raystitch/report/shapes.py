"""Checks of the shape of curves: each looks at tracks, published or a study's own, and says what it found in numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from raystitch.report.look import objective_name
from raystitch.report.tables import residual
from raystitch.report.tracks import Track, Tracks, at_depths

FALL = 0.75
"""Share of its first value below which a curve counts as fallen; our choice, between the published curves that fall and those
that do not."""
MIDDLE = (0.25, 0.75)
"""Relative depths that count as the middle."""
_ALL = (0.0, 1.0)


@dataclass(frozen=True)
class Finding:
    """Whether a statement holds, None where it is not measured; and the numbers that say so."""

    holds: bool | None
    numbers: str = ""


NOT_MEASURED = Finding(None)
Check = Callable[[Tracks], Finding]
_Pick = Callable[[Sequence[float]], int]


def lowest(values: Sequence[float]) -> int:
    """Place of the smallest value."""
    return int(np.argmin(values))


def highest(values: Sequence[float]) -> int:
    """Place of the largest value."""
    return int(np.argmax(values))


def furthest(values: Sequence[float]) -> int:
    """Place of the value furthest from 0."""
    return int(np.argmax(np.abs(values)))


def at_least(setting: str, bound: float, arms: Sequence[str], objectives: Sequence[str]) -> Check:
    """No value of any of the curves is below the bound."""
    return _extreme(setting, arms, objectives, lowest, "smallest", lambda value: value >= bound, everywhere=True)


def at_most(
    setting: str, bound: float, arms: Sequence[str], objectives: Sequence[str], within: tuple[float, float] = _ALL
) -> Check:
    """No value within two relative depths is above the bound."""
    return _extreme(setting, arms, objectives, highest, "largest", lambda value: value <= bound, True, within)


def near_zero(setting: str, bound: float, arms: Sequence[str], objectives: Sequence[str]) -> Check:
    """No value is further from 0 than the bound."""
    return _extreme(setting, arms, objectives, furthest, "furthest from 0:", lambda v: abs(v) <= bound, everywhere=True)


def reaches(setting: str, bound: float, arms: Sequence[str], objectives: Sequence[str]) -> Check:
    """Some value of some of the curves is at least the bound."""
    return _extreme(setting, arms, objectives, highest, "largest", lambda value: value >= bound, everywhere=False)


def _extreme(
    setting: str,
    arms: Sequence[str],
    objectives: Sequence[str],
    pick: _Pick,
    word: str,
    good: Callable[[float], bool],
    everywhere: bool,
    within: tuple[float, float] = _ALL,
) -> Check:
    """Judge one value of all; what must hold everywhere does so only once the last point is measured."""

    def judge(found: Sequence[Track]) -> Finding:
        each = [(track, pick(track.values)) for track in found]
        track, place = each[pick([one.values[at] for one, at in each])]
        holds = good(track.values[place])
        open_end = any(one.points[-1] < one.count for one in found) if within[1] == 1 else False
        return Finding(None if holds and everywhere and open_end else holds, f"{word} {track.at(place)}, {track.name}")

    return _on(setting, arms, objectives, judge, within)


def _on(
    setting: str,
    arms: Sequence[str],
    objectives: Sequence[str],
    judge: Callable[[Sequence[Track]], Finding],
    within: tuple[float, float] = _ALL,
    every: bool = False,
) -> Check:
    """Judge those of the curves that are measured within two relative depths; ``every``: all of them must be."""
    keys = [(setting, arm, objective) for arm in arms for objective in objectives]

    def check(tracks: Tracks) -> Finding:
        parts = [_part(tracks[key], *within) for key in keys if key in tracks]
        found = [track for track in parts if track.points]
        return judge(found) if found and (len(found) == len(keys) or not every) else NOT_MEASURED

    return check


def _part(track: Track, start: float, stop: float) -> Track:
    keep = [place for place, depth in enumerate(track.depths) if start <= depth <= stop]
    points, values, r = ([each[place] for place in keep] for each in (track.points, track.values, track.r))
    return replace(track, points=tuple(map(int, points)), values=tuple(map(float, values)), r=tuple(r))  # type: ignore[arg-type]


def falls_to(setting: str, bound: float, arm: str, objectives: Sequence[str]) -> Check:
    """Every one of the curves has a value of at most the bound."""

    def judge(found: Sequence[Track]) -> Finding:
        places = [lowest(track.values) for track in found]
        fallen = [track.values[place] <= bound for track, place in zip(found, places, strict=True)]
        ended = all(track.last is not None for track in found)
        numbers = "; ".join(f"smallest {track.at(i)}, {track.name}" for track, i in zip(found, places, strict=True))
        return Finding(True if all(fallen) else False if ended else None, numbers)

    return _on(setting, [arm], objectives, judge)


def falls(setting: str, arm: str, objective: str, expected: bool) -> Check:
    """The curve falls below :data:`FALL` of its first value, if that is ``expected``; otherwise it does not."""

    def judge(found: Sequence[Track]) -> Finding:
        (track,) = found
        if track.points[0] != 1:
            return NOT_MEASURED
        start = f"from {track.values[0]:.1f} at point 1"
        below = [place for place, value in enumerate(track.values) if value < FALL * track.values[0]]
        if below:
            where = f"{track.at(below[0])}, relative depth {track.depths[below[0]]:.2f}"
            return Finding(expected, f"{start} to {where}")
        return Finding(
            None if track.last is None else not expected, f"{start}, smallest {track.at(lowest(track.values))}"
        )

    return _on(setting, [arm], [objective], judge)


def ordered_at_end(setting: str, arm: str, objectives: Sequence[str]) -> Check:
    """At the last point the first objective is above each of the others."""

    def judge(found: Sequence[Track]) -> Finding:
        if any(track.last is None for track in found):
            return NOT_MEASURED
        numbers = "; ".join(f"{objective_name(track.objective)} {track.at(-1)}" for track in found)
        return Finding(all(found[0].values[-1] > other.values[-1] for other in found[1:]), numbers)

    return _on(setting, [arm], objectives, judge, every=True)


def ordered_peaks(setting: str, arm: str, objectives: Sequence[str]) -> Check:
    """The largest value of each objective is at least that of the next."""

    def judge(found: Sequence[Track]) -> Finding:
        peaks = [max(track.values) for track in found]
        numbers = "; ".join(f"{objective_name(track.objective)} {track.at(highest(track.values))}" for track in found)
        return Finding(peaks == sorted(peaks, reverse=True), numbers)

    return _on(setting, [arm], objectives, judge, every=True)


def together(setting: str, bound: float, objective: str) -> Check:
    """Real and IRI values of an objective are no more than the bound apart at any point that both have."""

    def judge(found: Sequence[Track]) -> Finding:
        real, iri = found
        both = sorted(set(real.points) & set(iri.points))
        if not both:
            return NOT_MEASURED
        apart = [abs(real.values[real.points.index(p)] - iri.values[iri.points.index(p)]) for p in both]
        point = both[highest(apart)]
        numbers = "; ".join(f"{track.at(track.points.index(point))}, {track.name}" for track in found)
        return Finding(
            None if max(apart) <= bound and both[-1] < real.count else max(apart) <= bound, f"furthest apart: {numbers}"
        )

    return _on(setting, ["real", "iri"], [objective], judge, every=True)


def gap_grows(setting: str, objective: str) -> Check:
    """Real minus IRI is larger at the last point than at the first."""

    def judge(found: Sequence[Track]) -> Finding:
        real, iri = found
        if any(track.last is None or track.points[0] != 1 for track in found):
            return NOT_MEASURED
        first, last = (real.values[place] - iri.values[place] for place in (0, -1))
        r = "" if iri.r[-1] is None else f"; r {residual(iri.r[0])} and {residual(iri.r[-1])}"
        return Finding(last > first, f"gap {first:.1f} at the first point, {last:.1f} at the last{r}".replace("-", "−"))

    return _on(setting, ["real", "iri"], [objective], judge, every=True)


def dips(setting: str, arm: str, objective: str) -> Check:
    """The smallest value is below half of the first and half of the last."""

    def judge(found: Sequence[Track]) -> Finding:
        (track,) = found
        if track.points[0] != 1 or track.last is None:
            return NOT_MEASURED
        place = lowest(track.values)
        holds = track.values[place] < min(track.values[0], track.values[-1]) / 2
        return Finding(holds, ", ".join(track.at(each) for each in (0, place, -1)))

    return _on(setting, [arm], [objective], judge)


def ordered_settings(settings: Sequence[str], arm: str, objective: str, depth: float) -> Check:
    """At one relative depth (linearly interpolated) each setting's curve is above the next's."""

    def check(tracks: Tracks) -> Finding:
        found = [tracks.get((setting, arm, objective)) for setting in settings]
        known = [track for track in found if track is not None and track.depths[0] <= depth <= track.depths[-1]]
        if len(known) < len(settings):
            return NOT_MEASURED
        values = [at_depths(track, [depth])[0] for track in known]
        named = zip(settings, values, known, strict=True)
        numbers = "; ".join(f"{name} {value:.1f}{_r_near(track, depth)}" for name, value, track in named)
        return Finding(all(one > other for one, other in pairwise(values)), numbers)

    return check


def _r_near(track: Track, depth: float) -> str:
    r = track.r[lowest([abs(depth - own) for own in track.depths])]
    return "" if r is None else f" (r {residual(r)})"


def middle_mean(setting: str, low: float, high: float, arm: str, objective: str) -> Check:
    """The mean over the middle lies between two bounds."""

    def judge(found: Sequence[Track]) -> Finding:
        return Finding(low <= float(np.mean(found[0].values)) <= high, _mean_words(found[0]))

    return _on(setting, [arm], [objective], judge, MIDDLE)


def middle_share(setting: str, share: float, objective: str) -> Check:
    """The mean over the middle on IRIs is at least a share of that on real images."""

    def judge(found: Sequence[Track]) -> Finding:
        real, iri = (float(np.mean(track.values)) for track in found)
        return Finding(iri >= share * real, "; ".join(map(_mean_words, found)))

    return _on(setting, ["real", "iri"], [objective], judge, MIDDLE, every=True)


def _mean_words(track: Track) -> str:
    known = [r for r in track.r if r is not None]
    beside = f" (largest r {residual(max(known))})" if known else ""
    points = f"points {track.points[0]}–{track.points[-1]}" if len(track.points) > 1 else f"point {track.points[0]}"
    return f"mean {np.mean(track.values):.1f} over {points}{beside}, {track.name}".replace("-", "−")

"""Timing in turns: what is compared runs alternately, round by round, so that a machine that slows down slows all of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

Work = Callable[[], object]
Samples = tuple[float, ...]
"""One value per round."""


class Summary(NamedTuple):
    """Median and quartiles of the rounds."""

    median: float
    low: float
    high: float


def in_turns(
    works: Mapping[str, Work],
    rounds: int,
    device: str = "cpu",
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Seconds of each work in each round: A, B, C, A, B, C, …

    Args:
        works: name → what to time.
        rounds: how many turns each gets, ≥ 1.
        device: torch device that a turn is waited for.
        warm_up: first run each once, untimed.
        clock: seconds, monotonic; for tests.
    """
    for work in works.values() if warm_up else ():
        _timed(work, device, clock)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(_timed(work, device, clock))
    return {name: tuple(values) for name, values in seconds.items()}


def per(samples: Samples, count: int) -> Samples:
    """Each value divided by ``count``."""
    return tuple(value / count for value in samples)


def ratios(over: Samples, under: Samples) -> Samples:
    """``over`` / ``under`` round by round: above 1, ``under`` is the faster one."""
    return tuple(a / b for a, b in zip(over, under, strict=True))


def geometric_mean(curves: Sequence[Samples]) -> Samples:
    """Geometric mean over curves (points, say), round by round."""
    return tuple(math.exp(statistics.fmean(map(math.log, values))) for values in zip(*curves, strict=True))


def summary(samples: Samples) -> Summary:
    """Median and quartiles (linear interpolation) of one value or more."""
    if len(samples) == 1:
        return Summary(samples[0], samples[0], samples[0])
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median, low, high)


def _timed(work: Work, device: str, clock: Callable[[], float]) -> float:
    _wait(device)
    begun = clock()
    work()
    _wait(device)
    return clock() - begun


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)

"""How close inversions come: steps and time to what 200 published steps reach, and what their time buys.

The residuals that 200 published steps reach come from the product's own ``sign_pgd``, which takes the same steps (a test
compares them) at a fraction of the cost; time is that of the published-style baseline, per step, in the same run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from benchmarks import inverting, published
from benchmarks.load import load_float, load_net
from benchmarks.outcome import Cell, Figure, Outcome, Table, Target, figure
from benchmarks.subjects import Options
from benchmarks.turns import Samples, Work, geometric_mean, in_turns, per, ratios, summary
from raystitch.config import IriConfig
from raystitch.nets import CutNet

SEARCHES: Mapping[str, IriConfig] = {
    "default": IriConfig(compile=True),
    "default, mixed precision": IriConfig(precision="mixed", compile=True),
}
"""What is compared with the published recipe, compiled as sets of 50,000 such images are; the first one is the default."""
PUBLISHED = IriConfig.model_validate("paper")

TARGETS: Mapping[str, Target] = {
    "steps": Target("at most", 40),
    "wall": Target("at least", 25),
    "early": Target("at most", 0.05),
    "last": Target("at most", 0.15),
}


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        images: of the batch that is timed; the first ``inverted`` of them are inverted to the end.
        steps: of the published recipe.
        budgets: numbers of steps to try, ascending; the schedule of steps depends on it, so each is a run of its own.
        longest: most steps of a run at the published recipe's time.
        timed: steps of raystitch in a turn.
    """

    images: int = 128
    inverted: int = 32
    steps: int = published.STEPS
    budgets: tuple[int, ...] = (10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 140, 200)
    longest: int = 1500
    rounds: int = 3
    timed: int = 6
    points: tuple[int, ...] = ()


FULL = Size()
QUICK = Size(images=8, inverted=4, steps=12, budgets=(2, 4, 8, 16), longest=24, rounds=1, timed=2, points=(1, 4))


@dataclass(frozen=True)
class Found:
    """What one search does at one point.

    Attributes:
        published_r: median r after the published steps, ``sign_pgd``.
        steps: smallest budget whose median r is no larger; None if none is.
        wall: published-style time over raystitch's to that r, per round; none if it is not reached.
        budget: steps that the published recipe's time buys, or ``longest``.
        residual: median r with that budget.
        compiled: whether the steps that were timed were.
    """

    published_r: float
    steps: int | None
    wall: Samples
    budget: int
    residual: float
    compiled: bool


def run(options: Options) -> Outcome:
    """Steps and time to the published residual, and the residual at the published recipe's time, at every point."""
    size = QUICK if options.quick else FULL
    net, images = load_net(options, "front"), load_float(options, size.images)
    points = size.points or tuple(range(1, net.n + 1))
    found: dict[str, dict[int, Found]] = {name: {} for name in SEARCHES}
    for point in points:
        for name, result in _at(net, point, images, size, options.device).items():
            found[name][point] = result
    figures = [one for name, curve in found.items() for one in _figures(name, list(curve.values()))]
    tables = [_table(net, name, curve, size.steps) for name, curve in found.items()]
    uncompiled = [point for point in points if not all(curve[point].compiled for curve in found.values())]
    return Outcome(figures, tables, _notes(size, uncompiled), asdict(size))


def _at(net: CutNet, point: int, images: Tensor, size: Size, device: str) -> dict[str, Found]:
    few = images[: size.inverted]
    goal = _median_r(net, point, few, PUBLISHED, size.steps)
    prefixes = {name: inverting.prefix_of(net, point) for name in SEARCHES}
    searches = {name: inverting.Search(prefixes[name], images, search, size.timed) for name, search in SEARCHES.items()}
    times = _step_times(net, point, images, searches, size, device)
    found = {}
    for name, search in SEARCHES.items():
        steps = next((n for n in size.budgets if _median_r(net, point, few, search, n) <= goal), None)
        ratio = ratios(times["published-style"], times[name])
        budget = max(1, min(size.longest, int(size.steps * summary(ratio).median) - 1))
        wall = () if steps is None else tuple(value * size.steps / (steps + 1) for value in ratio)
        residual = _median_r(net, point, few, search, budget)
        found[name] = Found(goal, steps, wall, budget, residual, searches[name].compiled)
    return found


def _step_times(
    net: CutNet, point: int, images: Tensor, searches: Mapping[str, Work], size: Size, device: str
) -> dict[str, Samples]:
    """Seconds per published-style step, and per pair of passes of each search."""
    start = torch.rand(images.shape, generator=torch.Generator().manual_seed(0)).to(images.device)
    works: dict[str, Work] = {"published-style": lambda: published.invert(net, point, images, start, 1), **searches}
    counts = dict.fromkeys(searches, size.timed + 1) | {"published-style": 1}
    return {name: per(samples, counts[name]) for name, samples in in_turns(works, size.rounds, device).items()}


def _median_r(net: CutNet, point: int, images: Tensor, search: IriConfig, steps: int) -> float:
    """Median r, measured in float32 whatever the precision of the search."""
    made = inverting.run(inverting.prefix_of(net, point), images, search, steps).images
    with torch.no_grad():
        r = published.relative_error(net.run(made, 0, point), net.run(images, 0, point))
    values: list[float] = r.tolist()
    return statistics.median(values)


def _figures(name: str, curve: Sequence[Found]) -> list[Figure]:
    steps = [one.steps for one in curve]
    reached = [n for n in steps if n is not None]
    most = max(reached) if len(reached) == len(steps) else None
    early = [one.residual for number, one in enumerate(curve, 1) if 3 * number <= 2 * len(curve)]
    wall = [one.wall for one in curve if one.wall]
    label = f"{name}: published-style time over raystitch's to that r, geometric mean"
    to_r = Figure(label, "×", None, target=TARGETS["wall"])
    return [
        Figure(
            f"{name}: steps to the published recipe's median r, most of all points (in brackets: range over points)",
            "steps", most, min(reached, default=None), max(reached, default=None), TARGETS["steps"],
        ),
        figure(label, "×", geometric_mean(wall), TARGETS["wall"]) if len(wall) == len(curve) else to_r,
        Figure(
            f"{name}: median r at the published recipe's time, largest of the first two thirds of all points (range)",
            "", max(early), min(early), max(early), TARGETS["early"],
        ),
        Figure(
            f"{name}: median r at the published recipe's time, last point", "", curve[-1].residual, target=TARGETS["last"]
        ),
    ]  # fmt: skip


def _table(net: CutNet, name: str, curve: Mapping[int, Found], steps: int) -> Table:
    columns = [
        "point",
        "module",
        "published median r",
        "steps to it",
        "time ratio to it",
        "steps at equal time",
        "median r",
    ]
    rows: list[list[Cell]] = [
        [
            point,
            net.points[point - 1].module,
            round(one.published_r, 4),
            one.steps,
            round(summary(one.wall).median, 2) if one.wall else None,
            one.budget,
            float(f"{one.residual:.3g}") if math.isfinite(one.residual) else None,
        ]
        for point, one in curve.items()
    ]
    return Table(f"{name}, against {steps} published steps", columns, rows)


def _notes(size: Size, uncompiled: Sequence[int]) -> list[str]:
    return [
        inverting.on_compiling(uncompiled),
        f"Time per step is that of batches of {size.images} images; residuals are medians over {size.inverted} of them.",
        f"Runs at equal time stop at {size.longest} steps: where that is less than the time allows, r would be smaller still.",
        "All residuals are those of the float32 net, before rounding to 8 bits.",
        f"The published recipe's run has {size.steps} steps.",
    ]

"""Time of one step of an inversion, at every point: published-style against raystitch, and raystitch against the floor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks import inverting, published
from benchmarks.load import load_float, load_net
from benchmarks.outcome import Cell, Figure, Outcome, Table, Target, cell, figure
from benchmarks.subjects import Options
from benchmarks.turns import Samples, Work, geometric_mean, in_turns, per, ratios, summary
from raystitch.config import IriConfig
from raystitch.nets import CutNet

SEARCHES: Mapping[str, IriConfig] = {
    "float32": IriConfig(compile=True),
    "bf16": IriConfig(precision="bfloat16", compile=True),
}
"""Compiled, as sets of 50,000 such images are by default."""

TARGETS: Mapping[str, Target] = {
    "float32, point 1": Target("at least", 25),
    "float32, last point": Target("at least", 2.3),
    "float32, geometric mean": Target("at least", 6),
    "bf16, geometric mean": Target("at least", 9),
    "float32 over floor": Target("at most", 1.15),
    "bf16 over floor": Target("at most", 1.15),
}


@dataclass(frozen=True)
class Size:
    """How much is timed: ``steps`` of raystitch, ``pairs`` of the floor and ``published`` steps of the baseline a turn.

    Steps at the first ``shallow`` points take milliseconds; there a turn has ``longer`` times as many steps and pairs.
    """

    images: int = 128
    rounds: int = 5
    steps: int = 30
    pairs: int = 10
    published: int = 1
    points: tuple[int, ...] = ()
    shallow: int = 3
    longer: int = 5

    def at(self, point: int) -> Size:
        """With the numbers of steps and pairs of a point."""
        factor = self.longer if point <= self.shallow else 1
        return dataclasses.replace(self, steps=factor * self.steps, pairs=factor * self.pairs)


FULL, QUICK = Size(), Size(images=8, rounds=2, steps=2, pairs=2, published=1, points=(1, 10), longer=2)


def run(options: Options) -> Outcome:
    """Ratios of time per step in both precisions, and against the floor, at every point."""
    size = QUICK if options.quick else FULL
    net, images = load_net(options, "front"), load_float(options, size.images)
    points = size.points or tuple(range(1, net.n + 1))
    timed = {point: _step_times(net, point, images, size.at(point), options.device) for point in points}
    times = {point: seconds for point, (seconds, _) in timed.items()}
    figures, notes = [], []
    for name in SEARCHES:
        gains = {point: ratios(t["published-style"], t[name]) for point, t in times.items()}
        figures += _gain_figures(name, gains) + _worst(name, times)
    notes.append(
        f"raystitch: a run of {size.steps} steps divided by {size.steps} + 1 pairs of forward and backward passes; "
        f"up to point {size.shallow} {size.longer} times as many."
    )
    notes.append(inverting.on_compiling([point for point, (_, compiled) in timed.items() if not compiled]))
    notes.append("The baseline runs in float32 throughout; the floor has the precision of what it is compared with.")
    return Outcome(figures, _tables(net, times), notes, asdict(size))


def _step_times(net: CutNet, point: int, images: Tensor, size: Size, device: str) -> tuple[dict[str, Samples], bool]:
    """Seconds per step of each contender, one value per round; and whether what is to be compiled was."""
    start = torch.rand(images.shape, generator=torch.Generator().manual_seed(0)).to(images.device)
    works: dict[str, Work] = {"published-style": lambda: published.invert(net, point, images, start, size.published)}
    counts = {"published-style": size.published}
    compiled: list[inverting.Search | inverting.CompiledFloor] = []
    for name, search in SEARCHES.items():
        prefix = inverting.prefix_of(net, point)
        works[name] = ours = inverting.Search(prefix, images, search, size.steps)
        works[f"floor, {name}"] = partial(inverting.floor, prefix, images, search, size.pairs)
        works[f"compiled floor, {name}"] = least = inverting.CompiledFloor(prefix, images, search, size.pairs)
        compiled += [ours, least]
        counts |= {name: size.steps + 1, f"floor, {name}": size.pairs, f"compiled floor, {name}": size.pairs}
    times = {name: per(samples, counts[name]) for name, samples in in_turns(works, size.rounds, device).items()}
    return times, all(work.compiled for work in compiled)


def _gain_figures(name: str, gains: Mapping[int, Samples]) -> list[Figure]:
    chosen = {
        f"{name}, point 1": gains[min(gains)],
        f"{name}, last point": gains[max(gains)],
        f"{name}, geometric mean": geometric_mean(list(gains.values())),
    }
    return [
        figure(f"published-style over raystitch, per step: {label}", "×", samples, TARGETS.get(label))
        for label, samples in chosen.items()
    ]


def _worst(name: str, times: Mapping[int, Mapping[str, Samples]]) -> list[Figure]:
    """Over the floor as it is written, and over the faster of it and a compiled one."""
    return [
        _over(name, "floor", [_slack(t, name, "floor") for t in times.values()], TARGETS[f"{name} over floor"]),
        _over(
            name,
            "faster of the floor and a compiled floor",
            [max(_slack(t, name, "floor"), _slack(t, name, "compiled floor")) for t in times.values()],
            None,
        ),
    ]


def _slack(t: Mapping[str, Samples], name: str, floor: str) -> float:
    return summary(ratios(t[name], t[f"{floor}, {name}"])).median


def _over(name: str, floor: str, medians: Sequence[float], target: Target | None) -> Figure:
    label = f"raystitch over the {floor}, per step: {name}, largest of all points (in brackets: range over points)"
    return Figure(label, "×", max(medians), min(medians), max(medians), target)


def _tables(net: CutNet, times: Mapping[int, Mapping[str, Samples]]) -> list[Table]:
    contenders = list(next(iter(times.values())))
    rows: list[list[Cell]] = [
        [p, net.points[p - 1].module, *(cell(summary(t[name]), 1e3) for name in contenders)] for p, t in times.items()
    ]
    compared: list[list[Cell]] = [[p, net.points[p - 1].module, *_compared(t)] for p, t in times.items()]
    kinds = [
        f"{text} {name}"
        for name in SEARCHES
        for text in ("published-style over", "over floor:", "over compiled floor:")
    ]
    return [
        Table("Milliseconds per step, median (quartiles)", ["point", "module", *contenders], rows),
        Table("Ratios per step, median (quartiles) of the rounds", ["point", "module", *kinds], compared),
    ]


def _compared(t: Mapping[str, Samples]) -> list[str]:
    found = []
    for name in SEARCHES:
        found += [ratios(t["published-style"], t[name])]
        found += [ratios(t[name], t[f"{floor}, {name}"]) for floor in ("floor", "compiled floor")]
    return [cell(summary(samples)) for samples in found]

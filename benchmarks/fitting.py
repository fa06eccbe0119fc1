"""Fitting and measuring the four objectives on both arms, protocol ``matched``, against four published-style runs each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from torch import Tensor

from benchmarks import inverting, published
from benchmarks.load import load_net, load_set
from benchmarks.outcome import Cell, Figure, Outcome, Table, Target, figure
from benchmarks.subjects import Options
from benchmarks.turns import Samples, Work, geometric_mean, in_turns, ratios, summary
from raystitch.config import Arm, FitConfig, IriConfig, Objective
from raystitch.data import ImageSet
from raystitch.evaluate import evaluate
from raystitch.nets import CutNet
from raystitch.plan import interpolate
from raystitch.stitching import as_float, fit_stitches

OBJECTIVES: tuple[Objective, ...] = ("hlm", "slm", "dm", "fula")
ARMS: tuple[Arm, ...] = ("real", "iri")
SEED, OTHER_SEED = 1, 2

TARGETS: Mapping[str, Target] = {"fits": Target("at least", 4)}


@dataclass(frozen=True)
class Size:
    """How much is fitted: a short training on few images, since the baseline does it eight times at every point."""

    train: int = 256
    test: int = 128
    init: int = 128
    epochs: int = 6
    batch: int = 128
    iri_steps: int = 10
    points: tuple[int, ...] = (1, 2, 4, 6, 8, 10)


FULL, QUICK = Size(), Size(train=16, test=16, init=8, epochs=1, batch=8, iri_steps=2, points=(1, 4, 10))


@dataclass
class Bench:
    """The two nets, the images, and what came of the runs: agreement in percent by (contender, objective, arm, point)."""

    size: Size
    device: str
    front: CutNet
    end: CutNet
    train: ImageSet
    test: ImageSet
    agreement: dict[tuple[str, Objective, Arm, int], float] = field(default_factory=dict)

    def pair(self, point: int) -> tuple[int, int]:
        """A front point with the end point at the same relative depth (METHOD §6)."""
        return point, interpolate(point, self.front.n, self.end.n)


def run(options: Options) -> Outcome:
    """Ratio of time and difference in agreement at every point."""
    size = QUICK if options.quick else FULL
    nets = load_net(options, "front"), load_net(options, "end")
    bench = Bench(
        size, options.device, *nets, load_set(options, "train", size.train), load_set(options, "test", size.test)
    )
    points = size.points or tuple(range(1, bench.front.n + 1))
    gains: dict[int, Samples] = {}
    rows: list[list[Cell]] = []
    for point in points:
        times = _times(bench, point, warm_up=point == points[0])
        gains[point] = ratios(_sum([times[name] for name in OBJECTIVES]), times["raystitch"])
        rows.append(_row(bench, point, times, gains[point]))
    middle = points[len(points) // 2]
    figures = [
        figure(
            "four published-style runs over raystitch's one, both arms, geometric mean",
            "×", geometric_mean(list(gains.values())), TARGETS["fits"],
        ),
        _agreement_figure(bench, points, _seed_noise(bench, middle)),
    ]  # fmt: skip
    columns = ["point", "published-style, s", "raystitch, s", "ratio", "largest difference in agreement, points"]
    notes = [
        "Each run is whole: initialisation, training and evaluation; the spread is that of the two arms.",
        f"Training is short ({size.epochs} epochs); the representations that raystitch keeps would serve 30 in a full one.",
        f"Seed noise: largest change of agreement from seed {SEED} to {OTHER_SEED}, both arms, all objectives, point {middle}.",
    ]
    return Outcome(figures, [Table("Both arms, four objectives", columns, rows)], notes, asdict(size))


def _times(bench: Bench, point: int, warm_up: bool) -> dict[str, Samples]:
    """Seconds of raystitch's one run and of each published-style run, one value per arm."""
    found: dict[str, Samples] = {"raystitch": (), **dict.fromkeys(OBJECTIVES, ())}
    for arm in ARMS:
        data = bench.train if arm == "real" else _iris(bench, point)
        works: dict[str, Work] = {"raystitch": lambda a=arm, d=data: _ours(bench, point, a, d, SEED)}  # type: ignore[misc]
        images = as_float(data.images).to(bench.device), data.labels.to(bench.device)
        for name in OBJECTIVES:
            works[name] = lambda a=arm, i=images, n=name: _published(bench, point, a, i, n)  # type: ignore[misc]
        first = warm_up and arm == ARMS[0]
        for name, samples in in_turns(works, 1, bench.device, warm_up=first).items():
            found[name] += samples
    return found


def _ours(bench: Bench, point: int, arm: Arm, data: ImageSet, seed: int) -> None:
    (i, j), size = bench.pair(point), bench.size
    recipe = FitConfig(epochs=size.epochs, batch=size.batch, init_images=size.init)
    fitted = fit_stitches(
        bench.front, bench.end, i, j, OBJECTIVES, data, bench.train.images[: size.init], recipe, "matched", arm, seed,
        device=bench.device,
    )  # fmt: skip
    measured = evaluate(list(fitted.values()), bench.front, bench.end, bench.test, bench.device)
    who = "raystitch" if seed == SEED else "other seed"
    for name in OBJECTIVES:
        bench.agreement[who, name, arm, point] = float(measured[name].columns["agreement"])


def _published(bench: Bench, point: int, arm: Arm, data: tuple[Tensor, Tensor], objective: Objective) -> None:
    nets, points, size = (bench.front, bench.end), bench.pair(point), bench.size
    recipe = published.Recipe(epochs=size.epochs, batch=size.batch)
    init = as_float(bench.train.images[: size.init]).to(bench.device)
    stitch = published.fit(objective, nets, points, data, init, recipe, SEED)
    shown = as_float(bench.test.images).to(bench.device)
    bench.agreement["published-style", objective, arm, point] = published.agreement(stitch, nets, points, shown)


def _iris(bench: Bench, point: int) -> ImageSet:
    """IRIs of the training images from a short inversion: enough to train on, untimed."""
    search = IriConfig()
    images = as_float(bench.train.images).to(bench.device)
    made = inverting.run(inverting.prefix_of(bench.front, point), images, search, bench.size.iri_steps)
    return ImageSet(made.images.cpu(), bench.train.labels, bench.train.num_classes)


def _seed_noise(bench: Bench, point: int) -> float:
    """Largest change of agreement, in points, when raystitch fits with another seed."""
    for arm in ARMS:
        _ours(bench, point, arm, bench.train if arm == "real" else _iris(bench, point), OTHER_SEED)
    return max(_difference(bench, "other seed", point).values())


def _difference(bench: Bench, who: str, point: int) -> dict[tuple[Objective, Arm], float]:
    """|agreement − raystitch's|, in points."""
    found = bench.agreement
    return {
        (name, arm): abs(found[who, name, arm, point] - found["raystitch", name, arm, point])
        for name in OBJECTIVES
        for arm in ARMS
    }


def _agreement_figure(bench: Bench, points: Sequence[int], noise: float) -> Figure:
    values = [value for point in points for value in _difference(bench, "published-style", point).values()]
    label = "difference in agreement at the same seed, largest of all (in brackets: range), against seed noise"
    return Figure(label, "points", max(values), min(values), max(values), Target("at most", noise))


def _row(bench: Bench, point: int, times: Mapping[str, Samples], gain: Samples) -> list[Cell]:
    theirs = sum(sum(times[name]) for name in OBJECTIVES)
    largest = max(_difference(bench, "published-style", point).values())
    i, j = bench.pair(point)
    ratio = round(summary(gain).median, 2)
    return [f"{i} → {j}", round(theirs, 2), round(sum(times["raystitch"]), 2), ratio, float(f"{largest:.2g}")]


def _sum(curves: Sequence[Samples]) -> Samples:
    return tuple(map(sum, zip(*curves, strict=True)))

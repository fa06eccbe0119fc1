"""A profile of each hot loop, inversion and fitting: where the time goes, and rates beside the machine's ceilings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from torch import Tensor

from benchmarks import inverting
from benchmarks.ceilings import DTYPES, Ceilings, measure
from benchmarks.counting import Count, count
from benchmarks.fitting import OBJECTIVES, SEED
from benchmarks.inversion_step import SEARCHES
from benchmarks.load import load_float, load_net, load_set
from benchmarks.outcome import Cell, Figure, Outcome, Table, cell
from benchmarks.shares import GROUPS, RUNS, SEARCH, STITCH, shares
from benchmarks.subjects import Options
from benchmarks.turns import Samples, Work, in_turns, per, summary
from raystitch.config import FitConfig
from raystitch.data import ImageSet
from raystitch.nets import CutNet
from raystitch.plan import interpolate
from raystitch.stitching import fit

TRAINING_SET = 50_000
"""Images of a study; fitting keeps of its representations what would fit in memory if there were as many here."""
DTYPE: Mapping[str, str] = {"float32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Size:
    """How much is run: one batch of ``images``, inverted in ``steps``, fitted in ``epochs`` of one step each."""

    images: int = 128
    rounds: int = 5
    steps: int = 10
    epochs: int = 4
    sides: tuple[int, ...] = (512, 1024, 2048)
    copied: int = 1 << 28


FULL, QUICK = Size(), Size(images=8, rounds=2, steps=2, epochs=1, sides=(128, 256), copied=1 << 22)
GPU_SIDES = (2048, 4096, 8192)


@dataclass(frozen=True)
class Profile:
    """A loop at a point.

    Attributes:
        loop: which.
        point: where, for people.
        dtype: that of the ceiling it is measured against.
        seconds: per step, without the profiler, one value per round.
        count: FLOPs and bytes of a step.
        shares: percent of the time by group.
        compiled: as ``seconds``, with compiled steps; none of a loop that is not compiled.
    """

    loop: str
    point: str
    dtype: str
    seconds: Samples
    count: Count
    shares: Mapping[str, float]
    compiled: Samples = ()

    def of_products(self, ceilings: Ceilings) -> float:
        """FLOP/s reached, in percent of the best matrix product's."""
        return self._of_products(ceilings, self.seconds)

    def compiled_of_products(self, ceilings: Ceilings) -> float | None:
        """The same with compiled steps, which multiply as much."""
        return self._of_products(ceilings, self.compiled) if self.compiled else None

    def _of_products(self, ceilings: Ceilings, seconds: Samples) -> float:
        return 100 * self.count.flops / summary(seconds).median / ceilings.product(self.dtype)

    def of_copy(self, ceilings: Ceilings) -> float:
        """Bytes per second reached, in percent of a copy's."""
        return 100 * self.count.bytes / summary(self.seconds).median / ceilings.copy


def run(options: Options) -> Outcome:
    """Ceilings, then both loops at an early, a middle and the last point."""
    size = QUICK if options.quick else FULL
    if options.device == "cuda" and not options.quick:
        size = replace(size, sides=GPU_SIDES)
    ceilings = measure(size.sides, size.copied, size.rounds, options.device)
    front, end = load_net(options, "front"), load_net(options, "end")
    points = sorted({1, (front.n + 1) // 2, front.n})
    images, data = load_float(options, size.images), load_set(options, "train", size.images)
    found: list[Profile] = []
    for point in points:
        found += inversion_profiles(front, point, images, size, options.device)
    for point in points:
        found.append(fitting_profile(front, end, point, data, size, options.device))
    return Outcome(_figures(ceilings, found), _tables(ceilings, found), _notes(size, options), asdict(size))


def inversion_profiles(net: CutNet, point: int, images: Tensor, size: Size, device: str) -> Iterator[Profile]:
    """The inversion as a sweep runs it, in both precisions, timed in turns; per step as in ``inversion_step``."""
    prefix = inverting.prefix_of(net, point)
    written: dict[str, Work] = {
        name: lambda s=search: inverting.run(prefix, images, s, size.steps)  # type: ignore[misc]
        for name, search in SEARCHES.items()
    }
    compiled = {name: inverting.Search(prefix, images, search, size.steps) for name, search in SEARCHES.items()}
    works = written | {f"{name}, compiled": search for name, search in compiled.items()}
    times, steps = in_turns(works, size.rounds, device), size.steps + 1
    where = f"{point} ({net.points[point - 1].module})"
    for name, work in written.items():
        faster = per(times[f"{name}, compiled"], steps) if compiled[name].compiled else ()
        found = _profile(f"inversion, {name}", where, DTYPE[name], times[name], work, steps, device)
        yield replace(found, compiled=faster)


def fitting_profile(front: CutNet, end: CutNet, point: int, data: ImageSet, size: Size, device: str) -> Profile:
    """The training of four objectives, protocol ``matched``, real arm; a step trains all four."""
    other = interpolate(point, front.n, end.n)
    work = training_loop(front, end, point, other, data, size, device)
    (samples,) = in_turns({"": work}, size.rounds, device).values()
    return _profile("fitting", f"{point} → {other}", "float32", samples, work, size.epochs, device)


def training_loop(front: CutNet, end: CutNet, i: int, j: int, data: ImageSet, size: Size, device: str) -> partial[None]:
    """The loop that :func:`raystitch.stitching.fit_stitches` would enter once everything is initialised and kept."""
    config = FitConfig(epochs=size.epochs, batch=size.images, init_images=size.images)
    kept = fit.CACHE_BYTES * size.images // TRAINING_SET
    train: Callable[..., None] = fit._train

    class Reached(Exception):
        """Carries what the loop is called with."""

    def reached(*arguments: Any) -> None:
        raise Reached(*arguments)

    try:
        with patch.object(fit, "_train", reached):
            fit.fit_stitches(
                front, end, i, j, OBJECTIVES, data, data.images, config, "matched", "real", SEED,
                device=device, cache_bytes=kept,
            )  # fmt: skip
    except Reached as reason:
        arguments = reason.args
    return partial(train, *arguments)


def _profile(loop: str, point: str, dtype: str, samples: Samples, work: Work, steps: int, device: str) -> Profile:
    whole = count(work)
    each = Count(whole.flops // steps, whole.bytes // steps)
    return Profile(loop, point, dtype, per(samples, steps), each, shares(work, device))


def _figures(ceilings: Ceilings, found: Sequence[Profile]) -> list[Figure]:
    figures = [Figure(f"best matrix product, {name}", "GFLOP/s", ceilings.product(name) / 1e9) for name in DTYPES]
    figures.append(Figure("copy, bytes read and bytes written", "GB/s", ceilings.copy / 1e9))
    for loop in dict.fromkeys(profile.loop for profile in found):
        own = [profile for profile in found if profile.loop == loop]
        points = "median of the points (in brackets: range)"
        figures += [
            _range(
                f"{loop}: FLOP/s over the best matrix product's, {points}", [one.of_products(ceilings) for one in own]
            ),
            _range(f"{loop}: bytes per second over the copy's, {points}", [one.of_copy(ceilings) for one in own]),
        ]
    return figures


def _range(name: str, values: Sequence[float]) -> Figure:
    return Figure(name, "%", statistics.median(values), min(values), max(values))


def _tables(ceilings: Ceilings, found: Sequence[Profile]) -> list[Table]:
    products: list[list[Cell]] = [
        [dtype, *(_short(rate / 1e9) for rate in rates.values())] for dtype, rates in ceilings.products.items()
    ]
    sides = next(iter(ceilings.products.values()))
    return [
        Table("Matrix products, GFLOP/s by side of the square matrices", ["", *map(str, sides)], products),
        Table("Rates", RATES, [_rates(profile, ceilings) for profile in found]),
        _where("Where the time of an inversion goes, %", "inversion", STITCH, found),
        _where("Where the time of fitting goes, %", "fitting", SEARCH, found),
    ]


RATES = (
    "loop", "point", "ms per step", "GFLOP per step", "GFLOP/s", "% of the matrix product's",
    "MB per step", "GB/s", "% of the copy's", "compiled, ms", "% of the matrix product's",
)  # fmt: skip


def _rates(profile: Profile, ceilings: Ceilings) -> list[Cell]:
    times, flops, moved = summary(profile.seconds), profile.count.flops, profile.count.bytes
    numbers = [
        flops / 1e9, flops / 1e9 / times.median, profile.of_products(ceilings),
        moved / 1e6, moved / 1e9 / times.median, profile.of_copy(ceilings),
    ]  # fmt: skip
    share = profile.compiled_of_products(ceilings)
    compiled: list[Cell] = [None, None] if share is None else [cell(summary(profile.compiled), 1e3), _short(share)]
    return [profile.loop, profile.point, cell(times, 1e3), *map(_short, numbers), *compiled]


def _where(title: str, loop: str, foreign: str, found: Sequence[Profile]) -> Table:
    """The groups of one loop, without what belongs to the other."""
    groups = [group for group in GROUPS if group != foreign]
    own = [profile for profile in found if profile.loop.startswith(loop)]
    rows: list[list[Cell]] = [[one.loop, one.point, *(round(one.shares[group], 1) for group in groups)] for one in own]
    return Table(title, ["loop", "point", *groups], rows)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _notes(size: Size, options: Options) -> list[str]:
    notes = [
        f"Ceilings are the best of {size.rounds} rounds, with the threads of the run ({options.threads}). A copy moves "
        f"{size.copied >> 20} MiB, each byte counted as read and as written.",
        f"Times are taken without the profiler, shares in {RUNS} more runs under it, which adds time between operations.",
        "FLOPs are those of convolutions and matrix products, a multiply and an add being two.",
        "Bytes: each ATen operation reads every tensor that it needs once and writes every result once; views are free. "
        "Caches can serve part of that, so that a rate can exceed the copy's; what moves within an operation is not counted.",
        "Search: the update of the images (moments, cosine transforms, step) and keeping the best. Stitch: its forward and "
        "backward pass and its Adam. Elementwise: activations, residual sums, normalisation, the error. Reductions: norms, "
        "pooling, losses. Rest: autograd itself, the head's matrix products, allocation. Between operations: Python.",
        "Rates and shares are those of steps as they are written, whose operations can be told apart. Compiled, as large sets "
        "are, a step does the same convolutions and moves fewer bytes.",
        f"An inversion of {size.steps} steps is divided by {size.steps} + 1, as in inversion_step.",
        f"Fitting: a step trains all of {', '.join(OBJECTIVES)}. What happens once, before the first step, is left out; "
        f"representations are kept as far as memory would allow with {TRAINING_SET:,} images.",
    ]
    if options.device == "cuda":
        notes += [
            "On the GPU shares are of the time of kernels; between operations, none runs.",
            "Products of float32 matrices are rounded to TF32 where cuDNN's convolutions are.",
        ]
    return notes

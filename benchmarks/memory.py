"""Memory that the inversion of a whole training set takes: it must not grow with the number of images."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from benchmarks.machine import peak_memory, resident_mib
from benchmarks.outcome import Cell, Figure, Outcome, Table, Target
from benchmarks.subjects import Options, study
from raystitch import catalogue, nets
from raystitch.config import StudyConfig, parse_config
from raystitch.execute import Bench, Job
from raystitch.plan import expand
from raystitch.store import Store
from raystitch.sweep import provenance
from raystitch.units import IriUnit

TARGETS: Mapping[str, Target] = {"peak": Target("at most", 32), "held": Target("at most", 32)}


@dataclass(frozen=True)
class Size:
    """What is inverted: all training images, or ``images`` of them; ``first`` shards are the measure for the rest."""

    images: int | None = None
    shard: int = 512
    batch: int = 128
    steps: int = 1
    point: int = 1
    first: int = 4


FULL, QUICK = Size(), Size(images=256, shard=32, batch=16, first=2)


@dataclass(frozen=True)
class Usage:
    """MiB that the process holds between two shards, and the most that it (or a GPU) has held so far."""

    held: float
    peak: float


def run(options: Options) -> Outcome:
    """Memory after all shards over memory after the first few."""
    size = QUICK if options.quick else FULL
    limit = {"test": 1} | ({} if size.images is None else {"train": size.images})
    iri = {"steps": size.steps, "shard_size": size.shard, "batch": size.batch}
    raw = study(options, limit, iri, [size.point])
    config = parse_config({**raw, "fit": {"batch": 2, "init_images": 2}})
    unit = expand(config, catalogue.inspect(config)).iris[0]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        used = _invert(_bench(options, config, unit, folder), unit)
    first, rest = used[size.first], used[size.first :]
    label = f"from {size.first} shards to {unit.shard_count} ({unit.count} images)"
    held = max(one.held for one in rest) - first.held
    shown = sorted({0, 1, size.first, unit.shard_count // 2, unit.shard_count})
    rows: list[list[Cell]] = [[n, round(used[n].held, 1), round(used[n].peak, 1)] for n in shown]
    return Outcome(
        [
            Figure(f"growth of memory held between shards, {label}", "MiB", held, target=TARGETS["held"]),
            Figure(f"growth of peak memory, {label}", "MiB", rest[-1].peak - first.peak, target=TARGETS["peak"]),
        ],
        [Table("MiB by number of shards made", ["shards", "held", "peak"], rows)],
        _notes(size, unit.count),
        {**asdict(size), "count": unit.count},
    )


def _bench(options: Options, config: StudyConfig, unit: IriUnit, folder: str) -> Bench:
    """What a worker has; the model is published without being measured, and the images are loaded."""
    store = Store(folder)
    bench = Bench(Job(config, store, provenance()), options.device)
    net = bench.shelf.new_net(unit.model)
    catalogue.load_checkpoint(net, config.models[unit.model.name], 0, "--weights")
    store.publish(unit.model.weights, nets.save_weights(net))
    bench.shelf.images(unit.data, "train", "test")
    return bench


def _invert(bench: Bench, unit: IriUnit) -> list[Usage]:
    """Make every shard; usage before the first and after each."""
    used = [_usage(bench.device)]
    for shard in unit.shards:
        bench.make_shard(shard)
        used.append(_usage(bench.device))
    return used


def _usage(device: str) -> Usage:
    peak = peak_memory(device)
    return Usage(resident_mib(), peak.get("gpu_mib", peak["process_mib"]))


def _notes(size: Size, count: int) -> list[str]:
    mib = 3 * 32 * 32 / 2**20
    return [
        f"The set itself is held as {count * mib:.0f} MiB of 8-bit pixels; in float32 it would be {4 * count * mib:.0f} MiB.",
        f"A batch of {size.batch} float32 images is {size.batch * 4 * mib:.1f} MiB.",
        f"One step per image, at point {size.point}: what is held does not depend on the number of steps.",
    ]

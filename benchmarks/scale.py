"""A study of 16,000 fits whose units compute nothing: what planning, scheduling, storing and loading cost by themselves."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from benchmarks.machine import peak_memory
from benchmarks.outcome import Figure, Outcome, Table, Target
from benchmarks.subjects import Options
from raystitch import distributed
from raystitch.catalogue import inspect
from raystitch.config import StudyConfig, parse_config
from raystitch.execute import Bench, Job
from raystitch.plan import Plan, expand
from raystitch.progress import Board
from raystitch.results import encode_rows, load_results, merge_rows, publish_study
from raystitch.schedule import Schedule, find_done
from raystitch.store import Store
from raystitch.units import FitUnit, IriUnit, ModelUnit, ShardUnit, Unit

TARGETS: Mapping[str, Target] = {
    "plan": Target("at most", 10),
    "memory": Target("at most", 2048),
    "load": Target("at most", 5),
}


@dataclass(frozen=True)
class Size:
    """Fronts of one study; each is paired with one end at 4 points, on 2 arms, with 4 objectives and 5 seeds: 160 fits."""

    fronts: int = 100


FULL, QUICK = Size(), Size(fronts=1)


class EmptyBench(Bench):
    """Publishes the files of a unit without computing anything."""

    def make_model(self, unit: ModelUnit) -> None:
        """Bytes for weights, and an empty record."""
        self.store.publish(unit.weights, b"none")
        self.store.publish(unit.marker, b"{}")

    def make_shard(self, unit: ShardUnit) -> None:
        """Bytes for a tar."""
        for level in (*unit.set.config.levels, None):
            self.store.publish(unit.tar(level), b"none")

    def close_set(self, unit: IriUnit) -> None:
        """Bytes for the gallery, and an empty index."""
        self.store.publish(unit.gallery, b"none")
        self.store.publish(unit.marker, b"{}")

    def fit(self, units: Sequence[FitUnit]) -> None:
        """A row with numbers of no meaning for each."""
        for unit in units:
            row = {"unit": unit.id, "objective": unit.objective, "arm": unit.arm, "seed": unit.seed, "eval_set": "test"}
            self.store.publish(unit.predictions, b"none")
            self.store.publish(unit.marker, encode_rows([{**row, "agreement": 50.0, "n_eval": 1}]))


class EmptyJob(Job):
    """Is done by an :class:`EmptyBench`."""

    def bench(self) -> Bench:
        """What computes nothing."""
        return EmptyBench(self)


def run(options: Options) -> Outcome:
    """Seconds and MiB of one sweep on a Ray of its own, and of loading its table before and after merging."""
    size = QUICK if options.quick else FULL
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store, begun = Store(folder), time.perf_counter()
        config = parse_config(_study(size))
        plan = expand(config, inspect(config))
        fits = [unit for unit in plan.fits if unit.kind == "fit"]
        _lap(seconds, f"plan of {len(fits)} fits", begun)
        publish_study(store, config, plan, {"created": "", "version": ""})
        begun = time.perf_counter()
        _sweep(config, plan, store)
        _lap(seconds, f"sweep of {len(list(plan.units))} units", begun)
        memory = peak_memory("cpu")["process_mib"]
        before = _load(seconds, "table before merging", store)
        begun = time.perf_counter()
        merge_rows(store)
        _lap(seconds, "merging", begun)
        after = _load(seconds, "table after merging", store)
        if not before == after == len(plan.rows):
            raise RuntimeError(f"{len(plan.rows)} rows were expected, not {before} and {after}")
    return Outcome(_figures(seconds, len(fits), memory), [_table(seconds)], _notes(plan), asdict(size))


def _study(size: Size) -> dict[str, Any]:
    net = {"arch": "resnet_mini", "data": "digits", "untrained": True, "args": {"blocks": [1, 1, 1]}}
    return {
        "name": "scale",
        "data": {"digits": {"source": "digits", "limit": {"train": 64, "test": 16}}},
        "models": {"end": {**net, "seeds": "0"}, "front": {**net, "seeds": f"1-{size.fronts}"}},
        "settings": {"all": {"front": "front", "end": "end/0"}},
        "objectives": ["hlm", "slm", "fula", "dm"],
        "seeds": "1-5",
        "fit": {"batch": 16, "init_images": 64},
    }


def _sweep(config: StudyConfig, plan: Plan, store: Store) -> None:
    schedule = Schedule(plan, find_done(plan, store))
    work: list[Unit | ShardUnit] = [*schedule.models, *schedule.shards, *schedule.iris, *schedule.fits]
    with Board(Counter(unit.kind for unit in work), console=Console(quiet=True)) as board:
        distributed.run(EmptyJob(config, store, {}), plan, schedule, board)
    left = len(list(plan.units)) - len(find_done(plan, store).units)
    if left:
        failures = sorted(store.tree("sweeps/scale"))
        raise RuntimeError(f"{left} units are missing; see {json.dumps(failures)}")


def _load(seconds: dict[str, float], what: str, store: Store) -> int:
    begun = time.perf_counter()
    rows = len(load_results(store.url))
    _lap(seconds, what, begun)
    return rows


def _lap(seconds: dict[str, float], what: str, begun: float) -> None:
    seconds[what] = time.perf_counter() - begun


def _figures(seconds: Mapping[str, float], fits: int, memory: float) -> list[Figure]:
    plan, sweep, _, _, load = seconds.values()
    return [
        Figure("plan, from the config", "s", plan, target=TARGETS["plan"]),
        Figure("scheduling and storing, per fit", "ms", 1e3 * sweep / fits),
        Figure("peak memory of the driver", "MiB", memory, target=TARGETS["memory"]),
        Figure("the table after merging", "s", load, target=TARGETS["load"]),
    ]


def _table(seconds: Mapping[str, float]) -> Table:
    return Table("Seconds", ["what", "s"], [[what, round(value, 2)] for what, value in seconds.items()])


def _notes(plan: Plan) -> list[str]:
    return [
        f"{len(plan.models)} models, {len(plan.iris)} IRI sets, {len(plan.rows)} rows; four fits share a trial.",
        "Two files are written per fit, on a local disk; the sweep's time holds the start of Ray.",
    ]

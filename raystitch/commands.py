"""What each command of ``raystitch`` does: from parsed arguments to printed lines and an exit code."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from raystitch.access import fill_in, redact
from raystitch.config import NORMALISATIONS, StudyConfig, load_config
from raystitch.config.track import check_installed
from raystitch.damage import warn_of_damage
from raystitch.errors import InputError
from raystitch.plan import expand
from raystitch.progress import plain
from raystitch.records import UnitRecord
from raystitch.results import load_table, merge_rows, read_study, sweep_names
from raystitch.store import Store

LARGEST_SIDE = 4096
"""Pixels; larger images are a slip of the keyboard."""

_SHOWN = [
    "setting", "front", "end", "front_point", "end_point", "arm", "objective", "seed", "eval_set",
    "agreement", "kappa", "top1", "match_error", "iri_r_median",
]  # fmt: skip


def sweep(arguments: Namespace) -> int:
    """Run a study; with ``--dry-run`` only print its plan."""
    if arguments.dry_run:
        return plan(arguments)
    from raystitch.sweep import run_sweep

    done = run_sweep(_config(arguments), arguments.storage)
    lines = [
        f"results  {done.storage}",
        f"report   {done.report}",
        f'load     raystitch.load_results("{done.storage}", "{done.sweep}")',
    ]
    if done.missing:
        status = f"raystitch status {done.sweep} --storage {shlex.quote(done.storage)}"
        lines.append(f"missing  {done.missing} units failed or could not start: {status}")
    say("\n".join(lines))
    return 1 if done.missing else 0


def plan(arguments: Namespace) -> int:
    """Print the units of each study by kind and what the missing ones will cost; of several, what they share."""
    from raystitch.planning import Planned, cost_line, look_ahead, study_table, together_table

    paths = arguments.config if isinstance(arguments.config, list) else [arguments.config]
    studies: list[Planned] = []
    for path in paths:
        counted = {unit for planned in studies for unit in planned.missing}
        studies.append(look_ahead(load_study(path, arguments.overrides), arguments.storage, counted))
        say(study_table(studies[-1]))
    if len(studies) > 1:
        say(together_table(studies))
    for planned in studies:
        if planned.assumed:
            what = f"{planned.config.name}: not there, so taken from the config (these ids are not those of a run): "
            say(what + ", ".join(planned.assumed))
    say(cost_line(studies))
    return 0


def validate(arguments: Namespace) -> int:
    """Check a config and everything it names."""
    from raystitch.catalogue import inspect
    from raystitch.sweep import shared_store

    config = _config(arguments)
    check_installed(config.track)
    units = expand(config, inspect(config, look_at_images=True))
    shared_store(arguments.storage or config.storage).check_writable()
    say(f"{config.name} is valid: {len(units.models)} models, {len(units.iris)} IRI sets, {len(units.fits)} fits")
    return 0


def status(arguments: Namespace) -> int:
    """Print what is done, missing and failed of the studies in a storage, and what runs now; 1 if anything is missing."""
    from raystitch.schedule import list_files

    store = Store(arguments.storage)
    names = _sweeps(store, arguments.sweep)
    files = list_files(store)
    return _for_each(names, lambda name: int(_say_status(store, name, files) > 0))


def _for_each(names: Sequence[str], work: Callable[[str], int]) -> int:
    """Do something for each study. Returns the largest code; a study whose record is damaged hides no other, and makes it 2."""
    worst = 0
    for name in names:
        try:
            code = work(name)
        except InputError as error:
            code = 2
            print(f"raystitch: {redact(str(error))}", file=sys.stderr)
        worst = max(worst, code)
    return worst


def _say_status(store: Store, name: str, files: set[str]) -> int:
    """Print how one study stands; returns how many of its units are missing."""
    from raystitch.heartbeat import now_utc, read_words
    from raystitch.reporting import present_units, read_failures, settled_units, unreached_levels
    from raystitch.view import shown

    units = read_study(store, name).units
    present = present_units(units, files)
    done = settled_units(units, present)
    failures = read_failures(store, units, done, warn_of_damage)
    say(_status_table(units, done, failures, title=name))
    for word in read_words(store, name).values():
        for part in shown(word, now_utc()):
            say(part)
    for failure in failures:
        say(f"failed: {failure['kind']} {failure['label']} ({failure['id']}): {failure['error']}")
    if unreached := unreached_levels(store, units, present):
        say(f"residual levels that no image reached, where the IRIs are those of the best: {unreached}")
    return len(units) - len(done)


def results(arguments: Namespace) -> int:
    """Print the main columns of the results table, or write every column to a file."""
    store = Store(arguments.storage)
    _sweeps(store, arguments.sweep)
    table = load_table(store, arguments.sweep)
    if arguments.output is None:
        text = table[_SHOWN].to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="")
        print(plain(text) if len(table) else "no results yet")
        return 0
    _export(table, Path(arguments.output))
    say(f"{len(table)} rows written to {arguments.output}")
    return 0


def compact(arguments: Namespace) -> int:
    """Merge the rows of all studies of a storage into one file."""
    store = Store(arguments.storage)
    _sweeps(store, None)
    merged = merge_rows(store)
    say("no results yet" if merged is None else f"{merged.units} units in {merged.name}, {merged.added} of them new")
    return 0


def report(arguments: Namespace) -> int:
    """Write the report of a study, or of every one, from what is in the storage now."""
    from raystitch.reporting import publish_report

    store = Store(arguments.storage)

    def write(name: str) -> int:
        say(publish_report(store, name))
        return 0

    return _for_each(_sweeps(store, arguments.sweep), write)


def points(arguments: Namespace) -> int:
    """Print the stitch points of a net."""
    from raystitch import nets

    options = _keyword_arguments(arguments.arg)
    mean, std = NORMALISATIONS["imagenet"]
    net = nets.build_net(arguments.model, 10, options, mean, std)
    size = _default_size(net.net) if arguments.size is None else arguments.size
    if not 1 <= size <= LARGEST_SIDE:
        raise InputError("--size", size, f"give a side from 1 to {LARGEST_SIDE} pixels")
    table = Table("point", "kind", "module", "shape", title=f"{arguments.model} at {size} px", title_justify="left")
    for point in nets.find_points(net, size):
        table.add_row(str(point.index), point.kind, point.module, " × ".join(map(str, point.shape)))
    say(table)
    return 0


def _default_size(net: Any) -> int:
    """Side of the images that a timm net was made for; 32 where a net does not say."""
    return int(getattr(net, "default_cfg", {}).get("input_size", (3, 32, 32))[-1])


def _config(arguments: Namespace) -> StudyConfig:
    return load_study(arguments.config, arguments.overrides)


def load_study(path: str, overrides: Sequence[str] = ()) -> StudyConfig:
    """A study, whose data and storage this process can reach from now on."""
    config = load_config(path, overrides)
    fill_in(config.s3.endpoint, config.s3.region, config.s3.profile)
    return config


def _status_table(units: Sequence[UnitRecord], done: set[str], failures: Sequence[dict[str, str]], title: str) -> Table:
    table = Table("kind", "units", "done", "failed", "missing", title=title, title_justify="left")
    totals = Counter(unit.kind for unit in units)
    finished = Counter(unit.kind for unit in units if unit.id in done)
    failed = Counter(failure["kind"] for failure in failures)
    for kind, total in totals.items():
        row = (total, finished[kind], failed[kind], total - finished[kind] - failed[kind])
        table.add_row(plain(kind), *map(str, row))
    return table


def _sweeps(store: Store, wanted: str | None) -> list[str]:
    if wanted is not None:
        read_study(store, wanted)
        return [wanted]
    names = sweep_names(store)
    if not names:
        raise InputError("--storage", store.url, "holds no study; run 'raystitch sweep CONFIG' first")
    return names


def _export(table: pd.DataFrame, target: Path) -> None:
    writers = {
        ".csv": lambda: table.to_csv(target, index=False),
        ".json": lambda: table.to_json(target, orient="records", indent=1),
        ".parquet": lambda: table.to_parquet(target, index=False),
    }
    if target.suffix not in writers:
        raise InputError("--output", str(target), f"the name must end in {', '.join(writers)}")
    try:
        writers[target.suffix]()
    except OSError as error:
        raise InputError("--output", str(target), f"cannot be written: {error.strerror or error}") from error


def _keyword_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError("--arg", pair, "write it as key=value")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError("--arg", pair, f"the value is not valid YAML: {error}") from error
    return options


def say(what: str | Table) -> None:
    """Print; what a storage says may not steer the terminal, by markup or by control characters."""
    shown = plain(what) if isinstance(what, str) else what
    Console(highlight=False, markup=False, soft_wrap=isinstance(what, str)).print(shown)

"""Gather what a study left in a storage and have its report written there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from raystitch.damage import warn_of_damage
from raystitch.gallery import decode_gallery
from raystitch.report import GalleryEntry, IriFacts, IriLevel, StudyFacts, write_report
from raystitch.results import load_table, read_study
from raystitch.schedule import list_files
from raystitch.store import Store
from raystitch.units import IriUnit, ModelUnit, still_needed

_PROTOCOLS = {
    "matched": "matched: no augmentation and frozen BatchNorm on both arms",
    "paper": "paper: augmentation and moving BatchNorm on the real arm only, as published",
}


def publish_report(store: Store, sweep: str, on_damage: Callable[[str], None] | None = None) -> str:
    """Write the page and figures of a study under ``reports/<sweep>/``. Returns the page's path or URL.

    ``on_damage`` is given the name of each unreadable file of results, IRI indices and galleries, which is left out; by
    default a warning is issued.

    Raises:
        InputError: the storage holds no such study.
    """
    damaged = on_damage or warn_of_damage
    study = read_study(store, sweep)
    config, folder = study["config"], f"reports/{sweep}"
    settings = config["settings"].values()  # each may have its own protocol and objectives
    protocols = dict.fromkeys(own.get("protocol") or config["protocol"] for own in settings)
    files = list_files(store)
    done = present_units(study, files)
    sets = _read_sets(store, study, done, damaged)
    facts = StudyFacts(
        name=sweep,
        title=config["title"],
        created=study["created"],
        version=study["version"],
        protocol="; ".join(_PROTOCOLS[name] for name in protocols),
        settings=list(config["settings"]),
        objectives=[*config["objectives"], *(name for own in settings for name in own.get("objectives") or ())],
        iri_sets=sets,
        failures=read_failures(store, study, done),
        gallery=_galleries(store, sets, files, damaged),
        fits_total=sum(unit["kind"] == "fit" for unit in study["units"]),
        storage=store.url,
        published=config.get("published"),
        notes=config.get("notes", ""),
    )
    write_report(load_table(store, sweep, on_damage), facts, lambda name, data: store.replace(f"{folder}/{name}", data))
    return f"{store.url}/{folder}/index.html"


def read_failures(store: Store, study: dict[str, Any], done: AbstractSet[str]) -> list[dict[str, str]]:
    """Units of a study that failed and are not among those done: ``id``, ``kind``, ``label``, ``error``, ``trace``."""
    recorded = store.names("failures")
    failed = [u for u in study["units"] if f"{u['id']}.json" in recorded and u["id"] not in done]
    records = _parse(store, [f"failures/{unit['id']}.json" for unit in failed])
    told = [(unit, records.get(f"failures/{unit['id']}.json", {})) for unit in failed]
    return [
        {**record, **{key: unit[key] for key in ("id", "kind", "label")}} for unit, record in told if "error" in record
    ]


def present_units(study: dict[str, Any], files: set[str]) -> set[str]:
    """Ids of the units of a study whose files are all there; of records that an older version left, whose marker is there.

    Args:
        study: the record of the study.
        files: what the storage holds (:func:`raystitch.schedule.list_files`).
    """
    return {unit["id"] for unit in study["units"] if files.issuperset(unit.get("files", [unit["marker"]]))}


def settled_units(study: dict[str, Any], present: AbstractSet[str]) -> set[str]:
    """Ids of the units of a study that are there, or that nothing needs which is missing: what no sweep would make."""
    made_for_others = (ModelUnit.kind, IriUnit.kind)
    parents = {unit["id"]: unit.get("parents", []) for unit in study["units"]}
    wanted = {unit["id"] for unit in study["units"] if unit["kind"] not in made_for_others}
    return set(parents) - still_needed(wanted - present, parents, present)


def unreached_levels(store: Store, study: dict[str, Any], done: AbstractSet[str]) -> str:
    """Residual levels that no image of a finished IRI set reached, each with these sets: ``0.1 (a/0 point 3 on digits)``.

    Fits on such a level are on the IRIs of the best. Empty if there is none; only sets that have levels are read.
    """
    units = [unit for unit in study["units"] if any(_is_of_a_level(name) for name in unit.get("files", ()))]
    found: dict[float, list[str]] = {}
    for each in _read_sets(store, {"units": units}, done, warn_of_damage):
        for level in each.levels:
            if not level.reached:
                found.setdefault(level.level, []).append(f"{each.front} point {each.point} on {each.dataset}")
    ordered = sorted(found.items(), reverse=True)
    return "; ".join(f"{level:g} ({', '.join(dict.fromkeys(sets))})" for level, sets in ordered)


def _is_of_a_level(name: str) -> bool:
    """Whether a file is a shard of a residual level, which has a folder of its own: ``iris/<id>/r0.1/shard-00000.tar``."""
    return name.startswith("iris/") and name.count("/") == 3


def _read_sets(
    store: Store, study: dict[str, Any], done: AbstractSet[str], damaged: Callable[[str], None]
) -> list[IriFacts]:
    """What the indices of a study's IRI sets say, under the names that this study gives the sets."""
    units = [unit for unit in study["units"] if unit["kind"] == IriUnit.kind and unit["id"] in done]
    records = _parse(store, [unit["marker"] for unit in units])
    sets = []
    for unit in (unit for unit in units if unit["marker"] in records):
        try:
            sets.append(_iri_facts({**records[unit["marker"]], **unit}))
        except (KeyError, TypeError, ValueError, AttributeError):  # whatever other JSON makes of it
            damaged(unit["marker"])
    return sets


def _parse(store: Store, names: list[str]) -> dict[str, dict[str, Any]]:
    """Name → JSON record of those of the files that are there; an empty one for each that is damaged."""
    records: dict[str, dict[str, Any]] = {}
    for name, content in store.read_many(names).items():
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            record = None
        records[name] = record if isinstance(record, dict) else {}
    return records


def _iri_facts(record: Mapping[str, Any]) -> IriFacts:
    stored, before = ({key: float(r) for key, r in record[name].items()} for name in ("residual", "residual_float"))
    return IriFacts(
        id=record["id"],
        front=record["front"],
        dataset=record["dataset"],
        point=record["point"],
        module=str(record["module"]),
        count=int(record["count"]),
        dtype=str(record["dtype"]),
        r_median=stored["median"],
        r_p90=stored["p90"],
        r_max=stored["max"],
        r_median_float=before["median"],
        r_p90_float=before["p90"],
        r_max_float=before["max"],
        optimiser=str(record["optimiser"]),
        steps=int(record["steps"]),
        levels=[
            IriLevel(float(each["level"]), int(each["reached"]), float(each["residual"]["median"]))
            for each in record.get("levels", ())
        ],
    )


def _galleries(
    store: Store, sets: Sequence[IriFacts], files: AbstractSet[str], damaged: Callable[[str], None]
) -> list[GalleryEntry]:
    names = {f"iris/{each.id}/gallery.npz": each for each in sets}
    names = {name: each for name, each in names.items() if name in files}  # older records may lack one
    entries = []
    for name, content in store.read_many(names).items():
        try:
            shown, facts = decode_gallery(content), names[name]
        except ValueError:
            damaged(name)
        else:
            entries.append(GalleryEntry(facts.front, facts.dataset, facts.point, **shown, made=facts))
    return entries

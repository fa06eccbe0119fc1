"""Gather what a study left in a storage and have its report written there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from raystitch.damage import warn_of_damage
from raystitch.gallery import decode_gallery
from raystitch.records import FailureRecord, IriRecord, Record, UnitRecord, read_record
from raystitch.report import GalleryEntry, IriFacts, IriLevel, StudyFacts, write_report
from raystitch.results import load_table, read_study
from raystitch.schedule import list_files
from raystitch.store import Store
from raystitch.tables import Damaged
from raystitch.units import IriUnit, ModelUnit, still_needed

_R = TypeVar("_R", bound=Record)
_PROTOCOLS = {
    "matched": "matched: no augmentation and frozen BatchNorm on both arms",
    "paper": "paper: augmentation and moving BatchNorm on the real arm only, as published",
}


def publish_report(store: Store, sweep: str, on_damage: Damaged | None = None) -> str:
    """Write the page and figures of a study under ``reports/<sweep>/``. Returns the page's path or URL.

    ``on_damage`` is given the name of each unreadable file of results, failures, IRI indices and galleries, which is left
    out; by default a warning is issued.

    Raises:
        InputError: the storage holds no such study, or its record is damaged.
    """
    damaged = on_damage or warn_of_damage
    study, folder = read_study(store, sweep), f"reports/{sweep}"
    config, settings = study.config, study.config.settings.values()  # each may have its own protocol and objectives
    protocols = dict.fromkeys(own.protocol or config.protocol for own in settings)
    files = list_files(store)
    done = present_units(study.units, files)
    sets = _read_sets(store, study.units, done, damaged)
    facts = StudyFacts(
        name=sweep,
        title=config.title,
        created=study.created,
        version=study.version,
        protocol="; ".join(_PROTOCOLS[name] for name in protocols),
        settings=list(config.settings),
        objectives=[*config.objectives, *(name for own in settings for name in own.objectives or ())],
        iri_sets=sets,
        failures=read_failures(store, study.units, done, damaged),
        gallery=_galleries(store, sets, files, damaged),
        fits_total=sum(unit.kind == "fit" for unit in study.units),
        storage=store.url,
        published=config.published,
        notes=config.notes,
    )
    write_report(load_table(store, sweep, on_damage), facts, lambda name, data: store.replace(f"{folder}/{name}", data))
    return f"{store.url}/{folder}/index.html"


def read_failures(
    store: Store, units: Sequence[UnitRecord], done: AbstractSet[str], damaged: Damaged
) -> list[dict[str, str]]:
    """Units of a study that failed and are not among those done: ``id``, ``kind``, ``label``, ``error``, ``trace``."""
    recorded = store.names("failures")
    failed = {f"failures/{unit.id}.json": unit for unit in units if unit.id not in done}
    there = [name for name in failed if name.removeprefix("failures/") in recorded]
    return [
        {**failed[name].model_dump(include={"id", "kind", "label"}), "error": found.error, "trace": found.trace}
        for name, found in _read(store, FailureRecord, there, damaged)
    ]


def present_units(units: Sequence[UnitRecord], files: set[str]) -> set[str]:
    """Ids of the units of a study whose files are all there.

    Args:
        units: of the record of the study.
        files: what the storage holds (:func:`raystitch.schedule.list_files`).
    """
    return {unit.id for unit in units if files.issuperset(unit.needed)}


def settled_units(units: Sequence[UnitRecord], present: AbstractSet[str]) -> set[str]:
    """Ids of the units of a study that are there, or that nothing needs which is missing: what no sweep would make."""
    made_for_others = (ModelUnit.kind, IriUnit.kind)
    parents = {unit.id: unit.parents for unit in units}
    wanted = {unit.id for unit in units if unit.kind not in made_for_others}
    return set(parents) - still_needed(wanted - present, parents, present)


def unreached_levels(store: Store, units: Sequence[UnitRecord], done: AbstractSet[str]) -> str:
    """Residual levels that no image of a finished IRI set reached, each with these sets: ``0.1 (a/0 point 3 on digits)``.

    Fits on such a level are on the IRIs of the best. Empty if there is none; only sets that have levels are read.
    """
    with_levels = [unit for unit in units if any(map(_is_of_a_level, unit.needed))]
    found: dict[float, list[str]] = {}
    for each in _read_sets(store, with_levels, done, warn_of_damage):
        for level in each.levels:
            if not level.reached:
                found.setdefault(level.level, []).append(f"{each.front} point {each.point} on {each.dataset}")
    ordered = sorted(found.items(), reverse=True)
    return "; ".join(f"{level:g} ({', '.join(dict.fromkeys(sets))})" for level, sets in ordered)


def _is_of_a_level(name: str) -> bool:
    """Whether a file is a shard of a residual level, which has a folder of its own: ``iris/<id>/r0.1/shard-00000.tar``."""
    return name.startswith("iris/") and name.count("/") == 3


def _read_sets(store: Store, units: Sequence[UnitRecord], done: AbstractSet[str], damaged: Damaged) -> list[IriFacts]:
    """What the indices of a study's IRI sets say, under the names that this study gives the sets."""
    wanted = {unit.marker: unit for unit in units if unit.kind == IriUnit.kind and unit.id in done}
    sets = []
    for name, record in _read(store, IriRecord, list(wanted), damaged):
        facts = _iri_facts(wanted[name], record)
        if facts is None:
            damaged(name)
        else:
            sets.append(facts)
    return sets


def _read(store: Store, kind: type[_R], names: list[str], damaged: Damaged) -> Iterator[tuple[str, _R]]:
    """Names and records of those files that are there and not damaged."""
    for name, content in store.read_many(names).items():
        record = read_record(kind, content)
        if record is None:
            damaged(name)
        else:
            yield name, record


def _iri_facts(unit: UnitRecord, record: IriRecord) -> IriFacts | None:
    """Facts of a set; None where neither the study nor the index says which it is."""
    front, dataset = unit.front or record.front, unit.dataset or record.dataset
    point = record.point if unit.point is None else unit.point
    if front is None or dataset is None or point is None:
        return None
    stored, before = record.residual, record.residual_float
    return IriFacts(
        id=unit.id,
        front=front,
        dataset=dataset,
        point=point,
        module=record.module,
        count=record.count,
        dtype=record.dtype,
        r_median=stored.median,
        r_p90=stored.p90,
        r_max=stored.max,
        r_median_float=before.median,
        r_p90_float=before.p90,
        r_max_float=before.max,
        optimiser=record.optimiser,
        steps=record.steps,
        levels=[IriLevel(each.level, each.reached, each.residual.median) for each in record.levels],
    )


def _galleries(store: Store, sets: Sequence[IriFacts], files: AbstractSet[str], damaged: Damaged) -> list[GalleryEntry]:
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

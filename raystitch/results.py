"""The results table: its schema, how units write their rows, and how users read them.

A fit unit publishes its measured rows, one per evaluation set, in one small Parquet file. What a study calls things (its
settings, model names, point numbers) is not the unit's business: it lies in the study's own file of rows, and
:func:`load_results` joins the two. So studies share units, and the table can be read at any time, also from elsewhere
and while a sweep is running.

Columns of the table, beside the names of the study:

======================  =============================================================================================
``unit``                id of the fit; its file is ``fits/<unit>.parquet``, and ``predictions/<unit>.npz`` what it predicts
``objective``           hlm, slm, dm, fula, dm_exact, a sum such as 0.5*fula@2+slm; none for an unstitched end
``stitch``              affine, identity, low_rank:8, mlp:64; none for an unstitched end
``arm``                 real, iri; iri_front, iri_end where only that net sees the IRI; none for an unstitched end
``inputs``              clean, or adversarial: the stitch was trained on images attacked by PGD as it trained; none
``eval_set``            test, shuffled, clean; apgd_ce_dlr, autoattack: attacked, within ``eps`` in pixels, against the very net
                        that is measured; train: rows of representation metrics
``agreement`` …         percent for agreement*, top*; METHOD §7. ``kappa``, ``kappa_soft``: at most 1. ``loss`` in nats
``agreement_low`` …     bounds of the 95 % bootstrap interval over the evaluation samples, ``_low`` and ``_high`` of each metric
``match_error``         relative Frobenius error at the stitch on the evaluation set; ``match_error_later`` at each later point
``iri_level``           residual at which each IRI was taken, if its inversion got there; null: as good as the run got
``iri_r_median``        residual r of the IRIs that the stitch was trained on, as stored; ``iri_r_p90`` its 90th percentile
``stitch_rank``         singular values of T above 1e-3 of the largest; ``stitch_condition`` largest over smallest; null of mlp
``init_rank``           the same two of the activations from which the least-squares start was solved
``cka`` …               CKA of f(x) and g(x), on n_eval training images; ``cka_iri``: of f(x′) and g(x′), x′ their IRIs;
                        ``stir``: of g(x) and g(x′); ``stir_front``: of f(x) and f(x′). In rows with objective none only
``wall_s``              seconds spent on the fit itself (the passes shared by a group are split evenly)
======================  =============================================================================================
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raystitch.config import StudyConfig
from raystitch.config.values import MAX_POINTS, STUDY_NAME
from raystitch.damage import warn_of_damage
from raystitch.errors import InputError, did_you_mean
from raystitch.plan import Plan
from raystitch.records import StudyRecord, read_record
from raystitch.store import Store
from raystitch.tables import Damaged, Merged, compact, encode, read_rows, read_tables
from raystitch.units import FitUnit, IriUnit, Unit

METRICS = (
    "agreement", "agreement_top1", "agreement_correct", "kappa", "kappa_soft",
    "top1", "top5", "loss", "top1_end", "top1_front",
)  # fmt: skip
SIMILARITIES = ("cka", "cka_iri", "stir", "stir_front")
BOUNDS = tuple(f"{name}_{bound}" for name in METRICS for bound in ("low", "high"))
_TRAINING = ("iri_level", "iri_r_median", "iri_r_p90", "stitch_condition", "init_condition", "train_loss", "wall_s")

MEASURED = pa.schema(
    [
        ("unit", pa.string()),
        ("objective", pa.string()),
        ("stitch", pa.string()),
        ("arm", pa.string()),
        ("inputs", pa.string()),
        ("seed", pa.int64()),
        ("eval_set", pa.string()),
        ("n_eval", pa.int64()),
        ("eps", pa.float64()),
        *((name, pa.float64()) for name in METRICS),
        ("match_error", pa.float64()),
        ("match_error_later", pa.list_(pa.float64())),
        ("stitch_rank", pa.int64()),
        ("init_rank", pa.int64()),
        *((name, pa.float64()) for name in _TRAINING),
        *((name, pa.float64()) for name in BOUNDS),
        *((name, pa.float64()) for name in SIMILARITIES),
        ("device", pa.string()),
        ("created", pa.string()),
        ("version", pa.string()),
        ("git_commit", pa.string()),
    ]
)
"""Schema of ``fits/<unit>.parquet``."""

NAMES = pa.schema(
    [
        ("unit", pa.string()),
        ("sweep", pa.string()),
        ("setting", pa.string()),
        ("dataset", pa.string()),
        ("test_dataset", pa.string()),
        ("front", pa.string()),
        ("end", pa.string()),
        ("front_arch", pa.string()),
        ("end_arch", pa.string()),
        ("front_point", pa.int64()),
        ("end_point", pa.int64()),
        ("front_module", pa.string()),
        ("end_module", pa.string()),
        ("protocol", pa.string()),
    ]
)
"""Schema of ``sweeps/<name>/rows.parquet``."""

_LONGEST = 1000  # characters of a name: those of a config are shorter, those of modules are part of user code

SORT_BY = [
    "sweep", "setting", "front", "end", "front_point", "end_point", "arm", "objective", "seed", "iri_level", "eval_set",
]  # fmt: skip


def encode_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = MEASURED) -> bytes:
    """Rows as one Parquet file with exactly the given schema; columns that a row lacks are null."""
    return encode(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))


def decode_rows(content: bytes) -> list[dict[str, Any]]:
    """The rows of one such file."""
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
    return rows


def publish_study(store: Store, config: StudyConfig, plan: Plan, provenance: Mapping[str, str]) -> None:
    """Record what the study is: its config and units, and the names that its rows carry."""
    units = [unit_record(unit, label) for unit, label in labelled(plan)]
    study = {"config": study_record(config), "units": units, **provenance}
    store.replace(f"sweeps/{config.name}/rows.parquet", encode_rows(_name_rows(config, plan), NAMES))
    store.replace(f"sweeps/{config.name}/study.json", json.dumps(study, indent=1).encode())


def unit_record(unit: Unit, label: str) -> dict[str, Any]:
    """A unit as plain JSON, as it is kept in a study's record; ``label`` is a line by which a person knows it."""
    return {
        "id": unit.id,
        "kind": unit.kind,
        "marker": unit.marker,
        "files": unit.files,
        "parents": [parent.id for parent in unit.parents],
        "label": label,
        **_set_names(unit),
    }


def study_record(config: StudyConfig) -> dict[str, Any]:
    """A config as plain JSON, as it is kept in the storage."""
    record: dict[str, Any] = json.loads(config.model_dump_json(exclude={"storage", "s3", "track"}))
    return record


def _set_names(unit: Unit) -> dict[str, Any]:
    """What this study calls the front, dataset and point of an IRI set, which it may share with others."""
    if not isinstance(unit, IriUnit):
        return {}
    return {"front": unit.model.ref, "dataset": unit.data, "point": unit.point}


def labelled(plan: Plan) -> Iterable[tuple[Unit, str]]:
    """Every unit with a line by which a person knows it."""
    for model in plan.models:
        yield model, model.ref
    for iris in plan.iris:
        yield iris, f"{iris.model.ref} point {iris.point} on {iris.data}"
    for fit in plan.fits:
        yield fit, f"{fit.front.ref}:{fit.front_point} → {fit.end.ref}:{fit.end_point}{_how(fit)} on {fit.data}"


def _how(fit: FitUnit) -> str:
    level = "" if fit.level is None else f" r {fit.level:g}"
    if fit.kind != "fit":
        return f" {fit.kind}{level}"
    attacked = " attacked" if fit.attack else ""
    return f" {fit.objective} {fit.arm}{level}{attacked} seed {fit.seed}"


def _name_rows(config: StudyConfig, plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "unit": row.unit.id,
            "sweep": config.name,
            "setting": row.setting,
            "dataset": row.unit.data,
            "test_dataset": row.unit.test_data,
            "front": row.unit.front.ref,
            "end": row.unit.end.ref,
            "front_arch": row.front_arch,
            "end_arch": row.end_arch,
            "front_point": row.unit.front_point,
            "end_point": row.unit.end_point,
            "front_module": row.front_module,
            "end_module": row.end_module,
            "protocol": row.protocol,
        }
        for row in plan.rows
    ]


def sweep_names(store: Store) -> list[str]:
    """Names of the studies recorded in a storage."""
    names = [name for name in store.folders("sweeps") if re.fullmatch(STUDY_NAME, name)]
    return [name for name in names if store.exists(f"sweeps/{name}/study.json")]


def read_study(store: Store, sweep: str) -> StudyRecord:
    """The record of one study.

    Raises:
        InputError: the storage holds no study of that name, or its record is damaged.
    """
    name = f"sweeps/{sweep}/study.json"
    try:
        if not re.fullmatch(STUDY_NAME, sweep):
            raise FileNotFoundError(name)
        study = read_record(StudyRecord, store.read(name))
    except FileNotFoundError:
        known = sweep_names(store)
        hint = did_you_mean(sweep, known) if known else "; there are none"
        raise InputError("sweep", sweep, f"no such sweep in {store.url}{hint}") from None
    if study is None or study.config.name != sweep:
        raise InputError(f"{store.url}/{name}", None, "is damaged; run the sweep again")
    return study


def load_results(
    storage: str, sweep: str | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """All finished rows of one study, or of every study in a storage, as a pandas table.

    A fit that several studies or settings share appears once under each. Safe to call while sweeps are running.

    Args:
        storage: folder or URL given to the sweep.
        sweep: a study's name; all studies by default.
        storage_options: keyword arguments for the fsspec filesystem.

    Returns:
        One row per (fit, evaluation set), with the columns described in this module.

    Raises:
        InputError: there is no such study.
    """
    return load_table(Store(storage, dict(storage_options or {})), sweep)


def load_table(store: Store, sweep: str | None = None, on_damage: Damaged | None = None) -> pd.DataFrame:
    """:func:`load_results` for a store that is already open; ``on_damage`` is given each unreadable file's name.

    A study whose record is there but whose file of rows is not counts as damaged; by default a warning is issued.
    """
    damaged = on_damage or warn_of_damage
    if sweep is not None:
        read_study(store, sweep)
    sweeps = [sweep] if sweep is not None else sweep_names(store)
    found = [part for name in sweeps for part in _names_of(store, name, damaged)]
    names: pd.DataFrame = pa.concat_tables([NAMES.empty_table(), *found]).to_pandas()
    measured: pd.DataFrame = read_rows(store, set(names["unit"]), MEASURED, damaged).to_pandas()
    table: pd.DataFrame = names.merge(measured, on="unit", how="inner")
    return table.sort_values(SORT_BY, kind="stable", ignore_index=True)[_column_order()]


def merge_rows(store: Store) -> Merged | None:
    """Merge the rows of all studies into one file, which makes reading fast; see :func:`raystitch.tables.compact`."""
    return compact(store, MEASURED, warn_of_damage)


def _column_order() -> list[str]:
    first = [
        *NAMES.names[: NAMES.names.index("protocol")],
        "objective", "arm", "protocol", "seed", "iri_level", "inputs", "eval_set", "n_eval",
    ]  # fmt: skip
    return first + [name for name in MEASURED.names if name not in first]


def _names_of(store: Store, sweep: str, damaged: Damaged) -> Iterator[pa.Table]:
    """The rows that a study names, as one table; none where their file is missing or damaged."""
    name = f"sweeps/{sweep}/rows.parquet"
    for table in read_tables(store, [name], NAMES, damaged):
        if _are_names(table, sweep):
            yield table
        else:
            damaged(name)


def _are_names(table: pa.Table, sweep: str) -> bool:
    """Whether rows are those of a study, with points and names such as a study may have."""
    if table["sweep"].unique().to_pylist() not in ([], [sweep]):
        return False
    for column in table.columns:
        is_text = column.type == pa.string()
        sizes = pc.min_max(pc.utf8_length(column) if is_text else column).as_py()
        most = _LONGEST if is_text else MAX_POINTS + 1
        if sizes["max"] is not None and not 0 <= sizes["min"] <= sizes["max"] <= most:
            return False
    return True

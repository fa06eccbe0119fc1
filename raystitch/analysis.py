"""Scores that combine rows of the results table (METHOD §7, §8): excess agreement, rAuA, trend with r, spread over runs.

Tables in, tables out: plain pandas on what :func:`raystitch.load_results` returns. Every score keeps the columns that name
its rows, so that nothing is averaged unsaid; where rows could not be told apart, it is refused. The residual of the IRIs
stays with every score that comes from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raystitch.errors import InputError

CURVE = (
    "sweep", "setting", "dataset", "test_dataset", "front", "end", "front_arch", "end_arch",
    "objective", "stitch", "arm", "iri_level", "inputs", "protocol", "seed", "eval_set",
)  # fmt: skip
"""Columns that name a curve: one run of one pair, over its points."""
POINT = ("front_point", "end_point")
FIT = (*CURVE[:-1], *POINT)
"""Columns that name a fit."""

RESIDUALS = ("iri_r_median", "iri_r_p90")
"""Columns that say how identical the IRIs of a row are."""
HALVING_FROM = 1.25
"""How much larger another residual must be for a trend: levels closer than that differ by chance more than by r."""

_NO_FACTORS = ("unit", "front_module", "end_module", "agreement", "agreement_shuffled", "excess", "raua", *RESIDUALS)


def excess_agreement(results: pd.DataFrame, by: Sequence[str] = FIT) -> pd.DataFrame:
    """Agreement on marked test images minus agreement on the same images with shuffled markers, in points of percent.

    Args:
        results: the results table.
        by: columns that name a fit; add those by which a study varies more than these. Columns that the table lacks are
            left out.

    Returns:
        One row per fit that has both evaluation sets: the columns ``by``, those of :data:`RESIDUALS` that the table has,
        ``agreement`` (marked), ``agreement_shuffled`` and ``excess`` = their difference, −100 … 100: how much of the
        behaviour follows the marker.

    Raises:
        InputError: the table lacks the agreement or the evaluation set, or two rows of one set have equal ``by``.
    """
    _require_columns(results, ("agreement", "eval_set"))
    names = _groups(results, by)
    known = results.dropna(subset=["agreement"])
    marked, shuffled = (known[known["eval_set"] == name] for name in ("test", "shuffled"))
    for rows in (marked, shuffled):
        _require_distinct(rows, names)
    kept = [name for name in _present(marked, RESIDUALS) if name not in names]
    both = marked[[*names, *kept, "agreement"]].merge(
        shuffled[[*names, "agreement"]], on=names, suffixes=("", "_shuffled"), validate="one_to_one"
    )
    return both.assign(excess=both["agreement"] - both["agreement_shuffled"])


def raua(results: pd.DataFrame, by: Sequence[str] = CURVE) -> pd.DataFrame:
    """Mean of ``agreement`` over the interior points of each curve, in percent: rAuA where the evaluation set is attacked.

    Args:
        results: the results table; rows without a stitch (objective ``none``) are no interior points and are left out.
        by: columns that name a curve; see :func:`excess_agreement`.

    Returns:
        One row per curve: the columns ``by``, ``raua``, ``points`` (how many it is the mean of), ``iri_r_largest`` (the
        largest ``iri_r_median`` of these points, if the table has it) and ``complete`` (whether no other curve of the same
        sweep, setting, pair and evaluation set has more points: a study may still be running).

    Raises:
        InputError: the table lacks the agreement, the objective or the front point, or a curve has two rows at one front
            point, because a column is missing in ``by`` or because it is a front × end map, whose mean is another score.
    """
    _require_columns(results, ("agreement", "objective", "front_point"))
    names = _groups(results, by)
    stitched = results[results["objective"] != "none"].dropna(subset=["agreement"])
    _require_distinct(
        stitched, [*names, "front_point"], "a front × end map has no rAuA, leave out settings with points: cross"
    )
    scores = {"raua": ("agreement", "mean"), "points": ("agreement", "size")}
    if "iri_r_median" in stitched:
        scores["iri_r_largest"] = ("iri_r_median", "max")
    table = stitched.groupby(names, dropna=False, sort=True).agg(**scores).reset_index()
    alike = _present(table, ("sweep", "setting", "front", "end", "eval_set"))
    most = table.groupby(alike, dropna=False)["points"].transform("max") if alike else table["points"].max()
    return table.assign(complete=table["points"] == most)


def by_residual(
    results: pd.DataFrame, value: str = "agreement", by: Sequence[str] = (*FIT, "eval_set")
) -> pd.DataFrame:
    """A score of each IRI run at each of its residual levels, best first, with its trend (METHOD §2).

    Take the rows with ``smallest`` for what to quote: the value at the smallest r, with its trend. A mean over runs is then
    ``over_runs(rows, value)``, and that of the trend ``over_runs(rows, "per_halving")``.

    Args:
        results: the results table, or what :func:`excess_agreement` makes of it; rows without IRIs, without the score or
            without a residual are left out.
        value: the column of the score, e.g. ``agreement``, ``excess``, or a representation metric: ``stir``, ``cka_iri``
            (``cka``, which is that of real images, has the same value at every level).
        by: columns that name a row, ``iri_level`` among them; see :func:`excess_agreement`.

    Returns:
        One row per run and level, from the smallest ``iri_r_median`` of a run to its largest: the columns ``by``, the
        residuals, the score, and

        - ``change``: the score minus the same run's score at its largest r; NaN for a run with one level;
        - ``per_halving``: the score minus that at the next r which is at least :data:`HALVING_FROM` times as large, divided by
          the number of halvings between the two (log2 of the ratio of the residuals); NaN if there is none;
        - ``smallest``: whether this is the smallest r of its run (at equal r, the level that is null).

    Raises:
        InputError: the table lacks the score, the arm or the residual, or two rows have equal ``by``.
    """
    _require_columns(results, (value, "arm", "iri_r_median"))
    names = _groups(results, by)
    rows = results[results["arm"] != "real"].dropna(subset=["arm", value, "iri_r_median"])
    _require_distinct(rows, names)
    run = [name for name in names if name != "iri_level"]
    best_first = [*run, "iri_r_median", *_present(rows, ["iri_level"])]
    rows = rows.sort_values(best_first, na_position="first", kind="stable", ignore_index=True)
    trends = np.full((len(rows), 3), np.nan)
    r, scores = (rows[column].to_numpy(dtype=np.float64) for column in ("iri_r_median", value))
    starts = np.flatnonzero(~rows.duplicated(run).to_numpy())
    for places in np.split(np.arange(len(rows)), starts[1:]):
        trends[places] = _trend(r[places], scores[places])
    kept = [name for name in (*_present(rows, RESIDUALS), value) if name not in names]
    columns = {"change": trends[:, 0], "per_halving": trends[:, 1], "smallest": trends[:, 2] == 1}
    return rows[[*names, *kept]].assign(**columns)


def _trend(r: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """``change``, ``per_halving`` and ``smallest`` (levels, 3) of one run, whose residuals ascend."""
    found = np.full((len(r), 3), np.nan)
    found[:, 0] = scores - scores[-1] if len(r) > 1 else np.nan
    found[:, 2] = np.arange(len(r)) == 0
    for place in np.flatnonzero(r > 0):
        larger = np.flatnonzero(r >= HALVING_FROM * r[place])
        if len(larger):
            found[place, 1] = (scores[place] - scores[larger[0]]) / np.log2(r[larger[0]] / r[place])
    return found


def over_runs(
    table: pd.DataFrame,
    value: str,
    by: Sequence[str] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Mean, spread and bootstrap interval of a score over its runs: pairs of nets × fit seeds.

    The bootstrap is over both levels: pairs (front, end) are drawn with replacement, then the seeds within each pair drawn
    (Davison & Hinkley 1997, §3.8). With one pair it is over the seeds alone.

    Args:
        table: the results table, or one of the tables made here.
        value: the column to summarise, e.g. ``agreement``, ``excess``, ``raua``; missing values are left out.
        by: columns that name a group of runs. By default all of :data:`CURVE` and :data:`POINT` that the table has but the
            seed, with ``front_model`` and ``end_model`` (the names before ``/``) in place of the nets.
        level: share of resampled means between the bounds, in (0, 1).
        resamples: number of resamples, at least 1.
        seed: decides all draws.

    Returns:
        One row per group: its columns, ``mean``, ``std`` (of runs, n − 1; NaN for one), ``min``, ``max``, ``runs``,
        ``low`` and ``high`` (percentile bounds of the mean; NaN for one run). If the table has residuals: ``iri_r_median``,
        its mean over the runs, and ``iri_r_largest``, the largest of any run (also of a table by :func:`raua`); NaN without
        IRIs.

    Raises:
        InputError: the table lacks the score or the nets, or two runs of a group have the same nets and seed.
    """
    _require_columns(table, (value, "front", "end"))
    if not 0 < level < 1 or resamples < 1:
        raise InputError("level, resamples", (level, resamples), "must be a share in (0, 1) and at least 1")
    named = table.dropna(subset=[value])
    named = named.assign(
        front_model=[str(name).partition("/")[0] for name in named["front"]],
        end_model=[str(name).partition("/")[0] for name in named["end"]],
    )
    names = _groups(named, _default_groups() if by is None else by)
    _require_distinct(named, list(dict.fromkeys([*names, *_present(named, ("front", "end", "seed"))])))
    groups = named.groupby(names, dropna=False, sort=True)
    summary = groups[value].agg(["mean", "std", "min", "max", "size"]).rename(columns={"size": "runs"})
    bounds = [_interval(rows, value, level, resamples, seed) for _, rows in groups]
    summary[["low", "high"]] = np.array(bounds, dtype=np.float64).reshape(-1, 2)
    return summary.assign(**_residuals(named, names)).reset_index()


def _residuals(rows: pd.DataFrame, names: list[str]) -> dict[str, NDArray[np.float64]]:
    """How identical the IRIs of each group are, as far as the table tells: ``iri_r_median`` and ``iri_r_largest``."""
    largest = "iri_r_largest" if "iri_r_largest" in rows else "iri_r_median"
    wanted = {"iri_r_median": ("iri_r_median", "mean"), "iri_r_largest": (largest, "max")}
    groups = rows.groupby(names, dropna=False, sort=True)
    return {
        name: groups[column].agg(how).to_numpy(dtype=np.float64)
        for name, (column, how) in wanted.items()
        if column in rows and name not in names
    }


def _default_groups() -> list[str]:
    models = {"front": "front_model", "end": "end_model"}
    return [models.get(name, name) for name in (*CURVE, *POINT) if name != "seed"]


def _interval(rows: pd.DataFrame, value: str, level: float, resamples: int, seed: int) -> tuple[float, float]:
    if len(rows) < 2:
        return float("nan"), float("nan")
    pairs = [pair[value].to_numpy(dtype=np.float64) for _, pair in rows.groupby(["front", "end"])]
    means = _resampled_means(pairs, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled_means(
    pairs: Sequence[NDArray[np.float64]], resamples: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Means (resamples,) of all runs drawn: as many pairs as there are, and from each as many runs as it has."""
    sizes = np.array([len(pair) for pair in pairs])
    padded = np.zeros((len(pairs), sizes.max()))
    for row, pair in zip(padded, pairs, strict=True):
        row[: len(pair)] = pair
    drawn = generator.integers(len(pairs), size=(resamples, len(pairs)))
    runs = (generator.random((*drawn.shape, sizes.max())) * sizes[drawn][..., None]).astype(np.int64)
    taken = np.arange(sizes.max()) < sizes[drawn][..., None]
    sums = np.where(taken, padded[drawn[..., None], runs], 0.0).sum((1, 2))
    means: NDArray[np.float64] = sums / sizes[drawn].sum(1)
    return means


def _present(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    return [name for name in names if name in table]


def _require_columns(table: pd.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in table:
            raise InputError("column", name, "the table has no such column")


def _groups(table: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Those of the columns ``by`` that the table has: at least one."""
    names = _present(table, by)
    if not names:
        raise InputError("by", list(by), "the table has none of these columns; name one that tells its rows apart")
    return names


def _require_distinct(rows: pd.DataFrame, names: list[str], of_maps: str = "") -> None:
    """Refuse two rows with equal ``names``; ``of_maps`` is what to do where they differ in their end points."""
    double = rows[rows.duplicated(names, keep=False)]
    if double.empty:
        return
    one, other = (double.sort_values(names).iloc[i] for i in (0, 1))
    shown = ", ".join(f"{name} {one[name]}" for name in names)
    rest = [str(name) for name in double.columns if name not in (*names, *_NO_FACTORS)]
    differ = [name for name in rest if str(one[name]) != str(other[name])]
    hint = f"they differ in {', '.join(differ[:4])}" if differ else "they are the same row twice"
    advice = of_maps if of_maps and "end_point" in differ else "select one, or add the column to `by`"
    raise InputError("by", None, f"two rows have the same {shown}; {hint}: {advice}")

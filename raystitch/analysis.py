"""Scores that combine rows of the results table (METHOD §7, §8): excess agreement, rAuA, and their spread over runs.

Tables in, tables out: plain pandas on what :func:`raystitch.load_results` returns. Every score keeps the columns that name
its rows, so that nothing is averaged unsaid; where rows could not be told apart, it is refused.
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

_NO_FACTORS = ("unit", "front_module", "end_module", "agreement", "agreement_shuffled", "excess", "raua")


def excess_agreement(results: pd.DataFrame, by: Sequence[str] = FIT) -> pd.DataFrame:
    """Agreement on marked test images minus agreement on the same images with shuffled markers, in points of percent.

    Args:
        results: the results table.
        by: columns that name a fit; add those by which a study varies more than these. Columns that the table lacks are
            left out.

    Returns:
        One row per fit that has both evaluation sets: the columns ``by``, ``agreement`` (marked), ``agreement_shuffled``
        and ``excess`` = their difference, −100 … 100: how much of the behaviour follows the marker.

    Raises:
        InputError: two rows of one evaluation set have equal ``by``.
    """
    names = _present(results, by)
    known = results.dropna(subset=["agreement"])
    marked, shuffled = (known[known["eval_set"] == name] for name in ("test", "shuffled"))
    for rows in (marked, shuffled):
        _require_distinct(rows, names)
    both = marked[[*names, "agreement"]].merge(
        shuffled[[*names, "agreement"]], on=names, suffixes=("", "_shuffled"), validate="one_to_one"
    )
    return both.assign(excess=both["agreement"] - both["agreement_shuffled"])


def raua(results: pd.DataFrame, by: Sequence[str] = CURVE) -> pd.DataFrame:
    """Mean of ``agreement`` over the interior points of each curve, in percent: rAuA where the evaluation set is attacked.

    Args:
        results: the results table; its unstitched ends (objective ``none``) are no interior points and are left out.
        by: columns that name a curve; see :func:`excess_agreement`.

    Returns:
        One row per curve: the columns ``by``, ``raua``, ``points`` (how many it is the mean of) and ``complete`` (whether
        no other curve of the same sweep, setting, pair and evaluation set has more: a study may still be running).

    Raises:
        InputError: a curve has two rows at one front point, because a column is missing in ``by`` or because it is a
            front × end map, whose mean is another score.
    """
    names = _present(results, by)
    stitched = results[results["objective"] != "none"].dropna(subset=["agreement"])
    _require_distinct(stitched, [*names, "front_point"])
    groups = stitched.groupby(names, dropna=False, sort=True)["agreement"]
    table = groups.agg(raua="mean", points="size").reset_index()
    alike = _present(table, ("sweep", "setting", "front", "end", "eval_set"))
    most = table.groupby(alike, dropna=False)["points"].transform("max") if alike else table["points"].max()
    return table.assign(complete=table["points"] == most)


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
        ``low`` and ``high`` (percentile bounds of the mean; NaN for one run).

    Raises:
        InputError: the table lacks the score or the nets, or two runs of a group have the same nets and seed.
    """
    for column in (value, "front", "end"):
        if column not in table:
            raise InputError("column", column, "the table has no such column")
    if not 0 < level < 1 or resamples < 1:
        raise InputError("level, resamples", (level, resamples), "must be a share in (0, 1) and at least 1")
    named = table.dropna(subset=[value])
    named = named.assign(
        front_model=[str(name).partition("/")[0] for name in named["front"]],
        end_model=[str(name).partition("/")[0] for name in named["end"]],
    )
    names = _present(named, _default_groups() if by is None else by)
    _require_distinct(named, list(dict.fromkeys([*names, *_present(named, ("front", "end", "seed"))])))
    groups = named.groupby(names, dropna=False, sort=True)
    summary = groups[value].agg(["mean", "std", "min", "max", "size"]).rename(columns={"size": "runs"})
    bounds = [_interval(rows, value, level, resamples, seed) for _, rows in groups]
    summary[["low", "high"]] = np.array(bounds, dtype=np.float64).reshape(-1, 2)
    return summary.reset_index()


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


def _require_distinct(rows: pd.DataFrame, names: list[str]) -> None:
    double = rows[rows.duplicated(names, keep=False)]
    if double.empty:
        return
    one, other = (double.sort_values(names).iloc[i] for i in (0, 1))
    shown = ", ".join(f"{name} {one[name]}" for name in names)
    rest = [str(name) for name in double.columns if name not in (*names, *_NO_FACTORS)]
    differ = [name for name in rest if str(one[name]) != str(other[name])]
    hint = f"they differ in {', '.join(differ[:4])}" if differ else "they are the same row twice"
    raise InputError("by", None, f"two rows have the same {shown}; {hint}: select one, or add the column to `by`")

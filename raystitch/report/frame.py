"""From the results table to the frame that a report works on: fixed columns, fixed types, fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from raystitch.analysis import FIT, excess_agreement

TEXT = (
    "unit", "setting", "dataset", "test_dataset", "front", "end", "front_module", "end_module",
    "objective", "stitch", "arm", "inputs", "protocol",
)  # fmt: skip
SIMILARITIES = ("cka", "cka_iri", "stir", "stir_front")
NUMBERS = (
    "front_point", "end_point", "seed", "n_eval", "eps", "iri_level",
    "agreement", "iri_r_median", "iri_r_p90", *SIMILARITIES,
)  # fmt: skip
NO_VALUE = "none"
LARGEST, SMALLEST = 1e15, 1e-30
"""Between them is what an axis can show: a larger value, or an infinite one, counts as missing, a smaller one as 0."""
_KEYS = ("front_point", "end_point", "seed", "eps", "iri_level")
"""Numbers that say which run it is: without one of them, a row stands for no run."""
_PAIR = ["setting", "front", "end", "front_point", "end_point"]


def tidy(results: pd.DataFrame) -> pd.DataFrame:
    """Agreements with the columns a report uses, in fixed types: text (missing → ``"none"``), integer points, finite
    float values.

    Rows without an agreement or a front point, or with a number out of all proportion for what it is, are left out, those of
    representation metrics among them; columns that are missing count as empty. The rows are sorted, so that a report does not
    depend on the order in which they were written.
    ``radius`` is ``eps`` as text: ``8/255``.
    """
    return _typed(results).dropna(subset=["agreement"]).reset_index(drop=True)


def similarity_rows(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of representation metrics in the same form, of each pair of points those on the best of its IRIs."""
    frame = _typed(results)
    measured = frame[frame["agreement"].isna() & frame[list(SIMILARITIES)].notna().any(axis=1)]
    return smallest_residual(measured.reset_index(drop=True))


def _typed(results: pd.DataFrame) -> pd.DataFrame:
    frame = results.reindex(columns=[*TEXT, "eval_set", *NUMBERS])
    for column in (*TEXT, "eval_set"):
        frame[column] = [NO_VALUE if pd.isna(value) else _printable(str(value)) for value in frame[column]]
    for column in NUMBERS:
        frame[column] = pd.to_numeric(frame[column], errors="coerce").astype("float64")
    size = frame[list(NUMBERS)].abs()
    frame[list(NUMBERS)] = frame[list(NUMBERS)].where(size < LARGEST).mask(size < SMALLEST, 0.0)
    frame = frame[~(size[list(_KEYS)] >= LARGEST).any(axis=1)]
    frame = frame.dropna(subset=["front_point"]).sort_values([*TEXT, "eval_set", *NUMBERS], ignore_index=True)
    frame["end_point"] = frame["end_point"].fillna(frame["front_point"]).astype(int)
    frame["front_point"] = frame["front_point"].astype(int)
    frame["seed"] = frame["seed"].fillna(-1).astype(int)
    frame["radius"] = [NO_VALUE if pd.isna(eps) else f"{255 * eps:.3g}/255" for eps in frame["eps"]]
    for side in ("front", "end"):
        frame[f"{side}_model"] = [name.partition("/")[0] for name in frame[side]]
    return frame


def _printable(text: str) -> str:
    """Control characters have no place in SVG."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def in_order(found: Iterable[str], order: Sequence[str]) -> list[str]:
    """The distinct found names: first those of ``order``, in that order, then the others alphabetically."""
    names = set(found)
    return [name for name in dict.fromkeys(order) if name in names] + sorted(names - set(order))


def with_excess(frame: pd.DataFrame) -> pd.DataFrame:
    """Add rows ``eval_set`` = ``excess``: agreement on marked minus on shuffled-marker test images (METHOD §8)."""
    names = [name for name in FIT if name in frame]
    found = excess_agreement(frame.drop_duplicates([*names, "eval_set"]), names)
    marked = frame[frame["eval_set"] == "test"].merge(found[[*names, "excess"]], on=names)
    marked["agreement"] = marked.pop("excess")
    excess = marked.assign(eval_set="excess")
    return pd.concat([frame, excess], ignore_index=True) if len(excess) else frame


def smallest_residual(iri: pd.DataFrame) -> pd.DataFrame:
    """Of each pair of nets and points the rows at the residual level with the smallest median r, and no others.

    The level is one for all runs of the pair, so that no cell mixes residuals: a run that has only larger levels yet is not
    shown. Of equal residuals, and where none is recorded, the level that is null (as good as the run got) goes first.
    """
    level = iri["iri_level"].fillna(-1.0)
    best_first = iri.assign(level=level).sort_values([*_PAIR, "iri_r_median", "level"], na_position="last")
    best = best_first.groupby(_PAIR)["level"].transform("first")
    return iri[level == best.reindex(iri.index)]

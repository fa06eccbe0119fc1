"""The index of an IRI set: what its shards hold and how close its images come; written last, it shows the set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from raystitch.iris.shard import Shard

_Kind = tuple[tuple[int, ...], str]  # shape and dtype of images


def set_index(shards: Iterable[tuple[str, bytes, Shard]]) -> dict[str, Any]:
    """Summarise a set from its shards as (name, encoded bytes, content), in any order; a generator keeps memory low.

    Returns:
        Plain JSON: ``count``; ``shape`` (3, H, W) and ``dtype`` of the images; ``residual`` (r as stored) and
        ``residual_float`` (before rounding), each with ``median``, ``p90``, ``mean``, ``max``; ``shards``, in the order
        of their rows: ``name``, ``count``, ``first_index``, ``last_index``, ``bytes``, ``sha256``.

    Raises:
        ValueError: no shard, a dataset row in two places, or images of different shapes or dtypes.
    """
    entries, residual, residual_float, (shape, dtype) = _gather(shards)
    return {
        "count": len(residual),
        "shape": list(shape),
        "dtype": dtype,
        "residual": _statistics(residual),
        "residual_float": _statistics(residual_float),
        "shards": entries,
    }


def level_index(level: float, shards: Iterable[tuple[str, bytes, Shard]]) -> dict[str, Any]:
    """Summarise one residual level of a set, from its own shards; for the ``levels`` of the set's index.

    Returns:
        Plain JSON: ``level``; ``reached``, how many images came to it (before rounding; the others are as good as they got);
        ``residual``, ``residual_float`` and ``shards`` as in :func:`set_index`, which says what raises.
    """
    entries, residual, residual_float, _ = _gather(shards)
    return {
        "level": level,
        "reached": int((residual_float <= np.float32(level)).sum()),
        "residual": _statistics(residual),
        "residual_float": _statistics(residual_float),
        "shards": entries,
    }


def _gather(
    shards: Iterable[tuple[str, bytes, Shard]],
) -> tuple[list[dict[str, Any]], npt.NDArray[np.float32], npt.NDArray[np.float32], _Kind]:
    """Entries of the shards in the order of their rows, r of all images as stored and before rounding, and their kind."""
    found = [
        (_entry(name, data, shard), shard.index, shard.residual, shard.residual_float, _kind(shard))
        for name, data, shard in shards
    ]
    if not found:
        raise ValueError("an IRI set needs at least one shard")
    found.sort(key=lambda item: int(item[0]["first_index"]))
    entries, index, residual, residual_float, kinds = zip(*found, strict=True)
    rows = np.concatenate(index)
    if len(np.unique(rows)) != len(rows):
        raise ValueError("a dataset row is in two places of the IRI set")
    if len(set(kinds)) != 1:
        raise ValueError(f"the shards of an IRI set differ in image shape or dtype: {sorted(set(kinds))}")
    return list(entries), np.concatenate(residual), np.concatenate(residual_float), kinds[0]


def _kind(shard: Shard) -> _Kind:
    return shard.images.shape[1:], str(shard.images.dtype)


def _entry(name: str, data: bytes, shard: Shard) -> dict[str, Any]:
    return {
        "name": name,
        "count": len(shard),
        "first_index": int(shard.index.min()),
        "last_index": int(shard.index.max()),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _statistics(r: npt.NDArray[np.float32]) -> dict[str, float]:
    values = r.astype(np.float64)
    return {
        "median": float(np.median(values)),
        "p90": float(np.quantile(values, 0.9)),
        "mean": float(values.mean()),
        "max": float(values.max()),
    }

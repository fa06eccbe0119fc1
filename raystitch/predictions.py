"""What the nets of a unit predict for every sample, kept beside its rows: new metrics need no new fits.

``predictions/<unit>.npz`` is a compressed NumPy archive without pickled objects. For each evaluation set of the unit, under
its name, it holds

- ``<set>.labels``: int32 (N,);
- ``<set>.h``: float16 (N, C), the logits of the stitched net, or of the net itself in an unstitched unit;
- ``<set>.end`` and ``<set>.front``: the same of the end and the front, on attacked sets alone: their images are made against
  h. On the other sets these are the ``h`` of the curve's two unstitched units.

Logits are kept less their row's largest, which no probability depends on: the largest is exactly 0, and what float16 rounds
off matters least where probability is high. Needs no torch.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raystitch.errors import InputError, did_you_mean
from raystitch.store import Store

Floats = npt.NDArray[np.float32]

_LOWEST = float(np.finfo(np.float16).min)
_NETS = ("h", "end", "front")


@dataclass(frozen=True)
class Predictions:
    """Logits on one evaluation set, in its order.

    Attributes:
        labels: int64 (N,).
        h: logits of the stitched net, or of the unstitched one, float32 (N, C); as read, each row's largest is 0.
        end: those of the end on the same images; None where the curve's unstitched units have them.
        front: those of the front, (N, C_f), likewise.
    """

    labels: npt.NDArray[np.int64]
    h: Floats
    end: Floats | None = None
    front: Floats | None = None


def encode_predictions(sets: Mapping[str, Predictions]) -> bytes:
    """Predictions by evaluation set as one file; equal predictions give equal bytes."""
    arrays: dict[str, Any] = {}
    for name, found in sets.items():
        arrays[f"{name}.labels"] = found.labels.astype(np.int32)
        for net in _NETS:
            logits = getattr(found, net)
            if logits is not None:
                arrays[f"{name}.{net}"] = _shifted(logits)
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def decode_predictions(data: bytes, eval_set: str, where: str = "predictions") -> Predictions:
    """One evaluation set of a file.

    Args:
        data: the file.
        eval_set: the set's name.
        where: what to call the file in errors.

    Raises:
        InputError: the file is damaged, or has no such evaluation set.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            known = sorted({name.rpartition(".")[0] for name in arrays.files})
            found = {key: arrays[f"{eval_set}.{key}"] for key in ("labels", *_NETS) if f"{eval_set}.{key}" in arrays}
            if found:
                logits = {net: found[net].astype(np.float32) for net in _NETS if net in found}
                return Predictions(found["labels"].astype(np.int64), **logits)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(where, None, "is damaged; remove it and run the sweep again") from error
    raise InputError("eval_set", eval_set, f"{where} has no such evaluation set{did_you_mean(eval_set, known)}")


def load_predictions(
    storage: str, unit: str, eval_set: str = "test", *, storage_options: Mapping[str, Any] | None = None
) -> Predictions:
    """What the nets of a unit predict for each sample of an evaluation set.

    Args:
        storage: folder or URL given to the sweep.
        unit: a unit's id: column ``unit`` of the results table.
        eval_set: the evaluation set, as in column ``eval_set``.
        storage_options: keyword arguments for the fsspec filesystem.

    Raises:
        InputError: the unit or the evaluation set has no predictions, or the file is damaged.
    """
    store, name = Store(storage, dict(storage_options or {})), f"predictions/{unit}.npz"
    try:
        data = store.read(name)
    except FileNotFoundError:
        raise InputError("unit", unit, f"has no predictions in {store.url}") from None
    return decode_predictions(data, eval_set, f"{store.url}/{name}")


def _shifted(logits: Floats) -> npt.NDArray[np.float16]:
    shifted = logits - logits.max(1, keepdims=True)
    kept: npt.NDArray[np.float16] = shifted.clip(min=_LOWEST).astype(np.float16)
    return kept

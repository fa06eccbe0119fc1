"""A shard as bytes: a WebDataset tar of npy entries, byte for byte the same for the same content.

Each WebDataset sample packs up to 256 images. Its key is the zero-padded dataset row of the first one, without dots
(WebDataset cuts names at the first dot); its entries are ``images.npy``, ``labels.npy``, ``index.npy``,
``residual.npy`` and ``residual_float.npy``. Reading treats the bytes as data: nothing is unpickled or unpacked to disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from raystitch import tarball
from raystitch.errors import InputError
from raystitch.iris.shard import Shard

IMAGES_PER_SAMPLE = 256

_FIELDS = tuple(field.name for field in fields(Shard))
_DTYPES = {
    "images": ("uint8", "float32"),
    "labels": ("int64",),
    "index": ("int64",),
    "residual": ("float32",),
    "residual_float": ("float32",),
}
_ENTRY = re.compile(rf"(\d{{12}})\.({'|'.join(_FIELDS)})\.npy")
_WHERE = "IRI shard"


def encode_shard(shard: Shard) -> bytes:
    """The shard as an uncompressed tar; equal shards give equal bytes."""
    return tarball.pack(_encoded(shard))


def decode_shard(data: bytes) -> Shard:
    """The shard in ``data``, bit for bit as it was encoded.

    Raises:
        InputError: not a whole tar, or an entry that :func:`encode_shard` does not write: another name (a path, say), a
            link, a pickled or damaged array, a wrong dtype, arrays of different lengths, a missing entry.
    """
    samples: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for name, content in tarball.unpack(data, _WHERE):
        match = _ENTRY.fullmatch(name)
        if match is None:
            raise InputError(_WHERE, name, "is not the name of an entry of an IRI shard")
        entries = samples.setdefault(match[1], {})
        if match[2] in entries:
            raise InputError(_WHERE, name, "is there twice")
        entries[match[2]] = _array(name, match[2], content)
    if not samples:
        raise InputError(_WHERE, None, "holds no IRIs")
    for key, entries in samples.items():
        _check_sample(key, entries)
    try:
        return Shard(**{name: np.concatenate([entries[name] for entries in samples.values()]) for name in _FIELDS})
    except ValueError as error:
        raise InputError(_WHERE, None, f"its samples do not fit together: {error}") from error


def _encoded(shard: Shard) -> Iterator[tuple[str, bytes]]:
    for first in range(0, len(shard), IMAGES_PER_SAMPLE):
        part = slice(first, first + IMAGES_PER_SAMPLE)
        for name in _FIELDS:
            yield f"{shard.index[first]:012d}.{name}.npy", tarball.npy_bytes(getattr(shard, name)[part])


def _array(name: str, field: str, content: bytes) -> npt.NDArray[Any]:
    values = tarball.read_npy(content, _WHERE, name)
    if str(values.dtype) not in _DTYPES[field] or values.ndim != (4 if field == "images" else 1):
        raise InputError(_WHERE, name, f"has dtype {values.dtype} and shape {values.shape}, not those of {field}")
    return values


def _check_sample(key: str, entries: dict[str, npt.NDArray[Any]]) -> None:
    missing = [name for name in _FIELDS if name not in entries]
    if missing:
        raise InputError(_WHERE, key, f"lacks {', '.join(missing)}")
    lengths = {name: len(entries[name]) for name in _FIELDS}
    if len(set(lengths.values())) != 1:
        raise InputError(_WHERE, key, f"has arrays of different lengths: {lengths}")

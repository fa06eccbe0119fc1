"""A shard as bytes: a WebDataset tar of npy entries, byte for byte the same for the same content.

Each WebDataset sample packs up to 256 images. Its key is the zero-padded dataset row of the first one, without dots
(WebDataset cuts names at the first dot); its entries are ``images.npy``, ``labels.npy``, ``index.npy``,
``residual.npy`` and ``residual_float.npy``. Reading treats the bytes as data: nothing is unpickled or unpacked to disk.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

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
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for first in range(0, len(shard), IMAGES_PER_SAMPLE):
            part = slice(first, first + IMAGES_PER_SAMPLE)
            for name in _FIELDS:
                _add(tar, f"{shard.index[first]:012d}.{name}.npy", getattr(shard, name)[part])
    return buffer.getvalue()


def decode_shard(data: bytes) -> Shard:
    """The shard in ``data``, bit for bit as it was encoded.

    Raises:
        InputError: not a whole tar, or an entry that :func:`encode_shard` does not write: another name (a path, say), a
            link, a pickled or damaged array, a wrong dtype, arrays of different lengths, a missing entry.
    """
    samples: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for name, content in _entries(data):
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


def _add(tar: tarfile.TarFile, name: str, values: npt.NDArray[Any]) -> None:
    content = io.BytesIO()
    np.save(content, np.ascontiguousarray(values), allow_pickle=False)
    member = tarfile.TarInfo(name)  # its defaults are mtime 0 and owner 0
    member.size, member.mode = content.tell(), 0o444
    content.seek(0)
    tar.addfile(member, content)


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    if len(data) % tarfile.BLOCKSIZE or data[-2 * tarfile.BLOCKSIZE :].strip(b"\0"):
        raise InputError(_WHERE, None, "is not a whole tar file: the end mark is missing")
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isreg() else None
                if stream is None:
                    raise InputError(_WHERE, member.name, "is not a plain file")
                yield member.name, stream.read()
    except (tarfile.TarError, EOFError) as error:
        raise InputError(_WHERE, None, f"is not a whole tar file: {error}") from error


def _array(name: str, field: str, content: bytes) -> npt.NDArray[Any]:
    try:
        values: npt.NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(_WHERE, name, f"is not a plain npy array: {error}") from error
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

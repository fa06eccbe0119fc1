"""The shards that ``raystitch data import`` writes: WebDataset tars, labels beside them, and an index that is written last.

A sample packs up to 256 images of one size (fewer of large ones, 8 MiB at most): ``images.npy`` uint8 (n, 3, S, S) and
``labels.npy`` int64 (n,). Its key is the zero-padded row of its first image. The index says where each sample's images lie in
their tar, so a reader fetches any rows without listing or scanning, and knows by checksum that they are what was written.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raystitch import tarball
from raystitch.errors import InputError

INDEX_NAME = "index.json"
SHARD_BYTES = 48 << 20  # one PUT to an object store, and enough to fetch at once

_SAMPLE_BYTES = 8 << 20
_IMAGES_PER_SAMPLE = 256
_Count = Annotated[int, Field(ge=0)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PackedSample(NamedTuple):
    """Where the images of one sample lie: first byte in the tar, bytes (an npy file), images, and CRC-32 of the bytes."""

    offset: _Count
    size: _Count
    images: _Count
    crc32: _Count


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardEntry(_Part):
    """One tar: its name below the set's folder, size, SHA-256, and samples in order."""

    name: str = Field(pattern=r"^shards/[A-Za-z0-9_-]+\.tar$")
    bytes: _Count
    sha256: _Digest
    samples: tuple[PackedSample, ...]


class SplitEntry(_Part):
    """One split: image count, file of labels (npy, int64) with its SHA-256, and tars in order."""

    count: _Count
    labels: str = Field(pattern=r"^[A-Za-z0-9_-]+\.npy$")
    labels_sha256: _Digest
    shards: tuple[ShardEntry, ...]


class ShardIndex(_Part):
    """What an imported set holds; ``classes`` has all names of each class, ``size`` is the side of the images in pixels."""

    format: Literal[1] = 1
    size: int = Field(ge=1)
    classes: tuple[tuple[str, ...], ...]
    splits: dict[Literal["train", "test"], SplitEntry]

    def to_json(self) -> bytes:
        """The index as a file; equal indexes give equal bytes."""
        return self.model_dump_json().encode() + b"\n"


def read_index(data: bytes, where: str) -> ShardIndex:
    """The index in a file.

    Raises:
        InputError: it is damaged, of another format, or its counts contradict each other.
    """
    try:
        index = ShardIndex.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"]))
        raise InputError(where, None, f"is not an index of shards: {field} {problem['msg']}") from None
    for split in ("train", "test"):
        found = index.splits.get(split)
        if found is None:
            raise InputError(where, None, f"is not an index of shards: it has no {split} split")
        if found.count != sum(sample.images for shard in found.shards for sample in shard.samples):
            raise InputError(where, found.count, f"the {split} split's count is not the sum over its shards")
    return index


def rows_per_sample(size: int) -> int:
    """Images of ``size`` pixels that share a sample."""
    return min(_IMAGES_PER_SAMPLE, max(1, _SAMPLE_BYTES // _image_bytes(size)))


def rows_per_shard(size: int, shard_bytes: int = SHARD_BYTES) -> int:
    """Images of ``size`` pixels that share a tar of about ``shard_bytes``: a whole number of samples."""
    sample = rows_per_sample(size)
    return sample * max(1, shard_bytes // (sample * _image_bytes(size)))


def encode_images(
    images: NDArray[np.uint8], labels: NDArray[np.int64], first_row: int, name: str
) -> tuple[bytes, ShardEntry]:
    """A tar of uint8 images (n, 3, S, S) and labels (n,) whose first is row ``first_row`` of its split, and its entry."""
    step = rows_per_sample(images.shape[-1])
    data = tarball.pack(_entries(images, labels, first_row, step))
    lengths = [min(step, len(images) - start) for start in range(0, len(images), step)]
    found = (m for m in tarball.members(io.BytesIO(data), name) if m.name.endswith(".images.npy"))
    samples = tuple(
        PackedSample(m.offset_data, m.size, length, zlib.crc32(data[m.offset_data : m.offset_data + m.size]))
        for m, length in zip(found, lengths, strict=True)
    )
    return data, ShardEntry(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), samples=samples)


def _entries(
    images: NDArray[np.uint8], labels: NDArray[np.int64], first_row: int, step: int
) -> Iterator[tuple[str, bytes]]:
    parts: tuple[tuple[str, NDArray[Any]], ...] = (("images", images), ("labels", labels))
    for start in range(0, len(images), step):
        for field, values in parts:
            yield f"{first_row + start:012d}.{field}.npy", tarball.npy_bytes(values[start : start + step])


def _image_bytes(size: int) -> int:
    return 3 * size * size

"""Turn any dataset into shards with an index: quick to read, streamable, the same bytes each time it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from raystitch import tarball
from raystitch.config import DataConfig
from raystitch.data.guard import reading
from raystitch.data.imageset import Split
from raystitch.data.shards import (
    INDEX_NAME,
    SHARD_BYTES,
    ShardEntry,
    ShardIndex,
    SplitEntry,
    encode_images,
    rows_per_shard,
)
from raystitch.data.stream import ImageStream, open_stream
from raystitch.errors import InputError
from raystitch.remote import NO_OPTIONS
from raystitch.store import Store

_MIXING_BYTES = 128 << 20
_MIXING_SEED = 0
_SPLITS: tuple[Split, Split] = ("train", "test")


def import_dataset(
    config: DataConfig,
    target: Store,
    where: str,
    storage_options: Mapping[str, Any] = NO_OPTIONS,
    shard_bytes: int = SHARD_BYTES,
) -> ShardIndex:
    """Write both splits of a dataset to ``target``: tars below ``shards/``, labels, and last ``index.json``.

    Images are decoded, and resized and chosen as the config says (its cue is left to the reader). The train split is mixed by
    the stream's order of seed 0, so that any stretch of it holds all classes; the test split keeps its order. Memory stays
    bounded. Until the index is there, a reader finds no dataset; what an interrupted import left is written again.

    Args:
        config: what to import.
        target: the folder or URL to fill.
        where: what to call the source in errors.
        storage_options: passed to fsspec with the source's URLs.
        shard_bytes: about how large the tars are.

    Returns:
        The index.

    Raises:
        InputError: ``target`` holds a dataset already, or the source is missing or malformed.
    """
    if target.exists(INDEX_NAME):
        raise InputError("TARGET", target.url, "holds a dataset already; name another folder, or delete this one")
    streams = _open_both(config, where, storage_options)
    train = streams["train"]
    with reading(config, where):
        names = train.source.class_names()
    index = ShardIndex(
        size=train.side,
        classes=tuple(tuple(names[label]) if label < len(names) else () for label in range(train.num_classes)),
        splits={split: _write_split(stream, target, split, shard_bytes) for split, stream in streams.items()},
    )
    target.replace(INDEX_NAME, index.to_json())
    return index


def _open_both(config: DataConfig, where: str, options: Mapping[str, Any]) -> dict[Split, ImageStream]:
    train, test = (open_stream(config, split, where, options, _MIXING_BYTES) for split in _SPLITS)
    if train.side != test.side:
        problem = f"train images have sides of {train.side} pixels, test images of {test.side}; give --size"
        raise InputError(where, None, problem)
    return {"train": train, "test": test}


def _write_split(stream: ImageStream, target: Store, split: Split, shard_bytes: int) -> SplitEntry:
    shards: list[ShardEntry] = []
    labels = [np.empty(0, np.int64)]
    row = 0
    for batch in stream.batches(rows_per_shard(stream.side, shard_bytes), seed=_mixing_seed(split)):
        name = f"shards/{split}-{len(shards):06d}.tar"
        data, entry = encode_images(batch.images.numpy(), batch.labels.numpy(), row, name)
        target.replace(name, data)
        shards.append(entry)
        labels.append(batch.labels.numpy().copy())
        row += len(batch.labels)
    content = tarball.npy_bytes(np.concatenate(labels))
    target.replace(f"{split}-labels.npy", content)
    return SplitEntry(
        count=row,
        labels=f"{split}-labels.npy",
        labels_sha256=hashlib.sha256(content).hexdigest(),
        shards=tuple(shards),
    )


def _mixing_seed(split: Split) -> int | None:
    return _MIXING_SEED if split == "train" else None

"""Batches of images that need not fit in memory: read block by block, decoded ahead in the background, shuffled in windows.

The order is a function of the files, ``seed`` and ``epoch`` alone. Blocks (rows that are cheap to read together) are permuted
and cut into windows; rows are permuted within each window. So a set no larger than a window is shuffled completely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raystitch.config import DataConfig
from raystitch.data.decode import decode_pictures
from raystitch.data.guard import reading
from raystitch.data.imageset import Split
from raystitch.data.load import chosen_rows, first_side, open_source
from raystitch.data.source import Source, blocks_of_rows
from raystitch.errors import InputError
from raystitch.remote import NO_OPTIONS

WINDOW_BYTES = 64 << 20
_AHEAD = 1  # windows read, or being read, while one is in use


class Batch(NamedTuple):
    """Consecutive images of a stream.

    Attributes:
        images: uint8 (B, 3, S, S).
        labels: int64 (B,).
        indices: int64 (B,), each sample's position in the split as :func:`~raystitch.data.load_images` numbers it.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor


@dataclass(frozen=True)
class ImageStream:
    """A split of a dataset as batches; made by :func:`open_stream`.

    Memory: at most four windows of ``window_bytes`` of decoded images, each up to one block larger, whatever the size of the
    set: in use, being joined to what is left of the one before, read ahead, and being put in order.

    Attributes:
        source: where rows are read.
        rows: int64 (N,), the source's row of each position.
        labels: int64 (N,).
        num_classes: C.
        side: S, in pixels.
        config: the dataset.
        split: ``train`` or ``test``.
        where: config path of the dataset, for errors.
        window_bytes: decoded bytes of a window; the order depends on it.
    """

    source: Source
    rows: NDArray[np.int64]
    labels: Tensor
    num_classes: int
    side: int
    config: DataConfig
    split: Split
    where: str
    window_bytes: int = WINDOW_BYTES

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, batch: int, *, seed: int | None = None, epoch: int = 0, drop_last: bool = False
    ) -> Iterator[Batch]:
        """One pass.

        Args:
            batch: images in a batch; the last may have fewer, unless ``drop_last`` leaves it out.
            seed: of the order, below 2³²; ``None`` keeps the order of the split.
            epoch: number of the pass; with ``seed`` it gives the order.
            drop_last: leave out a last batch that is not full.

        Raises:
            ValueError: a batch of less than one image.
            InputError: an image cannot be read or has another size.
        """
        if batch < 1:
            raise ValueError(f"a batch has at least 1 image, not {batch}")
        blocks = blocks_of_rows(self.source.blocks(self.split), self.rows)
        window = max(1, self.window_bytes // (3 * self.side**2))
        windows = epoch_windows(blocks, len(self.rows), window, seed, epoch)
        return _rebatch(self._read_ahead(windows), batch, drop_last)

    def _read_ahead(self, windows: list[NDArray[np.int64]]) -> Generator[Batch, None, None]:
        pending: deque[Future[Batch]] = deque()
        waiting = iter(windows)
        with ThreadPoolExecutor(1, thread_name_prefix="raystitch-stream") as reader:
            try:
                for positions in waiting:
                    pending.append(reader.submit(self._read, positions))
                    if len(pending) > _AHEAD:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                reader.shutdown(wait=True, cancel_futures=True)

    def _read(self, positions: NDArray[np.int64]) -> Batch:
        """The images at ``positions``, read in ascending order and handed out in the order given."""
        order = np.argsort(positions)
        with reading(self.config, self.where):
            pictures = self.source.pictures(self.split, self.rows[positions[order]].tolist())
            read = decode_pictures(pictures, len(order), self.config.size, self.where, self.config.greyscale)
        if read.shape[-1] != self.side:
            problem = f"images have sides of {self.side} and {read.shape[-1]} pixels; set size to resize all"
            raise InputError(f"{self.where}.size", None, problem)
        index = torch.from_numpy(positions)
        if (order[:-1] < order[1:]).all():
            return Batch(read, self.labels[index], index)
        place = torch.from_numpy(np.argsort(order))
        return Batch(read[place], self.labels[index], index)


def open_stream(
    config: DataConfig,
    split: Split,
    where: str,
    storage_options: Mapping[str, Any] = NO_OPTIONS,
    window_bytes: int = WINDOW_BYTES,
) -> ImageStream:
    """Find a split's files and read its labels; images are read batch by batch.

    Raises:
        InputError: files are missing, empty or malformed, or the first image is not square and no size is set.
    """
    source = open_source(config, where, storage_options)
    labels = source.labels(split)
    rows = chosen_rows(config, split, where, len(labels))
    side = first_side(source, config, split, where)
    targets = torch.from_numpy(labels[rows])
    return ImageStream(source, rows, targets, source.num_classes, side, config, split, where, window_bytes)


def stream_batches(
    config: DataConfig,
    split: Split,
    where: str,
    batch: int,
    *,
    seed: int | None = None,
    epoch: int = 0,
    drop_last: bool = False,
    storage_options: Mapping[str, Any] = NO_OPTIONS,
) -> Iterator[Batch]:
    """One pass over a split, as :meth:`ImageStream.batches`; use :func:`open_stream` for several passes.

    The images of a pass, sorted by ``indices``, are those of :func:`~raystitch.data.load_images`.
    """
    stream = open_stream(config, split, where, storage_options)
    return stream.batches(batch, seed=seed, epoch=epoch, drop_last=drop_last)


def epoch_windows(
    blocks: NDArray[np.int64], total: int, window: int, seed: int | None, epoch: int
) -> list[NDArray[np.int64]]:
    """Positions 0 … ``total`` - 1, each once, in windows that hold whole blocks.

    Args:
        blocks: int64, first position of each block, ascending from 0.
        total: number of positions.
        window: positions in a window; one has more only where a block begins inside it and ends outside.
        seed: of blocks' order and the order within windows; ``None`` keeps the order.
        epoch: another order for each.
    """
    sizes = np.diff(blocks, append=total)
    legacy = np.random.RandomState([seed or 0, epoch])  # the legacy stream never changes between versions
    order = np.arange(len(blocks)) if seed is None else legacy.permutation(len(blocks))
    before = np.cumsum(sizes[order]) - sizes[order]
    positions = np.repeat(blocks[order] - before, sizes[order]) + np.arange(total)
    cuts = before[np.flatnonzero(np.diff(before // window)) + 1]
    windows = np.split(positions, cuts)
    return windows if seed is None else [legacy.permutation(part) for part in windows]


def _rebatch(windows: Generator[Batch, None, None], batch: int, drop_last: bool) -> Iterator[Batch]:
    """The same images in batches of one size."""
    held: Batch | None = None
    with closing(windows):
        for window in windows:
            joined = window if held is None else Batch(*map(torch.cat, zip(held, window, strict=True)))
            whole = len(joined.indices) // batch * batch
            for start in range(0, whole, batch):
                yield Batch(*(part[start : start + batch] for part in joined))
            held = Batch(*(part[whole:].clone() for part in joined)) if whole < len(joined.indices) else None
    if held is not None and not drop_last:
        yield held

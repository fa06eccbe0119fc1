"""Streams: every image once, as in memory; an order that seed and epoch decide; no more read ahead than promised."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from raystitch.config import CueConfig, DataConfig
from raystitch.data import Batch, import_dataset, load_images, make_cue, open_stream, stream_batches, with_cue
from raystitch.data.decode import Picture
from raystitch.data.imageset import Split
from raystitch.data.stream import ImageStream, epoch_windows
from raystitch.errors import InputError
from raystitch.store import Store

WHERE = "data.mine"
SMALL = 40 * 192  # bytes of forty 8-pixel images


def joined(batches: Iterator[Batch]) -> Batch:
    return Batch(*(torch.cat(parts) for parts in zip(*batches, strict=True)))


def make(kind: str, root: Path) -> DataConfig:
    """About 330 8-pixel images in the layout asked for."""
    noise = DataConfig.model_validate({"source": "noise", "count": 333, "size": 8, "classes": 5})
    if kind == "digits":
        return DataConfig.model_validate({"source": "digits", "limit": {"train": 333}, "classes": [3, 1, 8, 6]})
    if kind == "shards":
        import_dataset(noise, Store(str(root)), WHERE, shard_bytes=1)
        return DataConfig(source="webdataset", path=str(root))
    if kind == "parquet":
        for split in ("train", "test"):
            data = load_images(noise, split, WHERE)  # type: ignore[arg-type]
            cells = [{"bytes": png(image.numpy())} for image in data.images]
            table = pa.table({"image": cells, "label": data.labels.tolist()})
            pq.write_table(table, root / f"{split}.parquet", row_group_size=50)
        return DataConfig.model_validate({"source": "parquet", "path": str(root), "greyscale": True})
    return noise


def png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["digits", "noise", "shards", "parquet"])
def test_a_stream_is_the_set_in_memory(tmp_path: Path, kind: str) -> None:
    config = make(kind, tmp_path)
    whole = load_images(config, "train", WHERE)
    stream = open_stream(config, "train", WHERE, window_bytes=SMALL)
    assert (len(stream), stream.num_classes, stream.side) == (len(whole), whole.num_classes, 8)
    assert torch.equal(stream.labels, whole.labels)
    for batch, seed in ((32, None), (32, 0), (7, 1), (500, 2)):
        parts = list(stream.batches(batch, seed=seed))
        assert [len(part.images) for part in parts[:-1]] == [batch] * (len(whole) // batch - (len(whole) % batch == 0))
        found = joined(iter(parts))
        assert sorted(found.indices.tolist()) == list(range(len(whole)))
        assert torch.equal(found.images, whole.images[found.indices])
        assert torch.equal(found.labels, whole.labels[found.indices])
        assert (found.indices.tolist() == list(range(len(whole)))) == (seed is None)


def test_seed_and_epoch_decide_the_order_and_nothing_else_does(tmp_path: Path) -> None:
    config = make("shards", tmp_path)

    def order(batch: int = 32, threads: int = 1, **arguments: int) -> list[int]:
        torch.set_num_threads(threads)
        try:
            return joined(stream_batches(config, "train", WHERE, batch, **arguments)).indices.tolist()
        finally:
            torch.set_num_threads(1)

    base = order(seed=3, epoch=1)
    assert order(seed=3, epoch=1) == order(batch=50, seed=3, epoch=1) == order(threads=3, seed=3, epoch=1) == base
    assert len({tuple(order(seed=s, epoch=e)) for s in (3, 4) for e in (0, 1)}) == 4


def test_windows_by_hand() -> None:
    blocks = np.array([0, 3, 5, 9, 10])  # sizes 3, 2, 4, 1, 2
    parts = epoch_windows(blocks, 12, 4, None, 0)  # blocks begin in [0, 4), [4, 8), [8, 12)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]]
    assert [len(part) for part in epoch_windows(np.arange(10), 10, 4, 0, 0)] == [4, 4, 2]
    assert [part.tolist() for part in epoch_windows(np.array([0]), 3, 1, None, 5)] == [[0, 1, 2]]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_windows_hold_whole_blocks_and_every_position_once(seed: int) -> None:
    starts = np.arange(0, 1000, 7)
    parts = epoch_windows(starts, 1000, 50, seed, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    assert all(len(part) < 50 + 7 for part in parts)
    owners = [set((part // 7).tolist()) for part in parts]
    assert sum(map(len, owners)) == len(starts)
    assert any((np.diff(part) < 0).any() for part in parts)


def test_a_set_no_larger_than_a_window_is_shuffled_completely() -> None:
    """Positions of element 0 over 3,000 epochs of 6 elements: 500 each, standard deviation 20."""
    places = [int(np.flatnonzero(epoch_windows(np.arange(6), 6, 99, 0, e)[0] == 0)[0]) for e in range(3000)]
    assert max(abs(places.count(k) - 500) for k in range(6)) < 100


def test_drop_last() -> None:
    stream = open_stream(make("noise", Path()), "train", WHERE, window_bytes=SMALL)
    assert [len(part.images) for part in stream.batches(100, drop_last=True)] == [100, 100, 100]
    assert [len(part.images) for part in stream.batches(100)] == [100, 100, 100, 33]
    assert list(stream.batches(400, drop_last=True)) == []


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_has_an_image(batch: int) -> None:
    stream = open_stream(make("noise", Path()), "train", WHERE)
    with pytest.raises(ValueError, match=f"at least 1 image, not {batch}"):
        stream.batches(batch)


def test_cues_pasted_on_a_stream_are_those_of_the_set_in_memory(tmp_path: Path) -> None:
    config = make("shards", tmp_path)
    whole = load_images(config, "train", WHERE)
    for cue_config in (CueConfig(kind="rand"), CueConfig(placement="class", size=3)):
        marked = with_cue(whole, cue_config, "test", "train")
        cue = make_cue(cue_config, whole.num_classes, 8, "train")
        for images, labels, indices in stream_batches(config, "train", WHERE, 64, seed=0):
            assert torch.equal(cue.paste(images, labels, indices), marked.images[indices])


class CountedSource:
    """500 8-pixel images; remembers how many were asked for, on which threads, and fails at row ``broken``."""

    num_classes = 2

    def __init__(self, broken: int = -1) -> None:
        self.broken, self.read, self.threads = broken, 0, set[int]()

    def class_names(self) -> Sequence[Sequence[str]]:
        return ()

    def labels(self, split: Split) -> np.ndarray:
        return np.arange(500) % 2

    def blocks(self, split: Split) -> np.ndarray:
        return np.arange(0, 500, 10)

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        for row in rows:
            self.threads.add(threading.get_ident())
            self.read += 1
            if row == self.broken:
                raise InputError(f"row {row}", None, "is broken")
            yield f"row {row}", np.full((3, 8, 8), row % 256, np.uint8)

    def identity(self, split: Split) -> str:
        return ""


def counted(source: CountedSource) -> ImageStream:
    config = DataConfig(source="digits")
    return ImageStream(source, np.arange(500), torch.arange(500) % 2, 2, 8, config, "train", WHERE, SMALL)


def test_at_most_one_window_is_read_ahead_and_in_the_background() -> None:
    source = CountedSource()
    used = 0
    for batch in counted(source).batches(10, seed=0):
        used += len(batch.images)
        assert source.read <= -(-used // 40) * 40 + 40  # the window in use, whole, and one more
    assert used == source.read == 500
    assert threading.get_ident() not in source.threads


def test_stopping_early_stops_the_reader() -> None:
    source = CountedSource()
    before = threading.active_count()
    batches = counted(source).batches(10, seed=0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert source.read <= 80


def test_a_fault_in_the_background_comes_out_where_the_batch_is_taken() -> None:
    batches = counted(CountedSource(broken=250)).batches(10)
    whole = [next(batches).indices.tolist() for _ in range(24)]  # the windows of 40 before the broken one
    assert sum(whole, []) == list(range(240))  # noqa: RUF017
    with pytest.raises(InputError, match=r"^row 250: is broken$"):
        next(batches)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        cells = [{"bytes": png(np.zeros((3, side, side), np.uint8))} for side in (8, 8, 9, 9)]
        pq.write_table(
            pa.table({"image": cells, "label": [0, 1, 0, 1]}), tmp_path / f"{split}.parquet", row_group_size=2
        )
    config = DataConfig(source="parquet", path=str(tmp_path))
    with pytest.raises(InputError, match=r"^data\.mine\.size: .*8 and 9 pixels; set size"):
        list(open_stream(config, "train", WHERE, window_bytes=1).batches(2))
    with pytest.raises(InputError, match=r"^data\.mine\.size: .*9×9 but the first image is 8×8"):
        list(stream_batches(config, "train", WHERE, 2))

"""Labels that are none, damaged pages, deep and mixed images, ranges without end, and file systems that fail: one line each."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

from raystitch import data, tarball
from raystitch.config import CueConfig, DataConfig
from raystitch.data import check_images, load_images, make_cue, num_classes
from raystitch.data import load as load_module
from raystitch.errors import InputError

WHERE = "data.mine"


def png(side: int = 8, width: int | None = None, dtype: type = np.uint8) -> bytes:
    shape = (side, width or side, 3) if dtype is np.uint8 else (side, width or side)
    stream = io.BytesIO()
    Image.fromarray(np.zeros(shape, dtype)).save(stream, "PNG")
    return stream.getvalue()


def deep_colour_png() -> bytes:
    """16 bits per channel, which Pillow would cut to 8 without a word."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(8 * (1 + 8 * 6))))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def table(count: int = 2, content: bytes | None = None, **columns: Any) -> pa.Table:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = pa.array([{"bytes": content or png(), "path": "x"}] * count, type=kind)
    return pa.table({"img": cells, **columns})


def hub(root: Path, train: pa.Table) -> DataConfig:
    for split in ("train", "test"):
        pq.write_table(train, root / f"{split}-0.parquet")
    return DataConfig(source="parquet", path=str(root))


def tree(root: Path, *contents: bytes) -> DataConfig:
    for split in ("train", "test"):
        (root / split / "a").mkdir(parents=True)
        (root / split / "b").mkdir()
        (root / split / "b" / "0.png").write_bytes(png())
        for k, content in enumerate(contents):
            (root / split / "a" / f"{k}.png").write_bytes(content)
    return DataConfig(source="folder", path=str(root))


def line(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["label", "labels", "fine_label", "coarse_label", "class", "target", "y"])
def test_label_columns_of_known_names(tmp_path: Path, name: str) -> None:
    config = hub(tmp_path, table(id=[7, 8], other=[5, 6], **{name: [0, 2]}))
    assert num_classes(config, WHERE) == 3


@pytest.mark.parametrize("numbering", ["id", "idx", "index", "Id"])
def test_the_only_column_of_integers_holds_the_labels_unless_it_numbers_rows(tmp_path: Path, numbering: str) -> None:
    assert num_classes(hub(tmp_path, table(**{numbering: [7, 8]}, breed=[1, 0])), WHERE) == 2
    text = line(num_classes, hub(tmp_path, table(**{numbering: [0, 1]})), WHERE)
    assert "no label column" in text
    assert "train-0.parquet" in text


def test_two_columns_that_may_be_the_labels(tmp_path: Path) -> None:
    assert "'age' and 'breed' may each be it" in line(
        num_classes, hub(tmp_path, table(age=[1, 2], breed=[0, 1])), WHERE
    )


@pytest.mark.parametrize(
    ("kind", "label"), [(pa.int64(), 1_000_001), (pa.uint64(), 2**64 - 1), (pa.uint64(), 2**63), (pa.int64(), 2**40)]
)
def test_labels_that_are_too_large(tmp_path: Path, kind: Any, label: int) -> None:
    text = line(num_classes, hub(tmp_path, table(label=pa.array([0, label], type=kind))), WHERE)
    assert text.startswith(f"{tmp_path}/train-0.parquet = {label}: column 'label' has labels above 1000000")


@pytest.mark.parametrize("label", [1_000_001, 2**63, 10**30])
def test_labels_of_shards_that_are_too_large(tmp_path: Path, label: int) -> None:
    for split in ("train", "test"):
        entries = [("0.png", png()), ("0.json", json.dumps({"label": label}).encode())]
        (tmp_path / f"{split}-0.tar").write_bytes(tarball.pack(entries))
    text = line(num_classes, DataConfig(source="webdataset", path=str(tmp_path)), WHERE)
    assert "train-0.tar" in text
    assert "label" in text


def test_a_damaged_page_of_labels_or_images_names_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = rng.integers(0, 256, 2000, np.uint8).tobytes()
    config = hub(tmp_path, table(40, content=content, label=rng.integers(0, 1000, 40)))
    file = tmp_path / "train-0.parquet"
    whole, facts = file.read_bytes(), pq.ParquetFile(file).metadata.row_group(0)
    for number in range(facts.num_columns):
        column = facts.column(number)
        start = min(o for o in (column.dictionary_page_offset, column.data_page_offset) if o)
        stop = start + column.total_compressed_size
        file.write_bytes(whole[:start] + b"\xff" * (stop - start) + whole[stop:])
        if column.path_in_schema != "img.path":
            text = line(load_images, config, "train", WHERE)
            assert text.startswith(f"{file}: is not a readable Parquet file: ")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (png(dtype=np.uint16), "more than 8 bits"),
        (deep_colour_png(), "more than 8 bits"),
        (b"junk", "is not a readable image"),
        (png()[:45], "is not a readable image"),
    ],
)
def test_check_images_finds_the_first_bad_image(tmp_path: Path, content: bytes, problem: str) -> None:
    config = tree(tmp_path, png(), png(), content, b"junk too")
    for split in ("train", "test"):
        assert line(check_images, config, split, WHERE).startswith(f"{tmp_path}/{split}/a/2.png: ")
        assert problem in line(check_images, config, split, WHERE)


def test_check_images_looks_at_what_the_limit_leaves(tmp_path: Path) -> None:
    raw = tree(tmp_path, png(), b"junk", png()).model_dump(exclude_defaults=True)
    check_images(DataConfig.model_validate({**raw, "limit": {"train": 2}}), "train", WHERE)  # rows 0 and 2 of 4
    assert "1.png" in line(check_images, DataConfig.model_validate(raw), "train", WHERE)


def test_mixed_sizes_need_a_size(tmp_path: Path) -> None:
    config = tree(tmp_path, png(), png(9))
    text = line(check_images, config, "train", WHERE)
    assert text.startswith("data.mine.size: ")
    assert "a/1.png is 9×9 but the first image is 8×8" in text
    check_images(config.model_copy(update={"size": 8}), "train", WHERE)


def test_large_splits_and_built_in_sets_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tree(tmp_path, b"junk")
    monkeypatch.setattr(load_module, "MAX_CHECKED", 1)
    check_images(config, "train", WHERE)
    check_images(DataConfig(source="digits"), "train", WHERE)
    assert data.check_images is check_images


def test_a_long_and_thin_image_is_not_blown_up(tmp_path: Path) -> None:
    config = tree(tmp_path, png(1, 60_000)).model_copy(update={"size": 4096})
    assert "0.png: is 60000×1, more than 100 times" in line(check_images, config, "train", WHERE)


@pytest.mark.parametrize(("numbers", "problem"), [("0..999999999", "at most 100000"), ("9..0", "write {0..9}")])
def test_ranges_of_shards_are_bounded(tmp_path: Path, numbers: str, problem: str) -> None:
    url = f"{tmp_path}/x-{{{numbers}}}.tar"
    text = line(num_classes, DataConfig(source="webdataset", train=url, test=url), WHERE)
    assert text.startswith("data.mine.train = ")
    assert problem in text


def test_too_many_classes_for_colours() -> None:
    assert "at most 10000 classes" in line(make_cue, CueConfig(), 10_001, 8, "train")


class NoCredentialsError(Exception):
    """Like botocore's: no OSError."""


class Failing(MemoryFileSystem):
    """A remote store that fails at one kind of call."""

    protocol = "failing"
    store: dict[str, Any] = {}  # noqa: RUF012 - as in its parent
    pseudo_dirs = [""]  # noqa: RUF012
    at = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("failing://", "memory://")))

    def _fail(self, call: str) -> None:
        if type(self).at == call:
            raise NoCredentialsError("Unable to locate\ncredentials")

    def info(self, path: str, **kwargs: Any) -> Any:
        self._fail("info")
        return super().info(path, **kwargs)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        self._fail("ls")
        return super().ls(path, detail, **kwargs)

    def _open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._fail("open")
        return super()._open(path, *args, **kwargs)

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._fail("open")
        return super().cat_file(path, *args, **kwargs)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    fsspec.register_implementation("failing", Failing, clobber=True)
    monkeypatch.setattr(Failing, "store", {})
    monkeypatch.setattr(Failing, "at", "")
    fs = fsspec.filesystem("failing")
    stream = io.BytesIO()
    pq.write_table(table(label=[0, 1]), stream)
    for split in ("train", "test"):
        fs.pipe(f"/parquet/{split}-0.parquet", stream.getvalue())
        fs.pipe(f"/webdataset/{split}-0.tar", tarball.pack([("0.png", png()), ("0.cls", b"0")]))
        for name in ("a", "b"):
            fs.pipe(f"/folder/{split}/{name}/0.png", png())
    return lambda at: monkeypatch.setattr(Failing, "at", at)


CALLS: list[Callable[[DataConfig], object]] = [
    lambda c: load_images(c, "train", WHERE),
    lambda c: check_images(c, "train", WHERE),
    lambda c: num_classes(c, WHERE),
    lambda c: data.count(c, "train", WHERE),
    lambda c: data.image_size(c, WHERE),
    lambda c: data.fingerprint(c, "train", WHERE),
    lambda c: data.describe(c, WHERE),
    lambda c: list(data.stream_batches(c, "train", WHERE, 1)),
    lambda c: data.detect(c.path or "", f"{WHERE}.path"),
]


@pytest.mark.parametrize("source", ["parquet", "folder", "webdataset", "cifar"])
def test_whatever_a_remote_store_raises_is_one_line(failing: Callable[[str], None], source: str) -> None:
    config = DataConfig.model_validate({"source": source, "path": f"failing://{source}"})
    for call in CALLS[:-1] if source != "cifar" else []:
        call(config)
    failing("info")
    for call in CALLS:
        assert line(call, config).startswith(f"data.mine.path = 'failing://{source}': ")
    failing("open")
    if source != "cifar":
        text = line(load_images, config, "train", WHERE)
        assert text == (
            f"data.mine.path = 'failing://{source}': cannot be read: NoCredentialsError: Unable to locate credentials"
        )


def test_a_stream_that_fails_halfway(failing: Callable[[str], None]) -> None:
    stream = data.open_stream(DataConfig(source="folder", path="failing://folder"), "train", WHERE)
    failing("open")
    assert "NoCredentialsError" in line(lambda: list(stream.batches(1)))

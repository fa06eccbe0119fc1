"""Every source gives the right images, labels, classes and sizes, wherever the files are."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from raystitch.config import DataConfig
from raystitch.data import count, fingerprint, image_size, load_images, num_classes, to_float
from raystitch.data.imageset import evenly_spaced

WHERE = "data.mine"


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def flat(value: int, height: int = 8, width: int = 8) -> bytes:
    return png(np.full((height, width, 3), value, np.uint8))


def table(values: list[int], labels: list[int], image: str = "img", label: str = "label") -> pa.Table:
    return pa.table({image: [{"bytes": flat(v), "path": None} for v in values], label: labels})


def write(table: pa.Table, path: Path, **kwargs: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **kwargs)


def test_evenly_spaced_rows_of_a_sorted_set_keep_every_class_equally() -> None:
    labels = np.repeat(np.arange(100), 50)
    for limit in (100, 300, 1000, 4900):
        kept = Counter(labels[evenly_spaced(len(labels), limit)].tolist())
        assert sum(kept.values()) == limit
        assert len(kept) == 100
        assert max(kept.values()) - min(kept.values()) <= 1


def test_evenly_spaced_by_hand() -> None:
    assert evenly_spaced(10, 4).tolist() == [0, 2, 5, 7]
    assert evenly_spaced(3, None).tolist() == evenly_spaced(3, 3).tolist() == evenly_spaced(3, 9).tolist() == [0, 1, 2]


def test_digits_are_scikit_learns_split_by_class() -> None:
    config = DataConfig(source="digits")
    train, test = load_images(config, "train", WHERE), load_images(config, "test", WHERE)
    assert (len(train), len(test)) == (1437, 360)
    assert train.images.shape == (1437, 3, 8, 8)
    assert train.images.dtype == torch.uint8
    assert train.labels.dtype == torch.int64
    assert num_classes(config, WHERE) == train.num_classes == 10
    assert image_size(config, WHERE) == 8
    together = torch.cat([train.images, test.images])
    assert torch.equal(together, together[:, :1].expand(-1, 3, -1, -1))
    digits = load_digits()
    expected = sorted(
        (np.rint(i * 255 / 16).astype(np.uint8).tobytes(), int(t))
        for i, t in zip(digits.images, digits.target, strict=True)
    )
    labels = torch.cat([train.labels, test.labels]).tolist()
    assert sorted((i[0].numpy().tobytes(), y) for i, y in zip(together, labels, strict=True)) == expected
    for label, size in Counter(digits.target.tolist()).items():
        assert abs(int((test.labels == label).sum()) - size * 360 / 1797) < 1


def test_digits_grow_to_size_and_limits_apply_per_split() -> None:
    config = DataConfig.model_validate({"source": "digits", "size": 16, "limit": {"train": 40, "test": 20}})
    native = load_images(DataConfig(source="digits"), "train", WHERE)
    train = load_images(config, "train", WHERE)
    assert train.images.shape == (40, 3, 16, 16)
    assert len(load_images(config, "test", WHERE)) == 20
    assert image_size(config, WHERE) == 16
    assert (count(config, "train", WHERE), count(config, "test", WHERE)) == (40, 20)
    rows = [k * 1437 // 40 for k in range(40)]
    assert torch.equal(train.labels, native.labels[rows])
    # twice as fine bilinear sampling keeps the mean of the interior
    assert abs(float(train.images.float().mean() - native.images[rows].float().mean())) < 4


def test_digits_with_a_small_limit_still_show_every_class() -> None:
    config = DataConfig.model_validate({"source": "digits", "limit": {"train": 144}})
    assert set(load_images(config, "train", WHERE).labels.tolist()) == set(range(10))


def test_cifar10_from_the_hub_layout(shared: Path) -> None:
    folder = shared / "data" / "cifar10"
    config = DataConfig.model_validate({"source": "parquet", "path": str(folder), "limit": {"train": 100, "test": 50}})
    train, test = load_images(config, "train", WHERE), load_images(config, "test", WHERE)
    assert train.images.shape == (100, 3, 32, 32)
    assert num_classes(config, WHERE) == train.num_classes == 10
    assert image_size(config, WHERE) == 32
    file = pq.read_table(folder / "test-00000-of-00001.parquet")
    labels = file.column("label").to_pylist()
    assert test.labels.tolist() == labels[::200]
    for k in (0, 1, 49):  # rows 0, 200 and 9800: the first and last row groups are among them
        data = file.column("img")[200 * k].as_py()["bytes"]
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.array_equal(test.images[k].permute(1, 2, 0).numpy(), expected)


def test_photographs_are_resized_and_cropped_to_the_centre(shared: Path) -> None:
    folder = str(shared / "data" / "imagenet_sample")
    raw = {"source": "parquet", "train": folder, "test": folder, "size": 64, "limit": {"test": 5}}
    config = DataConfig.model_validate(raw)
    test = load_images(config, "test", WHERE)
    assert test.images.shape == (5, 3, 64, 64)
    assert test.labels.tolist() == sorted(test.labels.tolist())
    with pytest.raises(Exception, match="not square; set size"):
        image_size(config.model_copy(update={"size": None}), WHERE)


@pytest.mark.parametrize(("height", "width"), [(20, 10), (10, 20)])
def test_the_crop_is_the_centre(tmp_path: Path, height: int, width: int) -> None:
    pixels = np.zeros((height, width, 3), np.uint8)
    middle = (slice(5, 15), slice(None)) if height > width else (slice(None), slice(5, 15))
    pixels[middle] = 200
    images = pa.table({"image": [{"bytes": png(pixels)}], "label": [0]})
    write(images, tmp_path / "train.parquet")
    write(images, tmp_path / "test.parquet")
    config = DataConfig(source="parquet", path=str(tmp_path), size=10)
    assert (load_images(config, "train", WHERE).images == 200).all()


@pytest.mark.parametrize(
    ("image", "label"), [("img", "label"), ("image", "labels"), ("image", "fine_label"), ("x", "y")]
)
def test_columns_are_found_by_type_and_usual_name(tmp_path: Path, image: str, label: str) -> None:
    rows = table([10, 20, 30], [2, 0, 1], image, label)
    if label == "fine_label":
        rows = rows.add_column(0, "coarse_label", pa.array([5, 5, 5]))
    write(rows, tmp_path / "train-0.parquet")
    write(rows, tmp_path / "test-0.parquet")
    data = load_images(DataConfig(source="parquet", path=str(tmp_path)), "test", WHERE)
    assert data.labels.tolist() == [2, 0, 1]
    assert data.images[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert data.num_classes == 3


def test_rows_run_through_files_and_row_groups_in_order(tmp_path: Path) -> None:
    values = list(range(0, 60, 2))
    for shard in range(3):
        part = values[shard * 10 : shard * 10 + 10]
        write(table(part, [v % 7 for v in part]), tmp_path / f"train-0000{shard}-of-00003.parquet", row_group_size=3)
    write(table([1], [0]), tmp_path / "validation-00000-of-00001.parquet")
    config = DataConfig.model_validate({"source": "parquet", "path": str(tmp_path), "limit": {"train": 7}})
    expected = [values[k * 30 // 7] for k in range(7)]
    train = load_images(config, "train", WHERE)
    assert train.images[:, 0, 0, 0].tolist() == expected
    assert train.labels.tolist() == [v % 7 for v in expected]
    assert len(load_images(config, "test", WHERE)) == 1


@pytest.mark.parametrize(
    "layout", ["{split}-0.parquet", "{split}/any.parquet", "data/{split}-0.parquet", "{split}.parquet"]
)
def test_usual_places_under_path(tmp_path: Path, layout: str) -> None:
    write(table([1, 2], [0, 1]), tmp_path / layout.format(split="train"))
    write(table([3], [1]), tmp_path / layout.format(split="test"))
    config = DataConfig(source="parquet", path=str(tmp_path))
    assert load_images(config, "train", WHERE).images[:, 0, 0, 0].tolist() == [1, 2]
    assert load_images(config, "test", WHERE).images[:, 0, 0, 0].tolist() == [3]


def test_splits_named_one_by_one_as_glob_folder_and_url(tmp_path: Path) -> None:
    for shard in range(2):
        write(table([shard], [shard]), tmp_path / "a" / f"part{shard}.parquet")
    expected = [0, 1]
    for train in (f"{tmp_path}/a/part*.parquet", f"{tmp_path}/a", f"file://{tmp_path}/a"):
        config = DataConfig(source="parquet", train=train, test=f"file://{tmp_path}/a/part1.parquet")
        assert load_images(config, "train", WHERE).images[:, 0, 0, 0].tolist() == expected
        assert load_images(config, "test", WHERE).images[:, 0, 0, 0].tolist() == [1]


def test_memory_urls_for_parquet_and_folder() -> None:
    memory = fsspec.filesystem("memory")
    for split, values in {"train": [10, 20, 30], "test": [40, 50]}.items():
        stream = io.BytesIO()
        pq.write_table(table(values, list(range(len(values)))), stream)
        memory.pipe(f"/data_sources/hub/{split}-0.parquet", stream.getvalue())
        for number, value in enumerate(values):
            memory.pipe(f"/data_sources/tree/{split}/c{number}/x.png", flat(value))
    for source, path in (("parquet", "memory://data_sources/hub"), ("folder", "memory://data_sources/tree")):
        config = DataConfig.model_validate({"source": source, "path": path})
        train, test = load_images(config, "train", WHERE), load_images(config, "test", WHERE)
        assert train.images[:, 0, 0, 0].tolist() == [10, 20, 30]
        assert test.labels.tolist() == [0, 1]
        assert test.num_classes == 3
        assert len(fingerprint(config, "test", WHERE)) == 64


def make_tree(root: Path, test_name: str = "test") -> DataConfig:
    """Classes cat, dog, eel; dog has no test image; each image is flat with its own grey."""
    for path, value in {
        "train/dog/b.png": 20,
        "train/dog/a.png": 10,
        "train/cat/deep/c.jpg": 30,
        "train/eel/d.PNG": 40,
        f"{test_name}/eel/e.png": 50,
        f"{test_name}/cat/f.png": 60,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(flat(value))
    (root / "train" / "dog" / ".DS_Store").write_bytes(b"junk")
    (root / "train" / "dog" / "notes.txt").write_text("no image")
    (root / "train" / "README.md").write_text("no class")
    return DataConfig(source="folder", path=str(root))


@pytest.mark.parametrize("folder", ["new[1]", "a?b", "run*"])
def test_a_folder_may_be_called_what_would_be_a_pattern(tmp_path: Path, folder: str) -> None:
    for other in ("new1", "aab", "run1"):
        make_tree(tmp_path / other)
    config = make_tree(tmp_path / folder)
    (tmp_path / folder / "train" / "cat" / "deep" / "c.jpg").write_bytes(flat(90))
    assert load_images(config, "train", WHERE).images[:, 0, 0, 0].tolist() == [90, 10, 20, 40]


@pytest.mark.parametrize("test_name", ["test", "val", "validation"])
def test_folders_number_classes_by_name(tmp_path: Path, test_name: str) -> None:
    config = make_tree(tmp_path, test_name)
    train, test = load_images(config, "train", WHERE), load_images(config, "test", WHERE)
    assert train.images[:, 0, 0, 0].tolist() == [30, 10, 20, 40]
    assert train.labels.tolist() == [0, 1, 1, 2]
    assert test.images[:, 0, 0, 0].tolist() == [60, 50]
    assert test.labels.tolist() == [0, 2]
    assert num_classes(config, WHERE) == test.num_classes == 3
    assert image_size(config, WHERE) == 8
    separate = DataConfig(source="folder", train=str(tmp_path / "train"), test=f"file://{tmp_path / test_name}/")
    assert torch.equal(load_images(separate, "test", WHERE).images, test.images)


def test_grey_and_palette_images_become_rgb(tmp_path: Path) -> None:
    grey = png(np.full((8, 8), 77, np.uint8))
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 99, np.uint8)).quantize(4).save(stream, "PNG")
    for split in ("train", "test"):
        write(
            pa.table({"image": [{"bytes": grey}, {"bytes": stream.getvalue()}], "label": [0, 1]}),
            tmp_path / f"{split}.parquet",
        )
    images = load_images(DataConfig(source="parquet", path=str(tmp_path)), "train", WHERE).images
    assert (images[0] == 77).all()
    assert (images[1] == 99).all()


def test_fingerprint_follows_what_is_loaded_and_nothing_else(tmp_path: Path) -> None:
    for copy in ("a", "b"):
        write(table([1, 2, 3, 4], [0, 1, 2, 0]), tmp_path / copy / "train-0.parquet")
        write(table([5, 6], [0, 1]), tmp_path / copy / "test-0.parquet")

    def of(split: str = "train", copy: str = "a", **changes: object) -> str:
        config = DataConfig.model_validate({"source": "parquet", "path": str(tmp_path / copy), **changes})
        return fingerprint(config, split, WHERE)  # type: ignore[arg-type]

    base = of()
    assert of(copy="b") == base
    assert of(limit={"test": 1}) == base
    assert of(limit={"train": 100}) == base
    assert of(cue="pixel") == base
    assert of(limit={"train": 100, "rows": "first"}) == base
    limits = [of(limit={"train": 2}), of(limit={"train": 2, "rows": "first"})]
    assert len({base, of("test"), of(size=4), *limits}) == 5
    write(table([1, 2, 3, 5], [0, 1, 2, 0]), tmp_path / "b" / "train-0.parquet")
    assert of(copy="b") != base
    assert of("test", copy="b") == of("test")


def test_fingerprint_of_folders_and_digits(tmp_path: Path) -> None:
    config = make_tree(tmp_path)
    before = {split: fingerprint(config, split, WHERE) for split in ("train", "test")}
    (tmp_path / "train" / "dog" / "notes.txt").write_text("another text")
    assert {split: fingerprint(config, split, WHERE) for split in ("train", "test")} == before
    (tmp_path / "train" / "cow").mkdir()
    (tmp_path / "train" / "cow" / "x.png").write_bytes(flat(0))
    assert fingerprint(config, "train", WHERE) != before["train"]
    assert fingerprint(config, "test", WHERE) != before["test"]  # eel is now class 3
    digits = [DataConfig.model_validate({"source": "digits", **c}) for c in ({}, {"size": 16}, {"limit": {"train": 5}})]
    prints = {fingerprint(c, "train", WHERE) for c in digits} | {fingerprint(digits[0], "test", WHERE)}
    assert len(prints) == 4


def test_to_float_is_in_the_unit_interval() -> None:
    pixels = to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
    assert pixels.dtype == torch.float32
    assert torch.equal(pixels, torch.tensor([0.0, 0.2, 1.0]))

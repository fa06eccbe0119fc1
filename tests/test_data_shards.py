"""Shards: imports come back exactly and byte for byte the same; faults are one line."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
import webdataset

from raystitch.config import DataConfig
from raystitch.data import count, detect, fingerprint, image_size, import_dataset, load_images, num_classes
from raystitch.data.shards import ShardIndex, rows_per_sample, rows_per_shard
from raystitch.errors import InputError
from raystitch.store import Store

WHERE = "data.mine"
NOISE = DataConfig.model_validate({"source": "noise", "count": 700, "size": 8, "classes": 7})


def imported(config: DataConfig, url: str, shard_bytes: int = 60_000) -> DataConfig:
    """8-pixel images are 192 bytes: 256 fill a sample of 49,152 bytes, so a shard of 60,000 bytes is one sample."""
    import_dataset(config, Store(url), WHERE, shard_bytes=shard_bytes)
    return DataConfig(source="webdataset", path=url)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_layout_by_arithmetic() -> None:
    assert [rows_per_sample(side) for side in (8, 32, 104, 224, 2000)] == [256, 256, 256, 55, 1]
    assert rows_per_shard(32) == 64 * 256  # 48 MiB / (256 · 3,072 B)
    assert rows_per_shard(224) == 6 * 55  # 48 MiB / (55 · 150,528 B) = 6.08
    assert rows_per_shard(8, 1) == 256


def test_the_test_split_comes_back_in_order_and_the_train_split_mixed(tmp_path: Path) -> None:
    config = imported(NOISE, str(tmp_path / "out"))
    before, after = load_images(NOISE, "test", WHERE), load_images(config, "test", WHERE)
    assert torch.equal(after.images, before.images)
    assert torch.equal(after.labels, before.labels)
    before, after = load_images(NOISE, "train", WHERE), load_images(config, "train", WHERE)
    label_of = {image.numpy().tobytes(): int(label) for image, label in zip(before.images, before.labels, strict=True)}
    found = [image.numpy().tobytes() for image in after.images]
    assert sorted(found) == sorted(label_of)
    assert [label_of[image] for image in found] == after.labels.tolist()
    assert not torch.equal(after.images, before.images)
    assert (num_classes(config, WHERE), image_size(config, WHERE), count(config, "train", WHERE)) == (7, 8, 700)
    assert detect(str(tmp_path / "out"), WHERE) == config


def test_files_and_index_are_what_they_should_be(tmp_path: Path) -> None:
    imported(NOISE, str(tmp_path))
    assert sorted(tree(tmp_path)) == [
        "index.json",
        *(f"shards/{split}-00000{k}.tar" for split in ("test", "train") for k in range(3)),
        "test-labels.npy",
        "train-labels.npy",
    ]
    index = ShardIndex.model_validate_json((tmp_path / "index.json").read_bytes())
    assert [sum(s.images for s in shard.samples) for shard in index.splits["train"].shards] == [256, 256, 188]
    labels = np.load(tmp_path / "train-labels.npy", allow_pickle=False)
    read = list(webdataset.WebDataset(f"{tmp_path}/shards/train-00000{{0..2}}.tar", shardshuffle=False).decode())
    assert [sample["__key__"] for sample in read] == ["000000000000", "000000000256", "000000000512"]
    np.testing.assert_array_equal(np.concatenate([sample["labels.npy"] for sample in read]), labels)
    images = load_images(DataConfig(source="webdataset", path=str(tmp_path)), "train", WHERE).images
    np.testing.assert_array_equal(np.concatenate([sample["images.npy"] for sample in read]), images)


def test_the_same_import_gives_the_same_bytes_and_again_what_was_interrupted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        imported(NOISE, str(tmp_path / name))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    (tmp_path / "b" / "index.json").unlink()
    (tmp_path / "b" / "shards" / "train-000001.tar").write_bytes(b"half")
    with pytest.raises(InputError, match=r"no \.tar files of the train split"):
        num_classes(DataConfig(source="webdataset", path=str(tmp_path / "b")), WHERE)
    imported(NOISE, str(tmp_path / "b"))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    with pytest.raises(InputError, match=r"^TARGET = .*: holds a dataset already"):
        imported(NOISE, str(tmp_path / "b"))


def test_the_index_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    replace = Store.replace
    monkeypatch.setattr(Store, "replace", lambda self, name, data: (written.append(name), replace(self, name, data))[1])
    imported(NOISE, str(tmp_path))
    assert written[-1] == "index.json"
    assert len(written) == len(set(written)) == 9


def test_names_class_lists_sizes_and_limits_survive(tmp_path: Path) -> None:
    digits = DataConfig.model_validate(
        {"source": "digits", "size": 16, "classes": [7, 1, 4], "limit": {"train": 100, "test": 50}}
    )
    config = imported(digits, f"memory://{uuid.uuid4().hex}")
    train, test = load_images(config, "train", WHERE), load_images(config, "test", WHERE)
    assert torch.equal(test.images, load_images(digits, "test", WHERE).images)
    assert torch.equal(test.labels, load_images(digits, "test", WHERE).labels)
    assert (len(train), train.num_classes, train.images.shape[-1]) == (100, 3, 16)
    fours = load_images(config.model_copy(update={"classes": ("4", "7")}), "test", WHERE)
    assert torch.equal(fours.images, test.images[test.labels != 1])
    assert set(fours.labels.tolist()) == {0, 1}


def test_reimporting_shards_of_other_sizes_keeps_the_content(tmp_path: Path) -> None:
    first = imported(NOISE, str(tmp_path / "a"))
    second = imported(first, str(tmp_path / "b"), shard_bytes=10**6)
    assert torch.equal(load_images(second, "test", WHERE).images, load_images(NOISE, "test", WHERE).images)
    assert fingerprint(second, "test", WHERE) != fingerprint(first, "test", WHERE)  # their bytes differ


def test_damage_is_found(tmp_path: Path) -> None:
    config = imported(NOISE, str(tmp_path))
    shard = tmp_path / "shards" / "test-000001.tar"
    good = shard.read_bytes()
    shard.write_bytes(good[:2000] + bytes([good[2000] ^ 1]) + good[2001:])
    with pytest.raises(InputError, match=r"test-000001\.tar at byte 512: is not what the index describes"):
        load_images(config, "test", WHERE)
    shard.unlink()
    with pytest.raises(InputError, match=r"test-000001\.tar.*: the shard is missing"):
        load_images(config, "test", WHERE)
    load_images(config, "train", WHERE)
    (tmp_path / "train-labels.npy").write_bytes(b"other")
    with pytest.raises(InputError, match=r"train-labels\.npy: is not the file that the index describes"):
        num_classes(config, WHERE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(format=2), "format"),
        (lambda index: index["splits"].pop("test"), "it has no test split"),
        (lambda index: index["splits"]["train"].update(count=3), "count is not the sum over its shards"),
        (lambda index: index["splits"]["train"]["shards"][0].update(name="shards/../../x.tar"), "name"),
        (lambda index: index["splits"]["train"]["shards"][0].update(name="/etc/x.tar"), "name"),
        (lambda index: index["splits"]["train"].update(labels="../x.npy"), "labels"),
        (lambda index: index["splits"]["train"]["shards"][0]["samples"][0].__setitem__(0, -1), "samples"),
        (lambda index: index["classes"].pop(), "does not hold one label per image"),
    ],
)
def test_an_index_that_no_one_here_wrote(tmp_path: Path, change: object, message: str) -> None:
    config = imported(NOISE, str(tmp_path))
    index = json.loads((tmp_path / "index.json").read_text())
    change(index)  # type: ignore[operator]
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=message) as caught:
        num_classes(config, WHERE)
    assert "\n" not in str(caught.value)

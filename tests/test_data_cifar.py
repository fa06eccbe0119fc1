"""CIFAR files as distributed: the python and the binary batches give the same images, and no pickle runs code."""

from __future__ import annotations

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raystitch.config import DataConfig
from raystitch.data import detect, fingerprint, image_size, load_images, num_classes
from raystitch.errors import InputError

WHERE = "data.cifar"
ROWS = 3
NAMES = {10: [f"kind{k}" for k in range(10)], 100: [f"fine{k}" for k in range(100)]}


def batches(classes: int) -> dict[str, tuple[np.ndarray, list[int], list[int]]]:
    """Pixels (red, green, blue planes of each row), fine labels and coarse labels of each file."""
    random = np.random.RandomState(classes)
    files = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"] if classes == 10 else ["train", "test"]
    return {
        name: (
            random.randint(0, 256, (ROWS, 3072)).astype(np.uint8),
            random.randint(0, classes, ROWS).tolist(),
            random.randint(0, 20, ROWS).tolist(),
        )
        for name in files
    }


def write_python(root: Path, classes: int) -> Path:
    """Protocol 2 with byte strings for keys, as Python 2 wrote the originals."""
    folder = root / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
    folder.mkdir(parents=True)
    for name, (pixels, fine, coarse) in batches(classes).items():
        labels = {b"labels": fine} if classes == 10 else {b"fine_labels": fine, b"coarse_labels": coarse}
        (folder / name).write_bytes(pickle.dumps({b"data": pixels, b"batch_label": b"x", **labels}, protocol=2))
    meta = {b"label_names" if classes == 10 else b"fine_label_names": [n.encode() for n in NAMES[classes]]}
    (folder / ("batches.meta" if classes == 10 else "meta")).write_bytes(pickle.dumps(meta, protocol=2))
    return folder


def write_binary(root: Path, classes: int) -> Path:
    folder = root / ("cifar-10-batches-bin" if classes == 10 else "cifar-100-binary")
    folder.mkdir(parents=True)
    for name, (pixels, fine, coarse) in batches(classes).items():
        rows = [([y] if classes == 10 else [c, y]) + p.tolist() for p, y, c in zip(pixels, fine, coarse, strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(map(bytes, rows)))
    name = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
    (folder / name).write_text("\n".join(NAMES[classes]) + "\n\n")
    return folder


def at(path: Path, **fields: object) -> DataConfig:
    return DataConfig.model_validate({"source": "cifar", "path": str(path), **fields})


@pytest.mark.parametrize("write", [write_python, write_binary])
@pytest.mark.parametrize("classes", [10, 100])
def test_images_and_labels_in_the_order_of_the_files(tmp_path: Path, classes: int, write: Any) -> None:
    folder = write(tmp_path / "root", classes)
    files = list(batches(classes).values())
    pixels = np.concatenate([f[0] for f in files[:-1]])
    for path in (folder, tmp_path / "root"):
        train = load_images(at(path), "train", WHERE)
        np.testing.assert_array_equal(train.images, pixels.reshape(-1, 3, 32, 32))
        assert train.labels.tolist() == [y for f in files[:-1] for y in f[1]]
        assert load_images(at(path), "test", WHERE).labels.tolist() == files[-1][1]
        assert (num_classes(at(path), WHERE), image_size(at(path), WHERE)) == (classes, 32)
        assert detect(str(path), WHERE).source == "cifar"
    first = files[0][1][0]
    some = load_images(at(folder, classes=[NAMES[classes][first]]), "train", WHERE)
    assert torch.equal(some.images, train.images[train.labels == first])


def test_python_binary_and_archive_are_the_same_data(tmp_path: Path) -> None:
    folder, binary = write_python(tmp_path / "a", 10), write_binary(tmp_path / "b", 10)
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    prints = {fingerprint(at(place), "train", WHERE) for place in (folder, binary, archive)}
    assert len(prints) == 1
    assert detect(str(archive), WHERE).source == "cifar"


def test_column_major_arrays_are_read_right(tmp_path: Path) -> None:
    folder = write_python(tmp_path, 100)
    pixels = np.asfortranarray(batches(100)["train"][0])
    (folder / "train").write_bytes(pickle.dumps({"data": pixels, "fine_labels": [1, 2, 3]}, protocol=2))
    np.testing.assert_array_equal(load_images(at(folder), "train", WHERE).images.flatten(1), pixels)


class _Harmful:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.how = call, arguments

    def __reduce__(self) -> Any:
        return self.how


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"data": _Harmful(pytest.fail, "a pickle was run"), "fine_labels": []}),
        pickle.dumps({"data": _Harmful(os.system, "false")}),
        pickle.dumps({"data": _Harmful(eval, "1")}),
        pickle.dumps({"data": _Harmful(np.load, "x")}),
        pickle.dumps({"data": np.array([os.getcwd, None], dtype=object)}, protocol=2),
        b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.",
        b"not a pickle",
        b"",
        pickle.dumps([1, 2]),
        pickle.dumps({"data": np.zeros((2, 3072), np.float32), "fine_labels": [1, 2]}, protocol=2),
        pickle.dumps({"data": np.zeros((2, 3000), np.uint8), "fine_labels": [1, 2]}, protocol=2),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1, 2, 3]}, protocol=2),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1, 100]}, protocol=2),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1, "x"]}, protocol=2),
    ],
)
def test_a_batch_that_is_not_one_gives_one_line(tmp_path: Path, content: bytes) -> None:
    folder = write_python(tmp_path, 100)
    (folder / "train").write_bytes(content)
    with pytest.raises(InputError, match=r"^train: ") as caught:
        load_images(at(folder), "train", WHERE)
    assert "\n" not in str(caught.value)


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data\.cifar\.path = .*: holds no CIFAR batches; expected one of cifar-10"):
        load_images(at(tmp_path), "train", WHERE)
    binary = write_binary(tmp_path, 10)
    (binary / "data_batch_2.bin").write_bytes(b"x" * 3072)
    with pytest.raises(InputError, match=r"^data_batch_2\.bin: has 3072 bytes, not a multiple of 3073$"):
        load_images(at(binary), "train", WHERE)
    (binary / "data_batch_2.bin").unlink()
    with pytest.raises(InputError, match=r"the batch data_batch_2\.bin of cifar-10-batches-bin is missing$"):
        load_images(at(binary), "train", WHERE)
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"^data\.cifar\.path = .*x\.tar\.gz': cannot be read"):
        load_images(at(tmp_path / "x.tar.gz"), "train", WHERE)

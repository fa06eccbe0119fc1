"""Each fault in the user's data gives one InputError that names the config field or the file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from raystitch.config import DataConfig
from raystitch.data import fingerprint, image_size, load_images, num_classes
from raystitch.errors import InputError

WHERE = "data.mine"


def png(height: int = 8, width: int = 8) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def hub(root: Path, train: pa.Table, test: pa.Table | None = None) -> DataConfig:
    pq.write_table(train, root / "train-0.parquet")
    pq.write_table(train if test is None else test, root / "test-0.parquet")
    return DataConfig(source="parquet", path=str(root))


def images(*contents: bytes | None, label: int = 0) -> pa.Table:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = pa.array([{"bytes": c, "path": "x"} for c in contents], type=kind)
    return pa.table({"img": cells, "label": pa.array([label] * len(contents), type=pa.int64())})


def problem(config: DataConfig) -> str:
    with pytest.raises(InputError) as caught:
        load_images(config, "train", WHERE)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("source", ["parquet", "folder"])
def test_missing_path_names_the_field(tmp_path: Path, source: str) -> None:
    config = DataConfig.model_validate({"source": source, "path": str(tmp_path / "nowhere")})
    for look in (num_classes, image_size):
        with pytest.raises(InputError, match=r"^data\.mine\.path = .*nowhere.*: no such folder"):
            look(config, WHERE)
    with pytest.raises(InputError, match=r"^data\.mine\.path"):
        fingerprint(config, "train", WHERE)


@pytest.mark.parametrize("source", ["parquet", "folder"])
def test_empty_folder_says_what_is_expected(tmp_path: Path, source: str) -> None:
    text = problem(DataConfig.model_validate({"source": source, "path": str(tmp_path)}))
    assert text.startswith("data.mine.path = ")
    assert "train" in text


def test_missing_file_of_one_split(tmp_path: Path) -> None:
    hub(tmp_path, images(png()))
    raw = {"source": "parquet", "train": str(tmp_path / "train-0.parquet"), "test": str(tmp_path / "tset.parquet")}
    text = problem(DataConfig.model_validate(raw))
    assert text.startswith("data.mine.test = ")
    assert "tset.parquet" in text


def test_path_that_is_one_file(tmp_path: Path) -> None:
    hub(tmp_path, images(png()))
    text = problem(DataConfig(source="parquet", path=str(tmp_path / "train-0.parquet")))
    assert "name files by train and test" in text


def test_unknown_url_scheme() -> None:
    assert problem(DataConfig(source="parquet", path="nosuch://x/y")).startswith("data.mine.path = 'nosuch://x/y'")


def test_empty_set(tmp_path: Path) -> None:
    config = hub(tmp_path, images(), images(png()))
    assert problem(config) == "data.mine: the train split has no images"
    with pytest.raises(InputError, match="no images"):
        fingerprint(config, "train", WHERE)
    with pytest.raises(InputError, match="no images"):
        image_size(config, WHERE)


def test_no_image_column_lists_the_columns(tmp_path: Path) -> None:
    text = problem(hub(tmp_path, pa.table({"pixels": [[1, 2]], "label": [0]})))
    assert "train-0.parquet" in text
    assert "no image column" in text
    assert "pixels" in text


def test_no_label_column(tmp_path: Path) -> None:
    text = problem(hub(tmp_path, images(png()).drop_columns(["label"])))
    assert "train-0.parquet" in text
    assert "no label column" in text


def test_not_a_parquet_file(tmp_path: Path) -> None:
    config = hub(tmp_path, images(png()))
    (tmp_path / "train-0.parquet").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    text = problem(config)
    assert "train-0.parquet" in text
    assert "not a readable Parquet file" in text


def test_hidden_and_missing_labels(tmp_path: Path) -> None:
    text = problem(hub(tmp_path, images(png()), images(png(), label=-1)))
    assert "test-0.parquet" in text
    assert "negative labels" in text
    nulls = images(png()).set_column(1, "label", pa.array([None], type=pa.int64()))
    assert "1 missing labels" in problem(hub(tmp_path, nulls))


def test_undecodable_image_names_its_row(tmp_path: Path) -> None:
    text = problem(hub(tmp_path, images(png(), png(), b"not an image", png())))
    assert "train-0.parquet row 2: is not a readable image" in text
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    for kind in ("PNG", "JPEG"):
        stream = io.BytesIO()
        Image.fromarray(noise).save(stream, kind)
        cut = stream.getvalue()[: -len(stream.getvalue()) // 5]
        assert "row 1: is not a readable image" in problem(hub(tmp_path, images(png(), cut)))
    assert "row 0: holds no image bytes" in problem(hub(tmp_path, images(None)))


def test_sixteen_bit_image(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8), 40000, np.uint16)).save(stream, "PNG")
    assert "more than 8 bits" in problem(hub(tmp_path, images(stream.getvalue())))


def test_sizes_that_need_a_resize(tmp_path: Path) -> None:
    text = problem(hub(tmp_path, images(png(8, 9))))
    assert text.startswith("data.mine.size: ")
    assert "train-0.parquet row 0 is 9×8, not square; set size" in text
    text = problem(hub(tmp_path, images(png(8, 8), png(9, 9))))
    assert text.startswith("data.mine.size: ")
    assert "row 1 is 9×9 but the first image is 8×8; set size" in text


def write_tree(root: Path, *paths: str, data: bytes | None = None) -> DataConfig:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(png() if data is None else data)
    return DataConfig(source="folder", path=str(root))


def test_class_of_the_test_split_that_train_lacks(tmp_path: Path) -> None:
    text = problem(write_tree(tmp_path, "train/zebra/a.png", "test/zebras/a.png"))
    assert "class 'zebras' is not among the classes of the train split; did you mean 'zebra'?" in text
    assert text.startswith(str(tmp_path / "test"))


def test_images_without_class_folders(tmp_path: Path) -> None:
    text = problem(write_tree(tmp_path, "train/a.png", "test/b.png"))
    assert text.startswith("data.mine.path")
    assert "one sub-folder of images per class" in text


def test_undecodable_file_in_a_folder(tmp_path: Path) -> None:
    write_tree(tmp_path, "train/a/1.png", "test/a/1.png")
    text = problem(write_tree(tmp_path, "train/a/2.png", data=b"junk"))
    assert text.startswith(str(tmp_path / "train" / "a" / "2.png"))

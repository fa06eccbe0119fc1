"""Class lists: which rows are kept, in which order classes are numbered, and one line for each wrong entry."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from raystitch.config import DataConfig
from raystitch.data import count, fingerprint, load_images, num_classes
from raystitch.errors import InputError

WHERE = "data.mine"
NAMES = ["tench, Tinca tinca", "crane", "kite", "crane"]  # a bird and a machine have the same name, as in ImageNet
WORDNET = ["n01440764", "n02012849", "n01608432", "n03126707"]


def picture(value: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def write(path: Path, labels: list[int], wordnet: bool = True, named: bool = True) -> None:
    """Row k has grey k."""
    cells = [
        {"bytes": picture(k), "path": f"{WORDNET[y]}_{k}.JPEG" if wordnet else f"{k}.png"} for k, y in enumerate(labels)
    ]
    table = pa.table({"image": cells, "label": labels})
    if named:
        info = {"info": {"features": {"label": {"names": NAMES, "_type": "ClassLabel"}, "image": {"_type": "Image"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(table, path, row_group_size=3)


TRAIN, TEST = [0, 1, 2, 3, 2, 1, 0, 3], [3, 2, 0]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    write(tmp_path / "train.parquet", TRAIN)
    write(tmp_path / "test.parquet", TEST)
    return tmp_path


def subset(root: Path, classes: object, **fields: object) -> DataConfig:
    return DataConfig.model_validate({"source": "parquet", "path": str(root), "classes": classes, **fields})


@pytest.mark.parametrize(
    "classes",
    [
        [2, 0],
        ["2", "0"],
        ["kite", "tench, Tinca tinca"],
        ["Kite", "tinca tinca"],
        ["n01608432", "n01440764"],
        ["kite", 0],
    ],
)
def test_rows_of_the_listed_classes_numbered_in_list_order(hub: Path, classes: list[object]) -> None:
    config = subset(hub, classes)
    train, test = load_images(config, "train", WHERE), load_images(config, "test", WHERE)
    assert train.images[:, 0, 0, 0].tolist() == [0, 2, 4, 6]
    assert train.labels.tolist() == [1, 0, 0, 1]
    assert test.images[:, 0, 0, 0].tolist() == [1, 2]
    assert test.labels.tolist() == [0, 1]
    assert num_classes(config, WHERE) == train.num_classes == 2
    assert count(config, "train", WHERE) == 4


def test_a_file_lists_classes(hub: Path) -> None:
    (hub / "mine.txt").write_text("# two birds\nn01608432\n\n  tench, Tinca tinca  \n")
    listed = load_images(subset(hub, str(hub / "mine.txt")), "train", WHERE)
    assert listed.labels.tolist() == [1, 0, 0, 1]


def test_a_limit_counts_the_rows_that_are_left(hub: Path) -> None:
    limited = load_images(subset(hub, [2, 0], limit={"train": 2}), "train", WHERE)
    assert limited.images[:, 0, 0, 0].tolist() == [0, 4]


def test_the_fingerprint_knows_list_and_order_but_not_spelling(hub: Path) -> None:
    def of(classes: object) -> str:
        return fingerprint(subset(hub, classes), "train", WHERE)

    assert of([2, 0]) == of(["kite", "n01440764"])
    assert len({of(None), of([2, 0]), of([0, 2]), of([0, 1, 2]), of([0, 1, 2, 3])}) == 5


def test_folders_and_digits_by_name(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for value, name in enumerate(("10", "3", "eel")):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "x.png").write_bytes(picture(value))
    config = DataConfig.model_validate({"source": "folder", "path": str(tmp_path), "classes": ["eel", "3", 0]})
    data = load_images(config, "train", WHERE)  # "3" is a folder here, 0 the first label: folder "10"
    assert data.images[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert data.labels.tolist() == [2, 1, 0]
    whole = load_images(DataConfig(source="digits"), "train", WHERE)
    some = load_images(DataConfig.model_validate({"source": "digits", "classes": [7, 1]}), "train", WHERE)
    kept = (whole.labels == 7) | (whole.labels == 1)
    assert torch.equal(some.images, whole.images[kept])
    assert torch.equal(some.labels, (whole.labels[kept] == 1).long())


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["kite", "tensh"], r"^data\.mine\.classes = 'tensh': unknown class; did you mean 'tench'\?$"),
        (["n09999999"], r"^data\.mine\.classes = 'n09999999': unknown class"),
        (["kite", "crane"], r"= 'crane': names several classes, with labels \[1, 3\]; give one of these$"),
        (["kite", 2], r"= 2: names the same class as 'kite'; list each class once$"),
        ([0, 4], r"= 4: is no label of this dataset, which has 0 to 3$"),
        ([0, -1], r"= -1: is no label"),
        ("/nowhere/list.txt", r"^data\.mine\.classes = '/nowhere/list\.txt': cannot be read"),
    ],
)
def test_wrong_lists(hub: Path, classes: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_images(subset(hub, classes), "train", WHERE)
    assert "\n" not in str(caught.value)


def test_empty_list_and_class_without_training_images(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("# nothing\n")
    with pytest.raises(InputError, match="lists no classes"):
        num_classes(subset(hub, str(tmp_path / "none.txt")), WHERE)
    write(hub / "train.parquet", [0, 1, 1, 2])
    with pytest.raises(InputError, match=r"= 3: the train split has no image of this class \(label 3\)"):
        num_classes(subset(hub, [0, 3]), WHERE)


def test_names_are_asked_of_files_that_have_none(hub: Path) -> None:
    for name, labels in (("train", TRAIN), ("test", TEST)):
        write(hub / f"{name}.parquet", labels, wordnet=False, named=False)
    with pytest.raises(InputError, match=r"= 'kite': the files name no classes; give labels, 0 to 3$"):
        num_classes(subset(hub, ["kite"]), WHERE)


def test_imagenet_by_wordnet_id(shared: Path) -> None:
    file = str(shared / "data" / "imagenet_sample" / "validation-00000-of-00001.parquet")
    raw = {"source": "parquet", "train": file, "test": file, "size": 32, "classes": ["n01496331", "n01440764"]}
    config = DataConfig.model_validate(raw)  # electric ray and tench: labels 5 and 0 of ILSVRC-2012
    data = load_images(config, "train", WHERE)
    by_label = load_images(config.model_copy(update={"classes": (5, 0)}), "train", WHERE)
    assert data.labels.tolist() == [1, 0]
    assert torch.equal(data.images, by_label.images)

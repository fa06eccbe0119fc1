"""``raystitch data``: what it prints and writes, and one line for each fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from raystitch.cli import main
from raystitch.config import DataConfig, parse_config
from raystitch.data import load_images
from raystitch.errors import InputError

WHERE = "data.mine"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Classes cow, eel, owl; 6, 5, 4 training and 2, 2, 0 test images of 8 pixels; each image is flat, each another grey."""
    value = 0
    for split, counts in (("train", (6, 5, 4)), ("test", (2, 2, 0))):
        for name, count in zip(("cow", "eel", "owl"), counts, strict=True):
            (tmp_path / "in" / split / name).mkdir(parents=True)
            for k in range(count):
                value += 10
                path = tmp_path / "in" / split / name / f"{k}.png"
                Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)
    return tmp_path / "in"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["data", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│ \n").split("│")]


def test_import_a_folder_then_show_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "import", folder, tmp_path / "out")
    assert code == 0
    assert out == f"15 train, 4 test images of 8 px, 3 classes, 2 shards → {tmp_path / 'out'}\n"
    code, out, _ = run(capsys, "show", tmp_path / "out")
    assert code == 0
    rows = [cells(line) for line in out.splitlines() if "webdataset" in line]
    assert rows == [
        ["out", "webdataset", "train", "15", "3 of 3", "4–6", "8 px"],
        ["out", "webdataset", "test", "4", "2 of 3", "0–2", "8 px"],
    ]


def test_import_with_classes_size_and_limit(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.txt").write_text("owl\ncow\n")
    for number, classes in enumerate(("owl,cow", tmp_path / "list.txt", "2,0")):
        target = tmp_path / f"out{number}"
        fields = ("--classes", classes, "--size", 4, "--limit", "5,1")
        assert run(capsys, "import", folder, target, *fields)[0] == 0
        train = load_images(DataConfig(source="webdataset", path=str(target)), "train", WHERE)
        assert train.images.shape == (5, 3, 4, 4)
        # cow is 10 … 60, owl 120 … 150; rows 0, 2, 4, 6, 8 of these ten
        pairs = zip(train.images[:, 0, 0, 0].tolist(), train.labels.tolist(), strict=True)
        assert sorted(pairs) == [(10, 1), (30, 1), (50, 1), (120, 0), (140, 0)]
    contents = [{f.name: f.read_bytes() for f in (tmp_path / f"out{k}").rglob("*") if f.is_file()} for k in range(3)]
    assert contents[0] == contents[1] == contents[2]


def test_splits_in_two_places(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "import", folder / "train", tmp_path / "out", "--test", folder / "test")[0] == 0
    found = load_images(DataConfig(source="webdataset", path=str(tmp_path / "out")), "test", WHERE)
    assert torch.equal(found.images, load_images(DataConfig(source="folder", path=str(folder)), "test", WHERE).images)


def test_show_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = {
        "data": {
            "some": {"source": "digits", "classes": [3, 5], "size": 16},
            "static": {"source": "noise", "kind": "pink", "count": 20, "classes": 2, "size": 16},
        },
        "models": {"net": {"arch": "resnet_mini", "data": "some", "train": {}}},
        "settings": {"noise": {"front": "net", "end": "net", "data": "static"}},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    code, out, _ = run(capsys, "show", tmp_path / "study.yaml")
    rows = [cells(line) for line in out.splitlines() if "data." in line]
    assert code == 0
    assert [row[:3] + row[4:5] + row[6:] for row in rows] == [
        [f"data.{name}", source, split, "2 of 2", "16 px"]
        for name, source in (("some", "digits"), ("static", "noise"))
        for split in ("train", "test")
    ]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["import", "/nowhere", "{out}"], ["SOURCE = '/nowhere'", "no such folder"]),
        (["import", "{in}", "{out}", "--classes", "cow,oul"], ["SOURCE.classes = 'oul'", "did you mean 'owl'?"]),
        (["import", "{in}", "{out}", "--classes", "no.txt"], ["SOURCE.classes = 'no.txt'", "cannot be read"]),
        (["import", "{in}", "{out}", "--size", "1"], ["--size = 1", "greater than or equal to 4"]),
        (["import", "{in}", "{out}", "--limit", "1,2,3"], ["--limit = '1,2,3'", "TRAIN,TEST"]),
        (["import", "{in}", "{out}", "--limit", "0"], ["--limit", "greater than or equal to 1"]),
        (["import", "{in}", "/proc/here"], ["storage = '/proc/here'", "cannot be written to"]),
        (["show", "/nowhere"], ["FOLDER = '/nowhere'", "no such folder"]),
        (["show", "/nowhere.yaml"], ["config = '/nowhere.yaml'"]),
        (["show", "{out}"], ["{out}", "no such folder"]),
    ],
)
def test_wrong_arguments(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    places = {"{in}": str(folder), "{out}": str(tmp_path / "out")}
    code, out, err = run(capsys, *(places.get(argument, argument) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert all(places.get(part, part) in err for part in parts), err
    assert not (tmp_path / "out" / "index.json").exists()


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"source": "digits", "classes": True}, r"^data\.mine\.classes"),
        ({"source": "digits", "classes": [1.5]}, r"^data\.mine\.classes"),
        ({"source": "noise", "classes": "list.txt"}, r"^data\.mine.*number"),
        ({"source": "webdataset"}, r"^data\.mine.*needs either path"),
        ({"source": "wds", "path": "x"}, r"^data\.mine\.source = 'wds'"),
        ({"source": "noise", "coutn": 3}, r"^data\.mine\.coutn = 3: unknown key 'coutn'; did you mean 'count'"),
    ],
)
def test_wrong_datasets_in_a_config(dataset: dict[str, object], message: str) -> None:
    raw = {
        "name": "x",
        "data": {"mine": dataset},
        "models": {"net": {"arch": "resnet_mini", "data": "mine", "train": {}}},
        "settings": {"s": {"front": "net", "end": "net"}},
    }
    with pytest.raises(InputError, match=message) as caught:
        parse_config(raw)
    assert "\n" not in str(caught.value)

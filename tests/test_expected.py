"""``expect``: what is read is compared with it, and a plan can be made from it before the files are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_cli import image_folder
from timm.data import ImageNetInfo

from raystitch.catalogue import inspect
from raystitch.cli import main
from raystitch.config import DataConfig, parse_config
from raystitch.data.classes import listed_classes
from raystitch.errors import InputError, MissingError
from raystitch.expected import is_assumed, look_at_data, look_or_assume

LISTS = Path(__file__).parents[1] / "configs" / "paper" / "classes"
WHERE = "data.mine"


def dataset(**fields: object) -> DataConfig:
    return DataConfig.model_validate({"source": "noise", "count": 30, "size": 8, "classes": 4, **fields})


def test_what_is_found_may_be_as_expected() -> None:
    facts = look_at_data(dataset(expect={"train": 12, "test": 30, "classes": 4}, limit={"train": 12}), WHERE)
    assert (facts.train_count, facts.num_classes, facts.assumed) == (12, 4, False)
    assert facts == look_at_data(dataset(limit={"train": 12}), WHERE)  # an expectation changes no id


def test_counts_are_expected_to_a_tenth() -> None:
    for train in (28, 33):  # 30 is off by 2 of 2.8, and by 3 of 3.3
        assert look_at_data(dataset(expect={"train": train}), WHERE).train_count == 30


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ({"train": 34}, "data.mine.expect.train = 34: the dataset has 30 training images"),
        ({"test": 27, "classes": 4}, "data.mine.expect.test = 27: the dataset has 30 test images"),
        ({"train": 30, "classes": 10}, "data.mine.expect.classes = 10: the dataset has 4 classes"),
    ],
)
def test_what_is_found_differs(expect: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        look_or_assume(dataset(expect=expect), WHERE)
    assert str(caught.value) == message


EXPECTED = {"size": 8, "expect": {"train": 500, "test": 100, "classes": 10}}
ABSENT = [
    {"source": "parquet", "path": "{}/nowhere"},
    {"source": "parquet", "path": "{}"},
    {"source": "parquet", "train": "{}/train-*.parquet", "test": "{}/test.parquet"},
    {"source": "folder", "path": "{}/nowhere"},
    {"source": "folder", "train": "{}/train", "test": "{}/val"},
    {"source": "webdataset", "path": "{}/nowhere"},
    {"source": "webdataset", "train": "{}/train-{{0000..0146}}.tar", "test": "{}/val.tar"},
    {"source": "cifar", "path": "{}/nowhere"},
    {"source": "cifar", "path": "{}/cifar-10-python.tar.gz"},
]


def placed(fields: dict[str, str], root: Path) -> dict[str, Any]:
    return {name: value.format(root) for name, value in fields.items()}


@pytest.mark.parametrize("fields", ABSENT)
def test_files_that_are_not_there(tmp_path: Path, fields: dict[str, str]) -> None:
    config = DataConfig.model_validate({**placed(fields, tmp_path), **EXPECTED})
    with pytest.raises(MissingError):
        look_at_data(config, WHERE)
    facts = look_or_assume(config, WHERE)
    assert (facts.train_count, facts.num_classes, facts.size, facts.assumed) == (500, 10, 8, True)
    assert is_assumed(facts.train)
    assert is_assumed(facts.test)
    assert facts.train != facts.test


def test_made_up_fingerprints_follow_the_config_of_the_split(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("n01\nn02\n")
    base = {"source": "folder", "path": str(tmp_path / "nowhere"), "size": 8, "expect": {"train": 500, "test": 100}}

    def of(**changes: object) -> tuple[str, str]:
        facts = look_or_assume(DataConfig.model_validate({**base, "classes": ["n01", "n02"], **changes}), WHERE)
        return facts.train, facts.test

    assert (
        of()
        == of(cue="pixel")
        == of(classes=str(tmp_path / "list.txt"))
        == of(expect={"train": 400, "test": 9, "classes": 2})
    )
    train, test = of()
    assert of(limit={"test": 5})[0] == train
    assert of(limit={"test": 5})[1] != test
    others = [of(size=9), of(path=str(tmp_path / "elsewhere")), of(classes=["n02", "n01"]), of(greyscale=True)]
    assert len({train, *(other[0] for other in others)}) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": None}, "no such folder; to plan without the files, give size"),
        (
            {"expect": {}},
            "no such folder; to plan without the files, give expect.train and expect.test and expect.classes",
        ),
        ({"classes": ["a", "b"]}, "data.mine.expect.classes = 10: the dataset has 2 classes"),
        (
            {"classes": ["a"], "expect": {"train": 5, "test": 5}},
            "data.mine.classes = 1: a dataset needs at least two classes",
        ),
        ({"cue": {"kind": "pixel", "size": 9}}, "data.mine.cue.size = 9: the marker is larger than the images"),
        (
            {"cue": {"kind": "rand", "placement": "class", "size": 6}},
            "data.mine.cue.size = 6: images of 8 pixels have 9 places for it, and there are 10 classes; use at most 5",
        ),
        ({"classes": "/nowhere/list.txt"}, "data.mine.classes = '/nowhere/list.txt': cannot be read"),
    ],
)
def test_too_little_is_said_to_plan(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    raw = {"source": "parquet", "path": str(tmp_path / "nowhere"), **EXPECTED, **changes}
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        look_or_assume(DataConfig.model_validate(raw), WHERE)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_not_taken_for_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"this is no table")
    (tmp_path / "train-0000.tar").write_bytes(b"this is no tar")
    for source, name in (("parquet", "train.parquet"), ("webdataset", "train-{0000..0003}.tar")):
        raw = {"source": source, "train": str(tmp_path / name), "test": str(tmp_path / name), **EXPECTED}
        with pytest.raises(InputError, match="train") as caught:
            look_or_assume(DataConfig.model_validate(raw), WHERE)
        assert not isinstance(caught.value, MissingError)


def study(tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "tiny",
        "data": {"far": {"source": "webdataset", "path": str(tmp_path / "nowhere"), **EXPECTED}, "near": "digits"},
        "models": {
            "front": {"arch": "resnet_mini", "data": "far", "seeds": "0-1", "checkpoint": str(tmp_path / "{seed}.pt")},
            "end": {"arch": "resnet_mini", "data": "far", "train": {}},
        },
        "settings": {"pair": {"front": "front/1", "end": "end"}},
        "seeds": 1,
    }


def run(tmp_path: Path, raw: dict[str, Any], *command: str) -> int:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(raw))
    return main([*command, str(tmp_path / "study.yaml"), "--storage", str(tmp_path / "runs")])


def test_plan_and_dry_run_without_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["plan"], ["sweep", "--dry-run"]):
        assert run(tmp_path, study(tmp_path), *command) == 0
        out = capsys.readouterr().out
        row = next(line for line in out.splitlines() if line.startswith("│ model "))
        assert [cell.strip() for cell in row.split("│")][2] == "2"
        (line,) = [line for line in out.splitlines() if "not there" in line]
        assert line.endswith(": data.far, models.front.checkpoint")
    facts = inspect(parse_config(study(tmp_path)), assume_missing=True)
    weights = facts.models["front"].weights
    assert all(map(is_assumed, weights.values()))
    assert len(set(weights.values())) == 2


@pytest.mark.parametrize("command", ["validate", "sweep"])
def test_whatever_computes_wants_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(tmp_path, study(tmp_path), command) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"raystitch: data.far.path = '{tmp_path / 'nowhere'}': no such folder\n"


def test_a_damaged_checkpoint_is_not_taken_for_a_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.pt").write_bytes(b"these are no weights")
    assert run(tmp_path, study(tmp_path), "plan") == 2
    assert "models.front.checkpoint" in capsys.readouterr().err


BAD = {
    "class list with unknown names": (
        {"classes": ["class0", "klass1"]},
        3,
        ["data.mine.classes = 'klass1'", "'class1'"],
    ),
    "class list that is not there": ({"classes": "/nowhere.txt"}, 3, ["data.mine.classes = '/nowhere.txt'"]),
    "one class": ({}, 1, ["data.mine.classes = 1", "at least two classes"]),
    "one class in the list": ({"classes": ["class2"]}, 3, ["data.mine.classes = 1", "at least two classes"]),
    "marker larger than the image": ({"cue": {"kind": "pixel", "size": 9}}, 3, ["data.mine.cue", "= 9", "at most 8"]),
    "not what is expected": ({"expect": {"train": 20}}, 3, ["data.mine.expect.train = 20", "has 12 training images"]),
}


@pytest.mark.parametrize("command", ["validate", "sweep", "plan"])
@pytest.mark.parametrize(("fields", "classes", "parts"), BAD.values(), ids=BAD)
def test_bad_data_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    fields: dict[str, object],
    classes: int,
    parts: list[str],
) -> None:
    raw = {
        "name": "tiny",
        "data": {"mine": {"source": "folder", "path": str(image_folder(tmp_path / "images", classes, 4)), **fields}},
        "models": {"net": {"arch": "resnet_mini", "data": "mine", "train": {"batch": 2}}},
        "settings": {"self": {"front": "net", "end": "net"}},
        "fit": {"batch": 2, "init_images": 4},
    }
    assert run(tmp_path, raw, command) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    for part in parts:
        assert part in line
    assert not (tmp_path / "runs").exists()


def test_class_lists_of_the_paper() -> None:
    known = ImageNetInfo("imagenet-1k")
    every = known.label_names()
    lists = {path.stem: listed_classes(str(path), WHERE, {}) for path in LISTS.glob("*.txt")}
    counts = {"imagenet100_a": 100, "imagenet100_b": 100, "imagenette": 10, "imagewoof": 10}
    assert {name: len(set(found)) for name, found in lists.items()} == counts
    assert {name: len(found) for name, found in lists.items()} == counts
    assert all(set(found) <= set(every) for found in lists.values())
    a, b = set(lists["imagenet100_a"]), lists["imagenet100_b"]
    assert not a & set(b)
    assert list(b) == sorted(set(every) - a)[::9]  # the rule that the file states
    words = {
        name: [known.label_name_to_description(str(entry), detailed=False).split(", ")[0] for entry in found]
        for name, found in lists.items()
    }
    assert " / ".join(words["imagenette"]) == (
        "tench / English springer / cassette player / chain saw / church / "
        "French horn / garbage truck / gas pump / golf ball / parachute"
    )
    assert " / ".join(words["imagewoof"]) == (
        "Shih-Tzu / Rhodesian ridgeback / beagle / English foxhound / Border terrier / "
        "Australian terrier / golden retriever / Old English sheepdog / Samoyed / dingo"
    )

"""The command line: every kind of wrong config is one clear line and exit code 2, before any work starts."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from raystitch.cli import main
from raystitch.nets import build_net, save_weights

STUDY = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "limit": {"train": 600, "test": 100}}},
    "models": {"net": {"arch": "resnet_mini", "data": "digits", "seeds": "0-1", "train": {"epochs": 1}}},
    "settings": {"pair": {"front": "net/1", "end": "net/0"}},
    "seeds": 1,
}
NORM = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def changed(path: str, value: object) -> dict:
    study = copy.deepcopy(STUDY)
    *parents, leaf = path.split(".")
    node = study
    for parent in parents:
        node = node.setdefault(parent, {})
    node[leaf] = value
    return study


def run(tmp_path: Path, study: dict, *arguments: str, command: str = "sweep") -> int:
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump(study))
    return main([command, str(config), "--storage", str(tmp_path / "runs"), *arguments])


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], study: dict, *parts: str) -> None:
    """The study is refused before anything is written, in one line that holds each of the parts."""
    assert run(tmp_path, study) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("raystitch: ")
    for part in parts:
        assert part in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("fit.epoch", 3, ["fit.epoch", "did you mean 'epochs'"]),  # unknown key
        ("fit.lr", "fast", ["fit.lr", "'fast'", "number"]),  # bad type
        ("models.net.arch", "resnt18", ["models.net.arch", "'resnt18'", "resnet18"]),  # unknown model
        ("points", [1, 9], ["points = 9", "stitch points 1 to 4"]),  # unknown point
        ("models.net.points", ["layer9"], ["models.net.points", "layer9"]),
        ("data.digits", {"source": "parquet", "path": "/nowhere"}, ["data.digits", "/nowhere"]),  # missing file
        ("models.net.args", {"widht": 8}, ["models.net.args", "widht"]),
        ("models.net.arch", "no_such_module:net", ["models.net.arch", "no_such_module"]),
        ("fit.batch", 2000, ["fit.batch = 2000", "600 images"]),
        ("fit.init_images", 700, ["fit.init_images = 700", "600 images"]),
        ("models.net.train.batch", 700, ["models.net.train.batch = 700", "600 images"]),
        ("settings.pair.eval", ["test", "shuffled"], ["settings.pair.eval", "no cue"]),
        ("data.digits.cue", {"kind": "pixel", "size": 9}, ["data.digits.cue", "9"]),
    ],
)
def test_wrong_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, value: object, parts: list[str]
) -> None:
    refused(tmp_path, capsys, changed(path, value), *parts)


def checkpoint_study(file: Path) -> dict:
    study = copy.deepcopy(STUDY)
    study["models"]["net"] = {"arch": "resnet_mini", "data": "digits", "checkpoint": str(file)}
    study["settings"] = {"self": {"front": "net", "end": "net"}}
    return study


def test_unreadable_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "weights.pt"
    refused(tmp_path, capsys, checkpoint_study(file), "models.net.checkpoint", "weights.pt", "no such file")
    file.write_bytes(b"these are no weights")
    refused(tmp_path, capsys, checkpoint_study(file), "models.net.checkpoint", "weights.pt")


def test_weights_that_would_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"state_dict": Trap()}, tmp_path / "weights.pt")
    refused(tmp_path, capsys, checkpoint_study(tmp_path / "weights.pt"), "models.net.checkpoint")
    assert not (tmp_path / "ran").exists()


def test_weights_with_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = build_net("resnet_mini", 10, {}, *NORM)
    torch.nn.init.constant_(next(net.net.parameters()), float("nan"))
    (tmp_path / "weights.safetensors").write_bytes(save_weights(net))
    refused(tmp_path, capsys, checkpoint_study(tmp_path / "weights.safetensors"), "models.net.checkpoint")


def test_class_count_mismatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "weights.safetensors").write_bytes(save_weights(build_net("resnet_mini", 100, {}, *NORM)))
    refused(tmp_path, capsys, checkpoint_study(tmp_path / "weights.safetensors"), "100", "10")


def image_folder(root: Path, classes: int, count: int, size: int = 8) -> Path:
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for label in range(classes):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for n in range(count):
                pixels = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{n}.png")
    return root


def test_models_of_other_classes_than_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = changed("data.three", {"source": "folder", "path": str(image_folder(tmp_path / "images", 3, 50))})
    study["settings"]["pair"]["data"] = "three"
    study["fit"] = {"init_images": 100}
    refused(tmp_path, capsys, study, "settings.pair", "'net' has 10 classes", "'three' has 3")


def test_one_class_is_not_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = changed("data.digits", {"source": "folder", "path": str(image_folder(tmp_path / "images", 1, 3))})
    refused(tmp_path, capsys, study, "data.digits", "two classes")


def test_an_image_that_cannot_be_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = image_folder(tmp_path / "images", 10, 60)
    torn = images / "test" / "class3" / "7.png"
    torn.write_bytes(torn.read_bytes()[:60])
    study = changed("data.digits", {"source": "folder", "path": str(images)})
    refused(tmp_path, capsys, study, "class3/7.png")


def test_a_net_of_another_number_of_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_nets.py").write_text(
        "from torch import nn\n"
        "def seven(num_classes):\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 7))\n"
        "def leaving(num_classes):\n"
        "    raise SystemExit(0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    refused(tmp_path, capsys, changed("models.net.arch", "odd_nets:seven"), "models.net.arch", "7", "10")
    refused(tmp_path, capsys, changed("models.net.arch", "odd_nets:leaving"), "models.net.arch", "odd_nets:leaving")


def test_empty_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        (tmp_path / "images" / split / "class0").mkdir(parents=True)
    refused(
        tmp_path, capsys, changed("data.digits", {"source": "folder", "path": str(tmp_path / "images")}), "data.digits"
    )


def test_impossible_transform(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = changed(
        "models.vit",
        {
            "arch": "vit_tiny_patch16_224",
            "args": {"img_size": 8, "patch_size": 4, "depth": 2},
            "data": "digits",
            "train": {},
        },
    )
    study["settings"]["pair"]["front"] = "vit"
    study.setdefault("fit", {})["stitch"] = "identity"
    refused(tmp_path, capsys, study, "settings.pair", "vit", "token", "conv")


def test_attacks_that_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = changed("settings.pair.eval", ["test", "autoattack"])
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    refused(tmp_path, capsys, study, "settings.pair.eval", "autoattack", "pip install 'raystitch[robust]'")
    monkeypatch.undo()
    pytest.importorskip("pyautoattack")
    study["fit"] = {"init_images": 100}
    study["data"]["digits"]["classes"] = [0, 1, 2]
    refused(tmp_path, capsys, study, "settings.pair.eval", "autoattack", "at least 4 classes", "apgd_ce_dlr")
    study["data"]["digits"]["classes"] = [0, 1]
    refused(tmp_path, capsys, study, "settings.pair.eval", "autoattack", "three classes or more")


def test_similarity_of_too_few_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = changed("data.digits.limit", {"train": 3, "test": 3})
    study |= {"similarity": True, "fit": {"batch": 2, "init_images": 2}}
    study["models"]["net"]["train"] = {"batch": 2}
    refused(tmp_path, capsys, study, "similarity", "at least 16 training images", "has 3")
    study = changed("similarity", {"images": 15})
    refused(tmp_path, capsys, study, "similarity.images = 15", "greater than or equal to 16")


def test_unwritable_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("a file is in the way")
    assert run(tmp_path, STUDY) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"raystitch: storage = '{tmp_path / 'runs'}': cannot be written to")


def test_plan_counts_units_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STUDY, command="plan") == 0
    shown = capsys.readouterr().out
    for kind, units in (("model", 2), ("IRI set", 4), ("fit", 4 * 2 * 4), ("unstitched", 2)):
        row = next(line for line in shown.splitlines() if line.startswith(f"│ {kind} "))
        assert [cell.strip() for cell in row.split("│")][2] == str(units)
    assert "estimated cost of what is missing" in shown
    assert run(tmp_path, STUDY, "--dry-run") == 0
    assert capsys.readouterr().out == shown
    assert not (tmp_path / "runs").exists()


def test_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STUDY, "--set", "seeds=1-3", command="validate") == 0
    assert "tiny is valid: 2 models, 4 IRI sets, 98 fits" in capsys.readouterr().out


def test_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["points", "cifar_resnet20"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "conv" in line]
    assert len(rows) == 10
    assert "layer1.2" in rows[3]
    assert "16 × 32 × 32" in rows[3]
    assert main(["points", "resnet18", "--size", "32", "--arg", "stem=cifar"]) == 0
    assert "64 × 32 × 32" in capsys.readouterr().out
    for wrong, part in (
        (["resnt18"], "did you mean"),
        (["resnet18", "--size", "-3"], "--size = -3"),
        (["resnet18", "--arg", "x=["], "not valid YAML"),
        (["resnet18", "--arg", "x"], "key=value"),
    ):
        assert main(["points", *wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert part in line


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ([], ["swep"], ["sweep"], ["plan", "a", "--nosuch"]):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("raystitch")


@pytest.mark.parametrize("command", ["status", "results", "report"])
def test_storage_without_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "--storage", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line
    assert "holds no study" in line


def test_shipped_configs_are_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = Path(__file__).parents[1] / "configs"
    assert main(["validate", str(root / "quickstart.yaml"), "--storage", str(tmp_path)]) == 0
    assert "quickstart is valid: 5 models" in capsys.readouterr().out


def test_public_weights_study_is_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path, shared: Path) -> None:
    config = Path(__file__).parents[1] / "configs" / "cifar10_resnet20_resnet32.yaml"
    places = {
        "data.cifar10.path": shared / "data" / "cifar10",
        "models.resnet20.checkpoint": shared / "models" / "resnet20-12fca82f.th",
        "models.resnet32.checkpoint": shared / "models" / "resnet32-d509ac18.th",
    }
    overrides = [part for key, value in places.items() for part in ("--set", f"{key}={json.dumps(str(value))}")]
    assert main(["validate", str(config), "--storage", str(tmp_path), *overrides]) == 0
    assert "is valid: 2 models, 4 IRI sets, 36 fits" in capsys.readouterr().out

"""``raystitch validate`` on nets and weights that do not go together: one line, exit code 2, and nothing is written."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from raystitch.cli import main
from raystitch.nets import build_net, save_weights

NORM = (0.0,) * 3, (1.0,) * 3
VIT = {"embed_dim": 24, "num_heads": 2, "depth": 2}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "size": 16, "limit": {"train": 200, "test": 64}}},
    "models": {"net": {"arch": "resnet_mini", "args": {"width": 4}, "data": "digits", "train": {"epochs": 1}}},
    "settings": {"self": {"front": "net", "end": "net"}},
    "fit": {"batch": 64, "init_images": 100},
    "seeds": 1,
}


def changed(**parts: Any) -> dict[str, Any]:
    """The study with some dotted paths (``__`` for a dot) set."""
    study = copy.deepcopy(STUDY)
    for path, value in parts.items():
        *parents, leaf = path.split("__")
        node = study
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return study


def from_file(file: Path, arch: str, args: dict[str, Any]) -> dict[str, Any]:
    return changed(models={"net": {"arch": arch, "args": args, "data": "digits", "checkpoint": str(file)}})


def refused(folder: Path, capsys: pytest.CaptureFixture[str], study: dict[str, Any]) -> str:
    config = folder / "study.yaml"
    config.write_text(yaml.safe_dump(study))
    assert main(["validate", str(config), "--storage", str(folder / "runs")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert not (folder / "runs").exists()
    (line,) = shown.err.splitlines()
    return line


def vit(**args: Any) -> bytes:
    return save_weights(build_net("vit_tiny_patch16_224", 10, {**VIT, **args}, *NORM))


@pytest.mark.parametrize(
    ("made_with", "told"),
    [
        (
            {"img_size": 32, "patch_size": 4},
            "pos_embed is (1, 65, 24) instead of (1, 17, 24), made for 8×8 patches, not 4×4",
        ),
        (
            {"img_size": 16, "patch_size": 2},
            "pos_embed is (1, 65, 24) instead of (1, 17, 24), made for 8×8 patches, not 4×4",
        ),
        ({"img_size": 16, "patch_size": 4, "embed_dim": 48}, "pos_embed is (1, 17, 48) instead of (1, 17, 24); set"),
    ],
)
def test_a_vit_of_another_patch_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made_with: dict[str, int], told: str
) -> None:
    file = tmp_path / "vit.safetensors"
    file.write_bytes(vit(**made_with))
    line = refused(tmp_path, capsys, from_file(file, "vit_tiny_patch16_224", {**VIT, "img_size": 16, "patch_size": 4}))
    assert line.startswith(f"raystitch: models.net.checkpoint = '{file}': ")
    assert told in line
    assert "img_size and patch_size in args" in line


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_name_model_file_and_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: float
) -> None:
    net = build_net("resnet_mini", 10, {"width": 4}, *NORM)
    with torch.no_grad():
        net.net.layer2[0].conv1.weight[0, 0, 0, 0] = wrong
    file = tmp_path / "poisoned.safetensors"
    file.write_bytes(save_weights(net))
    line = refused(tmp_path, capsys, from_file(file, "resnet_mini", {"width": 4}))
    assert line == (f"raystitch: models.net.checkpoint = '{file}': layer2.0.conv1.weight holds NaN or infinite values")


def test_one_poisoned_seed_among_many_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        net = build_net("resnet_mini", 10, {"width": 4}, *NORM, seed=seed)
        if seed == 1:
            torch.nn.init.constant_(net.net.fc.bias, float("nan"))
        (tmp_path / f"net{seed}.safetensors").write_bytes(save_weights(net))
    study = from_file(tmp_path / "net{seed}.safetensors", "resnet_mini", {"width": 4})
    study["models"]["net"]["seeds"] = "0-2"
    line = refused(tmp_path, capsys, study)
    assert "models.net.checkpoint" in line
    assert "net1.safetensors': fc.bias holds NaN" in line


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (
            {"fit__init_images": 201},
            "fit.init_images = 201: settings.self trains its stitches on 'digits', which has 200",
        ),
        ({"fit__batch": 256}, "fit.batch = 256: settings.self trains its stitches on 'digits', which has 200 images"),
        ({"settings__self__fit": {"init_images": 500}}, "settings.self.fit.init_images = 500: settings.self trains"),
        ({"settings__self__fit": {"batch": 201}}, "settings.self.fit.batch = 201: settings.self trains"),
        (
            {"models__net__train__batch": 201},
            "models.net.train.batch = 201: the batch is larger than the training set, 200",
        ),
    ],
)
def test_more_images_than_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: dict[str, Any], told: str
) -> None:
    assert told in refused(tmp_path, capsys, changed(**parts))


@pytest.mark.parametrize("origin", [{"train": {"epochs": 1}}, {"untrained": True}])
def test_an_end_whose_suffix_would_need_more_than_the_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], origin: dict[str, Any]
) -> None:
    end = {"arch": "cifar_resnet20", "data": "digits", "points": ["layer2.0.conv1", "layer3.0"], **origin}
    study = changed(models__end=end, settings={"pair": {"front": "net", "end": "end"}})
    assert refused(tmp_path, capsys, study) == (
        "raystitch: models.end.points = 'layer2.0.conv1': the output of 'layer1' skips past it; "
        "nearest valid points: 'layer1', 'layer2.0'"
    )


def test_an_end_that_no_single_tensor_runs_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = {"arch": "pit_ti_224", "args": {"img_size": 64}, "data": "digits", "untrained": True}
    study = changed(data__digits__size=64, models__end=end, settings={"pair": {"front": "net", "end": "end"}})
    line = refused(tmp_path, capsys, study)
    assert line.startswith("raystitch: models.end.arch = 'pit_ti_224': no place was found where one tensor")
    assert "is needed beside others until" in line
    assert line.endswith("'norm', 'head_drop'")

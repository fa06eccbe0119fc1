"""Points and cost from shapes alone are those of the net itself; what shapes cannot tell is left to the net."""

from __future__ import annotations

import math
from typing import Any

import pytest

from raystitch import catalogue
from raystitch.config import parse_config
from raystitch.errors import InputError
from raystitch.nets import build_net, cut, find_points, known_to_have_classifier, outline, segment_flops

HALF = (0.5,) * 3, (0.5,) * 3
VIT_TINY = {"img_size": 32, "patch_size": 4}


@pytest.mark.parametrize(
    ("arch", "args", "size"),
    [
        ("cifar_resnet20", {}, 32),
        ("resnet_mini", {"width": 4, "blocks": [1, 2]}, 8),
        ("resnet18", {"stem": "cifar"}, 32),
        ("convnext_atto", {}, 32),
        ("efficientnet_b0", {}, 32),
    ],
)
def test_shapes_alone_give_the_points_and_flops_of_the_net(arch: str, args: dict[str, Any], size: int) -> None:
    net = build_net(arch, 10, args, *HALF).eval()
    points = find_points(net, size, num_classes=10)
    seen = outline(arch, 10, args, size)
    assert seen is not None
    assert seen.points == points
    assert seen.flops == segment_flops(cut(net, points), size)
    modules = [point.module for point in points[1:3]]
    named = outline(arch, 10, args, size, modules)
    assert named is not None
    assert [point.module for point in named.points] == modules
    assert sum(named.flops) == sum(seen.flops)


@pytest.mark.parametrize(
    ("arch", "args", "size", "count"),
    [
        ("resnet18", {"stem": "cifar"}, 32, 9),
        ("vgg16_bn", {}, 32, 6),
        ("vit_tiny_patch16_224", VIT_TINY, 32, 13),
        ("resnet18", {}, 224, 9),
        ("resnet34", {}, 224, 9),
        ("resnet50", {}, 224, 9),
        ("vit_base_patch16_224", {}, 224, 7),
    ],
)
def test_the_nets_of_the_paper_at_their_sizes(arch: str, args: dict[str, Any], size: int, count: int) -> None:
    seen = outline(arch, 10, args, size)
    assert seen is not None
    assert [point.index for point in seen.points] == list(range(1, count + 1))
    assert known_to_have_classifier(arch, 10, args, size)


def test_flops_of_a_transformer_are_those_of_its_formula() -> None:
    # per block and image, tokens n = 65, width d = 192: qkv 2·n·d·3d, projection 2·n·d·d, mlp 2·2·n·d·4d, attention 2·2·n·n·d
    seen = outline("vit_tiny_patch16_224", 10, VIT_TINY, 32)
    assert seen is not None
    n, d = 65, 192
    block = 2 * n * d * d * (3 + 1 + 8) + 4 * n * n * d
    patches = 2 * 64 * d * 3 * 4 * 4
    assert seen.flops == (patches + block, *[block] * 11, 0, 2 * d * 10)


def test_flops_of_a_convolution_are_two_per_weight_and_place() -> None:
    seen = outline("resnet18", 10, {"stem": "cifar"}, 32, ["act1"])
    assert seen is not None
    assert seen.flops[0] == 2 * math.prod((64, 3, 3, 3, 32, 32))


def test_what_shapes_cannot_tell_is_left_to_the_net() -> None:
    assert outline("torchvision.models:resnet18", 10, {}, 32) is None
    assert outline("resnt18", 10, {}, 32) is None
    assert outline("vit_tiny_patch16_224", 10, {}, 32) is None
    assert outline("cifar_resnet20", 10, {}, 32, ["layer1.0.conv1"]) is None
    assert not known_to_have_classifier("vgg16_bn", 10, {"mlp_ratio": 0.01}, 0)


def study(**model: object) -> dict[str, Any]:
    return {
        "name": "s",
        "data": {"d": {"source": "digits", "limit": {"train": 64, "test": 64}}},
        "models": {"m": {"arch": "resnet_mini", "data": "d", "train": {"batch": 32}, **model}},
        "settings": {"self": {"front": "m", "end": "m"}},
        "fit": {"batch": 32, "init_images": 64},
    }


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ({"points": ["layer1.0.conv1"]}, r"models\.m\.points = 'layer1\.0\.conv1': .* skips past it"),
        ({"arch": "vit_tiny_patch16_224"}, r"models\.m\.arch = 'vit_tiny_patch16_224': does not take 8×8 images"),
        ({"arch": "resnet_mini", "args": {"width": 0}}, r"models\.m\.args"),
    ],
)
@pytest.mark.parametrize("run", [False, True])
def test_plan_and_validate_refuse_alike(model: dict[str, Any], problem: str, run: bool) -> None:
    with pytest.raises(InputError, match=problem):
        catalogue.inspect(parse_config(study(**model)), look_at_images=run)


def test_plan_and_validate_find_alike() -> None:
    config = parse_config(study())
    assert catalogue.inspect(config) == catalogue.inspect(config, look_at_images=True)

"""Stitch points: METHOD §6's counts and places, and clear refusals."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from raystitch.errors import InputError
from raystitch.nets import NormalisedNet, Point, build_net, find_points
from raystitch.nets.liveness import liveness
from raystitch.nets.points import _kind
from raystitch.nets.tracing import trace

HALF = (0.5,) * 3, (0.5,) * 3
VIT_TINY = {"img_size": 32, "patch_size": 4}


def points_of(arch, size=32, modules=None, **args):
    return find_points(build_net(arch, 10, args, *HALF), size, modules)


@pytest.mark.parametrize(
    ("arch", "args", "count"),
    [
        ("cifar_resnet20", {}, 10),
        ("cifar_resnet32", {}, 16),
        ("cifar_resnet44", {}, 22),
        ("cifar_resnet56", {}, 28),
        ("resnet_mini", {}, 4),
        ("resnet18", {"stem": "cifar"}, 9),
        ("resnet34", {}, 9),
        ("resnet50", {}, 9),
        ("resnet101", {}, 9),
        ("vit_tiny_patch16_224", VIT_TINY, 13),
    ],
)
def test_counts_of_the_method(arch, args, count):
    points = points_of(arch, **args)
    assert [point.index for point in points] == list(range(1, count + 1))


def test_cifar_resnet_places():
    points = points_of("cifar_resnet20")
    assert points[0] == Point(1, "act1", "conv", (16, 32, 32))
    assert points[3] == Point(4, "layer1.2", "conv", (16, 32, 32))
    assert points[9] == Point(10, "layer3.2", "conv", (64, 8, 8))


def test_resnet50_has_the_first_and_last_block_of_each_stage():
    names = [point.module for point in points_of("resnet50")]
    blocks = ["layer1.0", "layer1.2", "layer2.0", "layer2.3", "layer3.0", "layer3.5", "layer4.0", "layer4.2"]
    assert names == ["act1", *blocks]


def test_vgg_points_close_convolutions_1_2_4_7_10_13():
    net = build_net("vgg16_bn", 10, {"mlp_ratio": 0.01}, *HALF)
    points = find_points(net, 32)
    kinds = [type(module) for module in net.net.features]
    acts = [int(point.module.removeprefix("features.")) for point in points]
    assert [kinds[: act + 1].count(nn.Conv2d) for act in acts] == [1, 2, 4, 7, 10, 13]
    assert all(kinds[act] is nn.ReLU for act in acts)


def test_vit_points_are_blocks_then_the_pooled_vector():
    points = points_of("vit_tiny_patch16_224", **VIT_TINY)
    assert points[:12] == tuple(Point(i + 1, f"blocks.{i}", "token", (65, 192)) for i in range(12))
    assert (points[12].kind, points[12].shape) == ("vector", (192,))


def test_vit_base_has_every_second_block():
    # METHOD §6: blocks 1, 3, 5, 7, 9, 11, counted from 1
    points = points_of("vit_base_patch16_224", img_size=32)
    assert [point.module for point in points[:6]] == [f"blocks.{i}" for i in (0, 2, 4, 6, 8, 10)]
    assert points[6:] == (Point(7, "fc_norm", "vector", (768,)),)


def test_channels_last_windows_are_tokens():
    points = points_of("swin_tiny_patch4_window7_224", 56, img_size=56)
    assert (points[0].kind, points[0].shape) == ("token", (14, 14, 96))
    assert (points[-1].kind, points[-1].shape) == ("vector", (768,))


@pytest.mark.parametrize(
    ("shape", "channels_last", "kind"),
    [
        ((5,), False, "vector"),
        ((5, 8), False, "token"),
        ((8, 4, 4), True, "conv"),
        ((4, 4, 8), False, "token"),
        ((4, 4, 4), False, "conv"),
        ((4, 4, 4), True, "token"),
        ((8, 4, 2), False, "conv"),
    ],
)
def test_kind_from_shape(shape, channels_last, kind):
    assert _kind(shape, channels_last) == kind


def test_a_torchvision_net_gets_the_same_points_as_timms():
    theirs = points_of("torchvision.models:resnet18")
    assert [p.module for p in theirs][1:] == [p.module for p in points_of("resnet18")][1:]
    assert theirs[0].module == "relu"


def test_named_modules_are_numbered_in_execution_order():
    points = points_of("cifar_resnet20", modules=["layer3", "layer1.0", "bn1"])
    assert [(point.index, point.module) for point in points] == [(1, "bn1"), (2, "layer1.0"), (3, "layer3")]


@pytest.mark.parametrize(
    ("module", "messages"),
    [
        ("layer1.0.conv1", ["the output of 'act1' skips past it", "nearest valid points: 'act1', 'layer1.0'"]),
        ("layer2.0.act1", ["the output of 'layer1' skips past it; nearest valid points: 'layer1', 'layer2.0'"]),
        ("layer1.9", ["unknown module; did you mean 'layer1."]),
        ("linear", ["is the net's output"]),
    ],
)
def test_invalid_names_say_why_and_what_is_near(module, messages):
    with pytest.raises(InputError) as error:
        points_of("cifar_resnet20", modules=[module])
    assert str(error.value).startswith(f"points = '{module}': ")
    for message in messages:
        assert message in str(error.value)


def test_a_crossing_value_without_a_name_is_placed():
    with pytest.raises(InputError, match=r"the value 'add\w*' computed in 'blocks.0' skips past it"):
        points_of("vit_tiny_patch16_224", modules=["blocks.0.mlp"], depth=2, **VIT_TINY)


def test_two_names_of_one_value_are_refused():
    with pytest.raises(InputError, match=r"is the same value as 'layer1.0'"):
        points_of("cifar_resnet20", modules=["layer1.0", "layer1.0.act2"])


def test_no_names_are_refused():
    with pytest.raises(InputError, match="at least one"):
        points_of("cifar_resnet20", modules=[])


def test_modes_and_weights_stay():
    net = build_net("resnet18", 10, {}, *HALF)
    net.net.layer2.eval()
    modes = [module.training for module in net.modules()]
    state = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    find_points(net, 32)
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(state[key], tensor) for key, tensor in net.state_dict().items())


def test_wrong_image_size_is_named():
    with pytest.raises(InputError, match="does not take 32×32 images"):
        points_of("vit_tiny_patch16_224", depth=1)


class Branching(nn.Module):
    """A block that no tracer can enter, and one that it can."""

    class Choice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            return self.conv(x) if x.sum() > 0 else x

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(self.Choice(), self.Choice())
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.blocks(x).relu().mean((2, 3)))


def test_untraceable_blocks_become_leaves():
    net = NormalisedNet(Branching(), *HALF)
    assert [point.module for point in find_points(net, 8)] == ["blocks.0", "blocks.1"]
    with pytest.raises(InputError, match=r"lies inside 'blocks.0', which cannot be taken apart"):
        find_points(net, 8, ["blocks.0.conv"])


class Untraceable(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)) if x.sum() > 0 else -x.mean((2, 3))


class Pair(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)), x


class Remembers(nn.Module):
    """Gives other outputs each time it is called, which no graph reproduces."""

    def __init__(self):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.block1(x).mean((2, 3)) * self.calls


class WritesIntoAView(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(3, 4, 3))
        self.write = write

    def forward(self, x):
        z = self.conv1(x)
        self.write(z)
        return F.relu(z).mean((2, 3))


def assign(z):
    z[:, 0] = 3


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Untraceable(), "cannot be traced"),
        (Pair(), "is not one tensor of logits"),
        (nn.Conv2d(3, 4, 3), "does not return logits"),
        (nn.Flatten(), "no place was found"),
        (Remembers(), "does not reproduce its outputs"),
        (WritesIntoAView(assign), "cannot be traced"),
        (WritesIntoAView(lambda z: z[:, 0].fill_(3)), "writes into a tensor in place"),
        (WritesIntoAView(lambda z: z[:, 0].add_(3)), "does not reproduce its outputs"),
    ],
)
def test_nets_that_cannot_be_cut_are_refused(net, message):
    with pytest.raises(InputError, match=message):
        find_points(NormalisedNet(net, *HALF), 8)


@pytest.mark.parametrize("arch", ["tnt_s_patch16_224", "pit_ti_224"])
def test_families_without_a_single_live_tensor_are_refused(arch):
    with pytest.raises(InputError, match="no place was found where one tensor carries everything"):
        points_of(arch, 224)


@pytest.mark.parametrize("arch", ["resnet_mini", "convnext_atto", "regnety_002"])
def test_liveness_agrees_with_removing_each_value(arch):
    graph = trace(build_net(arch, 10, {}, *HALF)).graph
    live = liveness(graph)
    assert live is not None
    for node in live.order:
        if node not in (live.images, live.logits):
            assert live.is_cut(node) is not reaches(live.images, live.logits, without=node)


def reaches(start: fx.Node, stop: fx.Node, without: fx.Node) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        for user in waiting.pop().users:
            if user not in seen and user is not without:
                seen.add(user)
                waiting.append(user)
    return stop in seen

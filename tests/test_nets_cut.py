"""Cutting: the chain is the net, exactly, for many families; nothing captured is overwritten; parameters are shared."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from raystitch.errors import InputError
from raystitch.nets import (
    Point,
    build_net,
    cut,
    find_points,
    fingerprint,
    freeze,
    outline,
)

HALF = (0.5,) * 3, (0.5,) * 3

FAMILIES = [
    ("cifar_resnet20", {}, 32),
    ("resnet_mini", {}, 8),
    ("resnet18", {"stem": "cifar"}, 32),
    ("resnet50", {}, 32),
    ("skresnet18", {}, 32),
    ("vgg11_bn", {"mlp_ratio": 0.01}, 32),
    ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 4}, 32),
    ("deit3_small_patch16_224", {"img_size": 32}, 32),
    ("eva02_tiny_patch14_224", {"img_size": 28}, 28),
    ("vit_base_patch16_siglip_224", {"img_size": 32, "depth": 3}, 32),
    ("convnext_tiny", {}, 32),
    ("swin_tiny_patch4_window7_224", {"img_size": 56}, 56),
    ("efficientnet_b0", {}, 32),
    ("tf_efficientnet_lite0", {}, 32),
    ("mobilenetv3_large_100", {}, 32),
    ("mixer_s16_224", {"img_size": 32}, 32),
    ("regnety_002", {}, 32),
    ("densenet121", {}, 32),
    ("repvgg_a0", {}, 32),
    ("cait_xxs24_224", {"img_size": 32}, 32),
    ("levit_128s", {}, 224),
]


def mini(seed=0):
    net = freeze(build_net("resnet_mini", 10, {"width": 8}, *HALF, seed=seed))
    return net, cut(net, find_points(net, 8))


@pytest.mark.parametrize(("arch", "args", "size"), FAMILIES, ids=[family[0] for family in FAMILIES])
@torch.no_grad()
def test_every_family_is_an_exact_chain(arch, args, size):
    net = freeze(build_net(arch, 10, args, *HALF, seed=1))
    points = find_points(net, size)
    chain = cut(net, points)
    x = torch.rand(3, 3, size, size)
    representations = chain.trace(x, 0, chain.n + 1)
    kept = [z.clone() for z in representations]
    assert chain.n == len(points) >= 3
    for point, z in zip(points, representations, strict=False):
        assert tuple(z.shape[1:]) == point.shape
    torch.testing.assert_close(representations[-1], net(x), rtol=0, atol=1e-4)
    for k, z in enumerate(representations[:-1], start=1):
        torch.testing.assert_close(chain.run(z, k, chain.n + 1), representations[-1], rtol=0, atol=1e-4)
    assert all(torch.equal(z, before) for z, before in zip(representations, kept, strict=True))


@pytest.mark.parametrize(
    ("arch", "args", "size", "count"),
    [
        ("resnet34", {"stem": "cifar"}, 32, 9),
        ("vgg16_bn", {"mlp_ratio": 0.01}, 32, 6),
        ("resnet18", {}, 224, 9),
        ("resnet34", {}, 224, 9),
        ("resnet50", {}, 224, 9),
        ("vit_base_patch16_224", {}, 224, 7),
    ],
)
@torch.no_grad()
def test_the_nets_of_the_method_are_exact_halves_at_their_sizes(arch, args, size, count):
    net, seen = freeze(build_net(arch, 10, args, *HALF, seed=1)), outline(arch, 10, args, size)
    chain = cut(net, seen.points)
    x = torch.rand(1, 3, size, size)
    *fronts, logits = chain.trace(x, 0, chain.n + 1)
    assert chain.n == count
    torch.testing.assert_close(logits, net(x), rtol=0, atol=1e-4)
    for k in (count // 2 + 1, count):
        assert tuple(fronts[k - 1].shape[1:]) == seen.points[k - 1].shape
        torch.testing.assert_close(chain.run(fronts[k - 1], k, chain.n + 1), logits, rtol=0, atol=1e-4)


@torch.no_grad()
def test_points_hold_what_a_hook_on_the_module_sees():
    net, chain = mini()
    seen = {}
    for point in chain.points:
        hook = net.net.get_submodule(point.module).register_forward_hook
        hook(lambda module, inputs, output, name=point.module: seen.__setitem__(name, output))
    x = torch.rand(2, 3, 8, 8)
    net(x)
    for point, z in zip(chain.points, chain.trace(x, 0, chain.n), strict=True):
        assert torch.equal(seen[point.module], z)


def test_run_and_trace_agree_and_check_their_range():
    _, chain = mini()
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(chain.run(x, 0, 3), chain.trace(x, 0, 3)[-1])
    assert chain.run(x, 2, 2) is x
    assert chain.trace(x, 2, 2) == []
    for start, stop in [(-1, 2), (3, 2), (0, 6)]:
        with pytest.raises(IndexError, match="0 <= start <= stop <= 5"):
            chain.run(x, start, stop)


def test_cutting_at_some_of_the_points():
    net, chain = mini()
    some = cut(net, chain.points[1:3])
    x = torch.rand(2, 3, 8, 8)
    assert some.n == 2
    assert torch.equal(some.run(x, 0, 2), chain.run(x, 0, 3))
    assert torch.equal(some(x), net(x))


def test_a_suffix_holds_only_its_own_parameters():
    net, chain = mini()
    counts = [sum(p.numel() for p in segment.parameters()) for segment in chain.segments]
    assert sum(counts) == sum(p.numel() for p in net.parameters())
    assert counts[-1] == 32 * 10 + 10


def test_parameters_are_shared_and_gradients_reach_the_images():
    net, chain = mini()
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    chain.run(x, 0, 2).sum().backward()
    assert x.grad is not None
    assert bool((x.grad != 0).any())
    with torch.no_grad():
        net.net.fc.weight.mul_(2)
    assert torch.equal(chain(x), net(x))


def test_copies_are_independent_and_batchnorm_can_be_moved():
    net, chain = mini()
    private = copy.deepcopy(chain)
    before = fingerprint(net)
    for module in private.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    x = torch.rand(8, 3, 8, 8)
    private(x)
    assert fingerprint(net) == before == fingerprint(mini()[0])
    private.eval()
    assert not torch.equal(private(x), chain(x))


def test_chains_can_be_pickled():
    _, chain = mini()
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(pickle.loads(pickle.dumps(chain))(x), chain(x))


def test_the_first_segment_refuses_integer_images():
    _, chain = mini()
    with pytest.raises(TypeError, match="floats"):
        chain(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


def test_impossible_cuts_are_refused():
    net, chain = mini()
    with pytest.raises(InputError, match="unknown module"):
        cut(net, [Point(1, "layer9.0", "conv", (8, 8, 8))])
    with pytest.raises(InputError, match="execution order"):
        cut(net, [chain.points[2], chain.points[1]])


def test_freeze_and_fingerprint():
    net = build_net("resnet_mini", 10, {}, *HALF)
    assert freeze(net) is net
    assert not any(module.training for module in net.modules())
    assert not any(p.requires_grad for p in net.parameters())
    before = fingerprint(net)
    assert len(before) == 64
    net(torch.rand(2, 3, 8, 8))
    assert fingerprint(net) == before
    net.net.bn1.running_mean[0] += 1e-7
    moved = fingerprint(net)
    assert moved != before
    net.std[0, 0] = 0.4
    assert fingerprint(net) != moved

"""Nets that write into their tensors: cut, they compute what they compute whole, and no representation is overwritten."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from raystitch.errors import InputError
from raystitch.nets import NormalisedNet, Point, cut, find_points, fold_batchnorm, freeze
from raystitch.stitching.frozen import private_copy

HALF = (0.5,) * 3, (0.5,) * 3


class Untraceable(nn.Sequential):
    """A leaf of the graph that begins with an in-place layer and has weights."""

    def __init__(self):
        super().__init__(nn.ReLU(inplace=True), nn.Conv2d(3, 3, 1))

    def forward(self, x):
        return super().forward(x if x.sum() > -1e9 else 2 * x)


class Flagged(nn.Module):
    """A leaf of the graph with a flag that does not mean its input."""

    def __init__(self):
        super().__init__()
        self.conv, self.inplace = nn.Conv2d(3, 3, 1), True

    def forward(self, x):
        y = self.conv(x if x.sum() > -1e9 else 2 * x)
        return y.relu_() if self.inplace else y.relu()


class Overwriting(nn.Module):
    """Every way in which the start of a block can overwrite what the block before returned."""

    class Block(nn.Module):
        def __init__(self, how):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)
            self.relu = nn.ReLU(inplace=True)
            self.leaf, self.flagged = Untraceable(), Flagged()
            self.how = how

        def forward(self, x):
            if self.how == "module":
                x = self.relu(x)
            elif self.how == "function":
                x = F.relu(x, inplace=True)
            elif self.how == "method":
                x.relu_()  # the result is read through x
            elif self.how == "torch":
                x = torch.relu_(x)
            elif self.how == "iadd":
                x += 1
            elif self.how == "reused":
                return self.conv(self.relu(x)) + x  # which is what relu made of it
            elif self.how == "dropped":
                self.relu(input=x)
            elif self.how == "leaf":
                x = self.leaf(x)
            elif self.how == "flagged":
                return self.flagged(x) + x
            else:
                x.mul_(2).add_(1)
            return self.conv(x) + x

    def __init__(self, how):
        super().__init__()
        self.blocks = nn.Sequential(self.Block(how), self.Block(how), self.Block(how))
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.blocks(x * 2).mean((2, 3)))


@pytest.mark.parametrize(
    "how", ["module", "function", "method", "torch", "iadd", "chain", "reused", "dropped", "leaf", "flagged"]
)
@torch.no_grad()
def test_in_place_operations_never_overwrite_a_representation(how):
    net = freeze(NormalisedNet(Overwriting(how), *HALF))
    points = find_points(net, 6)
    assert [point.module for point in points] == ["blocks.0", "blocks.1", "blocks.2"]
    chain = cut(net, points)
    x = torch.rand(2, 3, 6, 6)
    z = chain.run(x, 0, 1)
    kept = z.clone()
    logits = chain.run(z, 1, 4)
    assert torch.equal(z, kept)
    torch.testing.assert_close(logits, net.net(2 * x - 1))
    assert {id(own) for own in chain.parameters()} <= {id(given) for given in net.parameters()}
    assert all(layer.inplace for layer in net.modules() if isinstance(layer, nn.ReLU)), "the net stays as it was"


class Leaf(nn.Module):
    """A leaf of the graph: what it does to its input is out of the tracer's sight."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        if x.sum() > -1e9:
            self.act(x)
        return 2 * x


class Twice(nn.Module):
    """A block whose input is read after something else has had it."""

    def __init__(self, first):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.first, self.block2 = first, nn.Conv2d(4, 4, 3)

    def forward(self, x):
        x = self.block1(x)
        y = self.first(x)
        return self.block2(x + y).mean((2, 3))


@pytest.mark.parametrize("act", [nn.ReLU(inplace=True), torch.relu_, nn.Sequential(nn.ReLU(inplace=True))])
@torch.no_grad()
def test_what_a_leaf_writes_into_its_input_is_read_after_it_and_not_before(act):
    net = freeze(NormalisedNet(Twice(Leaf(act)), *HALF))
    chain = cut(net, find_points(net, 8, ["block1", "block2"]))
    x = torch.rand(2, 3, 8, 8)
    z = chain.run(x, 0, 1)
    kept = z.clone()
    assert bool((z < 0).any())
    for made in (chain, copy.deepcopy(chain), pickle.loads(pickle.dumps(chain)), torch.compile(chain, backend="eager")):
        assert torch.equal(made.run(z, 1, 3), net(x))
        assert torch.equal(z, kept)


class WritesOut(nn.Module):
    def forward(self, x):
        return torch.mul(x, 2, out=x)


class WritesView(nn.Module):
    def forward(self, x):
        return x[:, :2].relu_().sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("first", "problem"), [(WritesOut(), "overwrites its input"), (WritesView(), "does not reproduce its outputs")]
)
def test_a_write_that_the_graph_does_not_show_is_found_by_running(first, problem):
    with pytest.raises(InputError, match=problem):
        find_points(NormalisedNet(Twice(first), *HALF), 8, ["block1"])


def test_leaves_are_the_net_s_own_with_their_modes():
    net = freeze(NormalisedNet(Twice(Leaf(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True)))), *HALF))
    chain = cut(net, find_points(net, 8))
    norms = {layer for layer in chain.modules() if isinstance(layer, nn.BatchNorm2d)}
    assert norms == {layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)}
    net.train()
    assert all(layer.training for layer in norms)


def weight_norm_used():
    conv = torch.nn.utils.weight_norm(nn.Conv2d(4, 4, 1))
    conv(torch.rand(1, 4, 2, 2))  # its weight is now a result, which has gradients
    return conv


def locked():
    conv = nn.Conv2d(4, 4, 1)
    conv.lock = threading.Lock()
    return conv


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("make", [weight_norm_used, locked])
def test_a_net_that_cannot_be_copied_is_cut_and_told_where_it_is_copied(make):
    leaf = Leaf(make())
    leaf.act.requires_grad_(True)
    net = NormalisedNet(Twice(leaf), *HALF).eval()
    points = (Point(1, "block1", "conv", (4, 6, 6)),)
    chain = cut(net, points)
    for copied in (fold_batchnorm, private_copy):
        with pytest.raises(InputError, match="the net holds what cannot be copied"):
            copied(chain)

"""The faster copy used in training computes what the net computes, and leaves the net alone."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from raystitch.nets import NormalisedNet, build_net, cut, find_points, fingerprint
from raystitch.stitching.folding import folded_copy


def warmed(net: NormalisedNet, size: int) -> NormalisedNet:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(3):
            net.train()(torch.rand(16, 3, size, size, generator=generator))
    return net.eval()


def batchnorms(net: nn.Module) -> int:
    return sum(isinstance(layer, nn.BatchNorm2d) for layer in net.modules())


@pytest.mark.parametrize(
    ("arch", "size", "left"), [("cifar_resnet20", 16, 0), ("resnet_mini", 8, 0), ("vit_tiny_patch16_224", 32, 0)]
)
def test_a_folded_copy_computes_the_same(arch, size, left):
    args = {"img_size": size, "patch_size": 8, "depth": 2} if "vit" in arch else {}
    net = warmed(build_net(arch, 10, args, (0.5,) * 3, (0.25,) * 3), size)
    chain = cut(net, find_points(net, size))
    before, x = fingerprint(chain), torch.rand(4, 3, size, size)
    fast = folded_copy(chain)
    with torch.no_grad():
        for a, b in zip(fast.trace(x, 0, chain.n + 1), chain.trace(x, 0, chain.n + 1), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert batchnorms(fast) == left
    assert not any(p.requires_grad for p in fast.parameters())
    assert fingerprint(chain) == before


class Twice(nn.Module):
    """One convolution before two BatchNorm layers: folding either would break the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn1, self.bn2 = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.bn2(self.conv(self.bn1(self.conv(x))))


def test_a_layer_used_twice_is_not_folded():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.segments = nn.ModuleList([fx.symbolic_trace(Twice()).eval()])

    net, x = Net(), torch.rand(2, 3, 4, 4)
    nn.init.constant_(net.segments[0].bn1.running_mean, 0.3)
    fast = folded_copy(net)
    assert batchnorms(fast) == 2
    torch.testing.assert_close(fast.segments[0](x), net.segments[0](x))

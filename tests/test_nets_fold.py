"""The folded copy of a chain computes what the chain computes, and leaves the chain alone."""

from collections.abc import Callable

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import fx, nn
from torch.nn.utils import prune

from raystitch.nets import (
    CutNet,
    NormalisedNet,
    Point,
    SoftPrefix,
    build_net,
    cut,
    find_points,
    fingerprint,
    fold_batchnorm,
    freeze,
)

NORM = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


def batchnorms(net: nn.Module) -> int:
    return sum(isinstance(layer, nn.BatchNorm2d) for layer in net.modules())


def warmed(net: NormalisedNet, size: int) -> NormalisedNet:
    """Running statistics unlike their initial values."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(3):
            net.train()(torch.rand(16, 3, size, size, generator=generator))
    return freeze(net)


@pytest.mark.parametrize(
    ("arch", "args", "size"),
    [
        ("resnet_mini", {}, 8),
        ("cifar_resnet20", {}, 32),
        ("resnet18", {"stem": "cifar"}, 32),
        ("mobilenetv3_small_050", {}, 32),
        ("regnety_002", {}, 32),
        ("densenet121", {}, 32),
        ("tf_efficientnet_lite0", {}, 32),
        ("vit_tiny_patch16_224", {"img_size": 16, "patch_size": 8, "depth": 2}, 16),
    ],
)
def test_folded_chain_computes_the_same_at_every_point(arch: str, args: dict, size: int) -> None:
    net = warmed(build_net(arch, 10, args, *NORM, seed=1), size)
    chain = cut(net, find_points(net, size))
    before = fingerprint(chain)
    folded = fold_batchnorm(chain)
    x = torch.rand(4, 3, size, size)
    for ours, theirs in zip(folded.trace(x, 0, folded.n + 1), chain.trace(x, 0, chain.n + 1), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
    assert fingerprint(chain) == before
    assert not any(p.requires_grad for p in folded.parameters())


@pytest.mark.parametrize(
    ("arch", "size"),
    [("cifar_resnet20", 32), ("resnet_mini", 8), ("resnet18", 32), ("regnety_002", 32), ("mobilenetv3_small_050", 32)],
)
def test_no_batchnorm_is_left_where_each_follows_a_convolution(arch: str, size: int) -> None:
    net = freeze(build_net(arch, 10, {}, *NORM))
    assert batchnorms(fold_batchnorm(cut(net, find_points(net, size)))) == 0


def test_activations_that_batchnorm_layers_contain_can_be_softened_once_folded() -> None:
    net = freeze(build_net("regnety_002", 10, {}, *NORM, seed=1))
    chain = fold_batchnorm(cut(net, find_points(net, 32)))
    soft, hard = SoftPrefix(chain, chain.n), chain.run
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(soft(x, 1.0), hard(x, 0, chain.n))
    inside = sum(isinstance(layer, BatchNormAct2d) and isinstance(layer.act, nn.ReLU) for layer in net.modules())
    relus = [layer for layer in chain.modules() if isinstance(layer, nn.ReLU)]
    assert len(relus) >= inside > 0
    assert not any(layer.inplace for layer in relus)


class NormTwice(nn.Module):
    """One layer of BatchNorm and activation that serves two places, and one that has no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 1) for _ in range(3))
        self.shared, self.of_batches = (
            BatchNormAct2d(3),
            BatchNormAct2d(3, track_running_stats=False, act_layer=nn.SiLU),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.of_batches(self.convs[2](x))
        return self.shared(self.convs[1](self.shared(self.convs[0](x)))).mean((2, 3))


def test_layers_of_batchnorm_and_activation_that_cannot_be_folded_compute_the_same() -> None:
    torch.manual_seed(0)
    net = warmed(NormalisedNet(NormTwice(), *NORM), 8)
    x = torch.rand(4, 3, 8, 8)
    folded = fold_batchnorm(cut(net, find_points(net, 8, ["convs.2"])))
    torch.testing.assert_close(folded(x), net(x))


def test_moving_batchnorm_is_not_folded() -> None:
    net = freeze(build_net("resnet_mini", 10, {}, *NORM))
    chain = cut(net, find_points(net, 8)).train()
    with pytest.raises(ValueError, match="freeze"):
        fold_batchnorm(chain)


class Masked(nn.Module):
    """Holds tensors of three and five dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bias = nn.Conv2d(3, 4, 1), nn.Parameter(torch.rand(4, 1, 1))
        self.register_buffer("mask", torch.rand(1, 1, 4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((self.conv(x) + self.bias)[:, None] * self.mask)[:, 0]


def test_tensors_of_any_number_of_dimensions_are_kept() -> None:
    points = [Point(1, "masked", "conv", (4, 4, 4))]
    segments = [fx.symbolic_trace(Masked()), fx.symbolic_trace(nn.Flatten())]
    net = CutNet(points, segments).eval().requires_grad_(False)
    x = torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(fold_batchnorm(net)(x), net(x))
    assert fold_batchnorm(net).segments[0].conv.weight.is_contiguous(memory_format=torch.channels_last)


class Twice(nn.Module):
    """One convolution before two BatchNorm layers: folding either would break the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn1, self.bn2 = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn2(self.conv(self.bn1(self.conv(x))))


def test_a_layer_used_twice_is_not_folded() -> None:
    net, x = CutNet((), [fx.symbolic_trace(Twice())]), torch.rand(2, 3, 4, 4)
    nn.init.constant_(net.segments[0].bn1.running_mean, 0.3)
    freeze(net)
    folded = fold_batchnorm(net)
    assert batchnorms(folded) == 2
    torch.testing.assert_close(folded(x), net(x))


class Blocks(nn.Module):
    """Three blocks of convolution, BatchNorm and ReLU, and a head."""

    def __init__(self) -> None:
        super().__init__()
        widths = [(3, 6), (6, 6), (6, 6)]
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(a, b, 3), nn.BatchNorm2d(b), nn.ReLU(inplace=True)) for a, b in widths)
        )
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


def hook(place: int) -> Callable[[nn.Module], None]:
    """Doubles what a layer of each block gives."""
    return lambda net: [block[place].register_forward_hook(lambda layer, x, z: 2 * z) for block in net.blocks]


def own_forward(place: int) -> Callable[[nn.Module], None]:
    """Doubles what a layer of each block gives, by a forward of the layer's own."""

    def change(net: nn.Module) -> None:
        for block in net.blocks:
            block[place].forward = lambda x, plain=block[place].forward: 2 * plain(x)

    return change


def reparametrise(how: Callable[[nn.Module], object]) -> Callable[[nn.Module], None]:
    return lambda net: [how(block[0]) for block in net.blocks]


def prune_half(layer: nn.Module) -> None:
    prune.random_unstructured(layer, "weight", 0.5)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
@pytest.mark.parametrize(
    "change",
    [
        *map(hook, range(3)), *map(own_forward, range(3)), reparametrise(prune_half), reparametrise(nn.utils.weight_norm),
        reparametrise(nn.utils.spectral_norm), reparametrise(nn.utils.parametrizations.weight_norm),
        reparametrise(nn.utils.parametrizations.spectral_norm),
    ],
    ids=[
        "hooked conv", "hooked norm", "hooked relu", "conv's forward", "norm's forward", "relu's forward", "pruned",
        "weight_norm", "spectral_norm", "parametrised weight_norm", "parametrised spectral_norm",
    ],
)  # fmt: skip
def test_layers_that_compute_something_else_than_their_type_says_keep_doing_so(
    change: Callable[[nn.Module], None],
) -> None:
    torch.manual_seed(0)
    own = Blocks()
    change(own)
    net, x = warmed(NormalisedNet(own, *NORM), 12), torch.rand(4, 3, 12, 12)
    chain = cut(net, find_points(net, 12, ["blocks.0", "blocks.1", "blocks.2"]))
    folded = fold_batchnorm(chain)
    prefix = SoftPrefix(folded, 2)
    prefix.calibrate((3, 12, 12), torch.device("cpu"))
    expected = net.net.blocks[:2]((x - net.mean) / net.std)
    for z in (chain.run(x, 0, 2), folded.run(x, 0, 2), prefix(x), prefix(x, 1.0)):
        torch.testing.assert_close(z, expected)
    torch.testing.assert_close(folded(x), net(x))

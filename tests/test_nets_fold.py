import pytest
import torch
from torch import nn

from raystitch.nets import build_net, cut, find_points, fingerprint, fold_batchnorm, freeze

NORM = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


@pytest.mark.parametrize(
    ("arch", "args", "size"),
    [
        ("resnet_mini", {}, 8),
        ("cifar_resnet20", {}, 32),
        ("resnet18", {"stem": "cifar"}, 32),
        ("mobilenetv3_small_050", {}, 32),
        ("vit_tiny_patch16_224", {"img_size": 16, "patch_size": 8, "depth": 2}, 16),
    ],
)
def test_folded_chain_computes_the_same_at_every_point(arch: str, args: dict, size: int) -> None:
    net = build_net(arch, 10, args, *NORM, seed=1)
    with torch.no_grad():
        net.train()
        net(torch.rand(16, 3, size, size))  # running statistics unlike their initial values
    chain = freeze(cut(net, find_points(freeze(net), size)))
    before = fingerprint(chain)
    folded = fold_batchnorm(chain)
    x = torch.rand(4, 3, size, size)
    for ours, theirs in zip(folded.trace(x, 0, folded.n + 1), chain.trace(x, 0, chain.n + 1), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
    assert fingerprint(chain) == before
    assert not any(p.requires_grad for p in folded.parameters())


def test_no_batchnorm_is_left_after_a_convolution() -> None:
    net = freeze(build_net("cifar_resnet20", 10, {}, *NORM))
    folded = fold_batchnorm(cut(net, find_points(net, 32)))
    assert not [m for m in folded.modules() if isinstance(m, nn.BatchNorm2d)]


def test_moving_batchnorm_is_not_folded() -> None:
    net = freeze(build_net("resnet_mini", 10, {}, *NORM))
    chain = cut(net, find_points(net, 8)).train()
    with pytest.raises(ValueError, match="freeze"):
        fold_batchnorm(chain)

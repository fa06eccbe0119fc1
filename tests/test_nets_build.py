"""Building nets: names, arguments, seeds, and the normalisation inside."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from raystitch.errors import InputError
from raystitch.nets import NormalisedNet, build_net, fingerprint

MEAN, STD = (0.5, 0.4, 0.3), (0.1, 0.2, 0.4)


def test_normalisation_is_inside():
    net = NormalisedNet(nn.Identity(), MEAN, STD)
    x = torch.full((1, 3, 2, 2), 0.7)
    expected = torch.tensor([2.0, 1.5, 1.0]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    torch.testing.assert_close(net(x), expected)
    assert not net.state_dict()


def test_integer_images_are_refused():
    with pytest.raises(TypeError, match=r"floats in \[0, 1\]"):
        NormalisedNet(nn.Identity(), MEAN, STD)(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("arch", "args", "size"),
    [
        ("cifar_resnet20", {}, 32),
        ("resnet_mini", {"width": 4, "blocks": [1, 2]}, 8),
        ("resnet18", {"stem": "cifar"}, 32),
        ("vit_tiny_patch16_224", {"img_size": 16, "patch_size": 4, "depth": 2}, 16),
        ("torchvision.models:resnet18", {}, 32),
    ],
)
def test_nets_give_logits_and_seeds_decide_weights(arch, args, size):
    before = torch.get_rng_state()
    net = build_net(arch, 7, args, MEAN, STD, seed=3)
    again, other = build_net(arch, 7, args, MEAN, STD, seed=3), build_net(arch, 7, args, MEAN, STD, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert net.eval()(torch.rand(2, 3, size, size)).shape == (2, 7)
    assert fingerprint(net) == fingerprint(again) != fingerprint(other)


def test_cifar_stem_keeps_the_resolution():
    net = build_net("resnet18", 10, {"stem": "cifar"}, MEAN, STD).net
    assert net.conv1.kernel_size == (3, 3)
    assert net.layer1(net.maxpool(net.act1(net.bn1(net.conv1(torch.rand(2, 3, 32, 32)))))).shape == (2, 64, 32, 32)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)])
def test_cifar_resnets_have_the_published_sizes(depth, parameters):
    # He et al. 2016, table 6: 0.27M, 0.46M, 0.66M, 0.85M; exact counts follow from the layer widths
    net = build_net(f"cifar_resnet{depth}", 10, {}, MEAN, STD)
    assert sum(p.numel() for p in net.parameters()) == parameters


@pytest.mark.parametrize(
    ("arch", "args", "message"),
    [
        ("resnet81", {}, "arch = 'resnet81': unknown architecture; did you mean 'resnet"),
        ("cifar_resnet-20", {}, "did you mean 'cifar_resnet20'"),
        ("hf-hub:someone/net", {}, "unknown architecture"),
        ("no_such_module:net", {}, "cannot be imported"),
        ("torch.nn:no_such_net", {}, "cannot be imported"),
        ("math:pi", {}, "is not a function"),
        ("builtins:dict", {}, "returned dict, not a torch module"),
        ("resnet18", {"colour": 3}, "resnet18 cannot be built so"),
        ("resnet18", {"pretrained": True}, "args.pretrained = True"),
        ("resnet_mini", {"blocks": []}, "at least 1"),
        ("resnet_mini", {"depth": 3}, "unexpected keyword argument 'depth'"),
        ("mobilenetv3_small_050", {"stem": "cifar"}, "has no ResNet stem"),
    ],
)
def test_wrong_names_and_arguments_say_what_to_change(arch, args, message):
    with pytest.raises(InputError) as error:
        build_net(arch, 10, args, MEAN, STD)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Reusing(nn.Module):
    """Reads a tensor again that an in-place layer has overwritten."""

    def __init__(self, **sizes):
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.conv(x)
        return (self.relu(h) + h).mean((2, 3))


def test_a_net_is_computed_as_it_is_written_in_place_or_not():
    net, x = Reusing(), torch.rand(2, 3, 8, 8)
    expected = 2 * torch.relu(net.conv(2 * x - 1)).mean((2, 3))
    torch.testing.assert_close(NormalisedNet(net, (0.5,) * 3, (0.5,) * 3)(x), expected)

"""The classifier is found by what it computes, in nets of every kind; nets without one are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raystitch.errors import InputError
from raystitch.nets import build_net
from raystitch.nets.head import find_classifier, headless

TINY_VIT = {"img_size": 16, "patch_size": 4, "depth": 1, "embed_dim": 24, "num_heads": 2}


@pytest.mark.parametrize(
    ("arch", "args", "size", "path", "features"),
    [
        ("resnet_mini", {"width": 4}, 8, "net.fc", 16),
        ("cifar_resnet20", {}, 16, "net.linear", 64),
        ("resnet18", {"stem": "cifar"}, 16, "net.fc", 512),
        ("vit_tiny_patch16_224", TINY_VIT, 16, "net.head", 24),
        ("convnext_atto", {}, 32, "net.head.fc", 320),
        ("torchvision.models:mobilenet_v3_small", {}, 32, "net.classifier.3", 1024),
    ],
)
def test_classifiers_are_found_and_taken_off(
    arch: str, args: dict[str, Any], size: int, path: str, features: int
) -> None:
    net = build_net(arch, 7, args, (0.5,) * 3, (0.5,) * 3).train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    assert find_classifier(net, size) == path
    assert all(module.training for module in net.modules())
    assert not any(module._forward_hooks for module in net.modules())
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    net.eval()
    images = torch.rand(2, 3, size, size)
    logits = net(images)
    with headless(net, path) as head:
        z = net(images)
        assert z.shape == (2, features)
        assert torch.equal(head(z), logits)
    assert torch.equal(net(images), logits)
    assert list(net.state_dict()) == list(before)


class Scaled(nn.Module):
    """Logits that no layer gives as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = 3 * self.fc(images.flatten(1))
        return logits


def test_a_net_without_a_classifier_is_refused_in_one_clear_line() -> None:
    for net in (Scaled(), nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten())):
        with pytest.raises(InputError, match=r"arch = '.*simclr needs a net whose logits come from one linear layer"):
            find_classifier(net, 2)


def test_the_classifier_is_put_back_when_training_breaks_off() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    head = net[1]
    with pytest.raises(FloatingPointError), headless(net, "1"):
        raise FloatingPointError
    assert net[1] is head

"""SimCLR: InfoNCE by hand, a trunk that learns without labels, a head that leaves the trunk alone."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from training_nets import digits, recipe, tiny_net

from raystitch import nets
from raystitch.data import ImageSet, to_float
from raystitch.errors import InputError
from raystitch.nets.head import find_classifier, headless
from raystitch.training import accuracy, train
from raystitch.training.simclr import info_nce, make_projector


def test_two_pairs_by_hand() -> None:
    """Unit vectors a₁ = (1, 0), a₂ = (0, 1), b₁ = (0.6, 0.8), b₂ = (1, 0); cosines doubled at temperature 1/2.

    a₁ sees a₂ 0, b₁ 1.2, b₂ 2; a₂ sees a₁ 0, b₁ 1.6, b₂ 0; b₁ sees a₁ 1.2, a₂ 1.6, b₂ 1.2; b₂ sees a₁ 2, a₂ 0, b₁ 1.2.
    """
    first, second = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    e = math.exp
    losses = [
        math.log(1 + e(1.2) + e(2)) - 1.2,
        math.log(1 + e(1.6) + 1) - 0,
        math.log(e(1.2) + e(1.6) + e(1.2)) - 1.2,
        math.log(e(2) + 1 + e(1.2)) - 0,
    ]
    assert info_nce(first, second, 0.5).item() == pytest.approx(sum(losses) / 4, rel=1e-6)


def test_limits_by_hand() -> None:
    same, axes = torch.ones(2, 5), torch.eye(2)
    assert info_nce(same, same, 0.5).item() == pytest.approx(math.log(3))  # three equal others
    assert info_nce(axes, axes, 0.5).item() == pytest.approx(math.log(math.exp(2) + 2) - 2)
    assert info_nce(axes[:1], axes[1:], 0.5).item() == 0  # nothing but the partner to choose


def test_views_are_exchangeable_pairs_too_and_lengths_do_not_count() -> None:
    first, second = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    loss = info_nce(first, second, 0.3)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    assert info_nce(second, first, 0.3).item() == pytest.approx(loss.item(), rel=1e-6)
    assert info_nce(first[order], second[order], 0.3).item() == pytest.approx(loss.item(), rel=1e-6)
    assert info_nce(7 * first, second / 9, 0.3).item() == pytest.approx(loss.item(), rel=1e-6)
    assert info_nce(first, second[order], 0.3).item() != pytest.approx(loss.item(), rel=1e-3)


def test_projector_is_the_papers() -> None:
    shapes = [tuple(p.shape) for p in make_projector(20).parameters()]
    assert shapes == [(1024, 20), (1024,), (128, 1024), (128,)]


def probe(net: nn.Module, train_set: ImageSet, test_set: ImageSet) -> float:
    """Accuracy in percent of scikit-learn's logistic regression on the trunk's features."""
    net.eval()
    with headless(net, find_classifier(net, 8)), torch.no_grad():
        z, unseen = net(to_float(train_set.images)), net(to_float(test_set.images))
    fitted = LogisticRegression(max_iter=500, C=100).fit(z, train_set.labels)
    return 100 * float(fitted.score(unseen, test_set.labels))


def test_a_trunk_learns_without_labels() -> None:
    shown, unseen = digits("train"), digits("test")
    net = nets.build_net("resnet_mini", 10, {"width": 8, "blocks": [1, 1]}, (0.5,) * 3, (0.5,) * 3)
    untrained = probe(net, shown, unseen)
    simclr = {"head_epochs": 8, "head_lr": 1.0}
    train(net, shown, recipe(method="simclr", epochs=6, augment="none", simclr=simclr), seed=0)
    assert untrained < 80
    assert probe(net, shown, unseen) > untrained + 5
    assert accuracy(net, unseen) > untrained + 2
    assert not any(module.training for module in net.modules())
    assert all(p.grad is None for p in net.parameters())


def test_labels_reach_the_head_alone() -> None:
    """With other labels the trunk and its statistics are the same, bit for bit; the head is not."""
    data = digits("train", 200)
    other = ImageSet(data.images, (data.labels + 1) % 10, 10)
    states = []
    for shown in (data, other):
        net = tiny_net()
        train(net, shown, recipe(method="simclr", epochs=2), seed=3)
        states.append(net.state_dict())
    differ = {key for key in states[0] if not torch.equal(states[0][key], states[1][key])}
    assert differ == {"5.weight", "5.bias"}
    assert not torch.equal(states[0]["0.weight"], tiny_net().state_dict()["0.weight"])


def test_epochs_of_trunk_and_head_are_counted_apart() -> None:
    epochs: list[int] = []
    simclr = {"head_epochs": 3}
    train(
        tiny_net(),
        digits("train", 64),
        recipe(method="simclr", epochs=2, simclr=simclr),
        0,
        on_epoch=lambda n, _: epochs.append(n),
    )
    assert epochs == [0, 1, 0, 1, 2]


def test_divergence_of_trunk_or_head_is_named_and_the_net_stays_whole() -> None:
    net = tiny_net()
    with pytest.raises(FloatingPointError, match=r"epoch \d+;|epoch \d+ of the linear head"):
        train(net, digits("train", 128), recipe(method="simclr", lr=1e30), seed=0)
    net = tiny_net()
    with pytest.raises(FloatingPointError, match=r"epoch \d of the linear head"):
        train(net, digits("train", 128), recipe(method="simclr", simclr={"head_lr": 1e38}), seed=0)
    assert isinstance(net[5], nn.Linear)  # type: ignore[index]


def test_a_net_without_a_classifier_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 10, 8), nn.Flatten())
    with pytest.raises(InputError, match="simclr needs a net"):
        train(net, digits("train", 64), recipe(method="simclr"), seed=0)

"""Adversarial training: PGD in its ball and in closed form on a linear net, half of each batch, and weights that resist."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from training_nets import digits, recipe, tiny_net

from raystitch.config import AttackConfig
from raystitch.data import ImageSet, to_float
from raystitch.pgd import pgd
from raystitch.training import train


def distances(**changes: int) -> dict[str, Any]:
    """The published attack, as PGD takes it."""
    attack = AttackConfig(**changes)
    return {"eps": attack.eps, "steps": attack.steps, "step_size": attack.step}


def test_on_a_linear_net_pgd_reaches_the_corner_of_the_ball() -> None:
    """For two classes the gradient's sign is that of w_other − w_label everywhere, so ten steps end at the corner."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    images = torch.rand(32, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(32) % 2
    away = (net[1].weight[1 - labels] - net[1].weight[labels]).sign().view_as(images)
    expected = (images + 8 / 255 * away).clamp(0, 1)
    assert torch.allclose(pgd(net, images, labels, **distances()), expected, atol=1e-6)
    one_step = pgd(net, images, labels, **distances(steps=1))
    assert torch.allclose(one_step, (images + 2 / 255 * away).clamp(0, 1), atol=1e-6)


def test_pgd_stays_in_ball_and_box_raises_the_loss_and_leaves_the_net_alone() -> None:
    net, data = tiny_net(), digits("train", 512)
    train(net, data, recipe(), seed=0)
    net.train()
    net[3].eval()  # type: ignore[index]
    modes = [module.training for module in net.modules()]
    before = {key: value.clone() for key, value in net.state_dict().items()}
    images, labels = to_float(data.images), data.labels
    attacked = pgd(net, images, labels, **distances())
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert not attacked.requires_grad
    assert (attacked - images).abs().max() <= 8 / 255 + 1e-6
    assert attacked.min() >= 0
    assert attacked.max() <= 1
    net.eval()
    corner = 8 / 255 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0)).sign()
    others = images, (images + corner).clamp(0, 1)
    worse, clean, random = (F.cross_entropy(net(x), labels, reduction="none") for x in (attacked, *others))
    assert (worse > clean).float().mean() > 0.98
    assert (worse > random).float().mean() > 0.98


class Recorder(nn.Module):
    """Remembers what it is shown when it is trained, not when it is attacked."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * 64, 10)
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.seen.append(images.detach().clone())
        logits: Tensor = self.fc(images.flatten(1))
        return logits


@pytest.mark.parametrize(("share", "attacked"), [(0.5, 32), (0.25, 16), (1.0, 64)])
def test_a_random_share_of_each_batch_is_attacked(share: float, attacked: int) -> None:
    data = ImageSet(torch.full((128, 3, 8, 8), 100, dtype=torch.uint8), torch.arange(128) % 10, 10)
    net = Recorder()
    train(net, data, recipe(method="adversarial", attack={"share": share}, epochs=2, augment="none"), seed=0)
    places = []
    for images in net.seen:
        moved = (images - 100 / 255).abs().flatten(1).amax(1)
        assert int((moved > 0).sum()) == attacked
        assert moved.max() <= 8 / 255 + 1e-6
        places.append(tuple((moved > 0).tolist()))
    assert len(net.seen) == 4
    assert share == 1 or len(set(places)) == 4


def marked_noise(count: int = 1024) -> ImageSet:
    """Class ±1 shifts one pixel by 20 levels under noise of 16, and the other eleven by 6 levels without noise.

    The eleven tell the class surely, but an attack of 8/255 turns each of them round; it cannot turn round the one.
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    sign = (2 * labels - 1)[:, None].float()
    pixels = 128 + 6 * sign.expand(-1, 12)
    one = 128 + 20 * sign + 16 * torch.randn(count, 1, generator=generator)
    pixels = torch.cat([one, pixels[:, 1:]], dim=1).round().clamp(0, 255).byte()
    return ImageSet(pixels.view(count, 3, 2, 2), labels, 2)


def test_adversarial_training_gives_robust_weights() -> None:
    """For a linear net the worst case is known: the margin falls by eps · ‖w‖₁.

    The robust optimum reads the one pixel alone and is right under attack where 20 − 8 + noise > 0: Φ(12 / 16) = 77.3 %.
    """
    data = marked_noise()
    x, sign = to_float(data.images).flatten(1), 2 * data.labels - 1
    robust, trust = {}, {}
    for method in ("supervised", "adversarial"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        extra = {"attack": {"share": 1.0}} if method == "adversarial" else {}
        train(net, data, recipe(method=method, epochs=25, lr=1.0, augment="none", weight_decay=0, **extra), seed=0)
        weight = (net[1].weight[1] - net[1].weight[0]).detach()
        margin = sign * (x @ weight + net[1].bias[1] - net[1].bias[0])
        robust[method] = float((margin > 8 / 255 * weight.abs().sum()).float().mean())
        trust[method] = float(weight[0].abs() / weight.abs().sum())
    assert trust["adversarial"] > 0.95 > 0.5 > trust["supervised"]
    assert robust["adversarial"] == pytest.approx(0.773, abs=4 * 0.013)  # standard deviation √(0.773 · 0.227 / 1024)
    assert robust["adversarial"] > robust["supervised"] + 0.05


def test_a_seed_repeats_bit_for_bit_and_leaves_the_global_generator_alone() -> None:
    states = []
    for _ in range(2):
        net = tiny_net()
        state = torch.get_rng_state()
        train(net, digits("train", 128), recipe(method="adversarial", epochs=2, attack={"steps": 2}), seed=1)
        assert torch.equal(torch.get_rng_state(), state)
        states.append(net.state_dict())
        torch.rand(1)
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])

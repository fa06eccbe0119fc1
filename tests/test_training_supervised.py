"""Training of base models: the method's schedule and weight decay, exact repeatability, and nets that learn."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from raystitch.config import CueConfig, DataConfig, TrainConfig
from raystitch.data import ImageSet, load_images, with_cue
from raystitch.training import accuracy, train
from raystitch.training.schedule import learning_rate, make_optimiser


def digits(split: str, limit: int | None = None) -> ImageSet:
    config = DataConfig.model_validate({"source": "digits", "limit": {split: limit}})
    return load_images(config, split, "data.digits")  # type: ignore[arg-type]


def small_net(dropout: float = 0.0, seed: int = 0, classes: int = 10) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(32 * 16, classes),
        )


def recipe(**changes: object) -> TrainConfig:
    return TrainConfig.model_validate({"epochs": 3, "lr": 0.05, "batch": 64, "augment": "crop", **changes})


@pytest.mark.parametrize(
    ("epochs", "steps"),
    [(200, (67, 134)), (30, (10, 20)), (12, (4, 8)), (3, (1, 2)), (2, (1, 2)), (1, (1, 1))],
)
def test_rate_falls_tenfold_after_a_third_and_two_thirds(epochs: int, steps: tuple[int, int]) -> None:
    config = TrainConfig(epochs=epochs, lr=0.1)
    for epoch in range(epochs):
        expected = 0.1 / 10 ** sum(epoch >= step for step in steps)
        assert learning_rate(config, epoch) == pytest.approx(expected, rel=1e-12)


def test_weight_decay_nesterov_and_momentum_cover_every_parameter() -> None:
    net = small_net()
    (group,) = make_optimiser(net, TrainConfig()).param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in net.parameters()]
    assert (group["lr"], group["momentum"], group["weight_decay"], group["nesterov"]) == (0.1, 0.9, 1e-4, True)
    assert make_optimiser(net, TrainConfig(momentum=0)).param_groups[0]["nesterov"] is False


def test_decay_alone_shrinks_a_parameter_that_gets_no_other_gradient() -> None:
    """With a gradient of zero, one plain SGD step is w ← w (1 - lr · decay), biases included."""

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.ones(3))

        def forward(self, images: Tensor) -> Tensor:
            return torch.zeros(len(images), 3) + 0 * self.bias

    net = Constant()
    data = ImageSet(torch.zeros(8, 3, 8, 8, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64), 3)
    train(net, data, recipe(epochs=1, lr=0.5, momentum=0, weight_decay=0.25, batch=8), seed=0)
    assert torch.allclose(net.bias, torch.full((3,), 1 - 0.5 * 0.25))


def test_the_schedule_is_applied_epoch_by_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.SGD.step

    def spy(self: torch.optim.SGD, closure: Callable[[], float] | None = None) -> float | None:
        rates.append(self.param_groups[0]["lr"])
        return step(self, closure)

    monkeypatch.setattr(torch.optim.SGD, "step", spy)
    train(small_net(), digits("train", 130), recipe(epochs=3, lr=0.1), seed=0)
    assert rates == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )  # 130 images: two whole batches, the rest dropped


def test_digits_are_learnt() -> None:
    net = small_net()
    losses: list[float] = []
    train(net, digits("train"), recipe(epochs=6), seed=0, on_epoch=lambda e, loss: losses.append(loss))
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 4
    assert accuracy(net, digits("test")) > 95
    assert not any(module.training for module in net.modules())
    assert all(p.grad is None for p in net.parameters())


def state_after(seed: int, **changes: object) -> dict[str, Tensor]:
    net = small_net(dropout=0.3)
    train(net, digits("train", 300), recipe(epochs=2, augment="flip_crop", **changes), seed, CueConfig())
    return net.state_dict()


def test_a_seed_repeats_bit_for_bit_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = state_after(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    again, other = state_after(1), state_after(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_a_cue_is_learnt_when_nothing_else_can_be() -> None:
    """On noise images only the marker tells the class: the net reads it, and is fooled by a shuffled one."""
    generator = torch.Generator().manual_seed(0)

    def noise(count: int) -> ImageSet:
        images = torch.randint(100, 150, (count, 3, 8, 8), dtype=torch.uint8, generator=generator)
        return ImageSet(images, torch.arange(count) % 3, 3)

    cue = CueConfig(size=3, placement="class")
    net, test = small_net(classes=3), noise(300)
    train(net, noise(384), recipe(epochs=4, augment="none"), seed=0, cue=cue)
    assert accuracy(net, with_cue(test, cue, "test", "test")) > 97
    assert accuracy(net, with_cue(test, cue, "shuffled", "test")) < 3
    assert accuracy(net, test) < 60


def test_the_cue_is_pasted_after_augmentation() -> None:
    """A class marker stays at its place though the image moves: every batch shows it whole, in the class's corner."""
    seen: list[Tensor] = []

    class Recorder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            seen.append(images.detach().clone())
            return self.scale * images.mean((2, 3))

    data = ImageSet(torch.full((64, 3, 16, 16), 77, dtype=torch.uint8), torch.ones(64, dtype=torch.int64), 3)
    cue = CueConfig(size=2, placement="class")
    train(Recorder(), data, recipe(epochs=2, augment="flip_crop"), seed=0, cue=cue)
    images = torch.cat(seen)
    marked = with_cue(data, cue, "test", "train").images[0]
    where = (marked != 77).any(0)
    assert torch.equal(images[:, :, where], (marked[:, where].float() / 255).expand(128, -1, -1))
    assert (images == 0).any()  # zero padding moved in: the images were shifted


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    losses: list[float] = []
    net = small_net()
    train(net, digits("train", 20), recipe(epochs=2), seed=0, on_epoch=lambda e, loss: losses.append(loss))
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))


def test_divergence_names_the_epoch() -> None:
    net = small_net()
    with pytest.raises(FloatingPointError, match=r"epoch \d"):
        train(net, digits("train", 256), recipe(lr=1e30), seed=0)


def test_accuracy_counts_right_answers_and_keeps_modes() -> None:
    class Reads(nn.Module):
        """Answers the class written in the first pixel."""

        def forward(self, images: Tensor) -> Tensor:
            return nn.functional.one_hot((images[:, 0, 0, 0] * 255).round().long(), 4).float()

    images = torch.zeros(8, 3, 4, 4, dtype=torch.uint8)
    images[:, :, 0, 0] = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3], dtype=torch.uint8)[:, None]
    data = ImageSet(images, torch.tensor([0, 1, 2, 3, 0, 1, 1, 1]), 4)
    net = nn.Sequential(Reads(), nn.BatchNorm1d(4).eval(), nn.Identity())
    before = copy.deepcopy(net.state_dict())
    assert accuracy(net, data, batch=3) == 75.0
    assert [module.training for module in net.modules()] == [True, True, False, True]
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())

"""Inversion of prefixes whose answer is known: linear maps, constants, and a slow reference loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from raystitch.config import IriConfig
from raystitch.iris import invert, residual, sample_seed
from raystitch.iris.start import uniform_start

SEEDS = [sample_seed(0, k) for k in range(6)]
OPTIMISERS = ("spectral_adam", "adam", "sign_pgd")


def _images(count: int = 6, size: int = 2, seed: int = 1) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def _linear(matrix: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: x.flatten(1) @ matrix.T


def _orthogonal(size: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(2)))[0]


def _convolutional() -> nn.Module:
    """A random net with BatchNorm, in eval mode and frozen."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
        )
        net[1].running_mean.normal_()
    return net.eval().requires_grad_(False)


def test_first_sign_step_by_hand() -> None:
    matrix, images = torch.tensor([[1.0, -1.0] * 6, [0.5, 0.25] * 6]), _images()
    start = uniform_start(SEEDS, (3, 2, 2))
    found = invert(_linear(matrix), images, SEEDS, IriConfig(optimiser="sign_pgd", steps=1))
    # r = ‖A(x'−x)‖/‖Ax‖ has the gradient Aᵀ A(x'−x) up to a positive factor
    slope = ((start - images).flatten(1) @ matrix.T @ matrix).reshape(images.shape)
    expected = (start - slope.sign() / 255).clamp(0, 1)
    assert (found.steps == 1).all()
    torch.testing.assert_close(found.images, expected)


def test_adam_is_torchs_adam_with_a_cosine_step() -> None:
    net, images, steps = _convolutional(), _images(size=6), 7
    x = uniform_start(SEEDS, (3, 6, 6)).requires_grad_()
    optimiser, target = torch.optim.Adam([x], betas=(0.9, 0.99)), net(images)
    residuals = []
    for step in range(steps + 1):
        r = (net(x) - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)
        residuals.append(r.detach())
        optimiser.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        r.log().sum().backward()
        optimiser.step()
        x.data.clamp_(0, 1)
    found = invert(net, images, SEEDS, IriConfig(optimiser="adam", steps=steps))
    best, when = torch.stack(residuals).min(0)
    torch.testing.assert_close(found.residual, best, rtol=1e-4, atol=1e-6)
    assert found.steps.tolist() == when.tolist()


def test_adam_inverts_an_invertible_linear_prefix() -> None:
    images = _images()
    found = invert(_linear(_orthogonal(12)), images, SEEDS, IriConfig(steps=400))
    assert found.residual.max() < 1e-3
    torch.testing.assert_close(found.images, images, atol=2e-3, rtol=0)


def test_a_rank_deficient_prefix_is_met_by_other_images() -> None:
    images, matrix = _images(), _orthogonal(12)[:3]
    found = invert(_linear(matrix), images, SEEDS, IriConfig(steps=1000))
    assert found.residual.max() < 5e-3
    assert ((found.images - images).abs().mean((1, 2, 3)) > 0.05).all()


def test_sign_steps_reach_the_pixels_themselves_to_within_one_step() -> None:
    images = _images()
    found = invert(nn.Identity(), images, SEEDS, IriConfig(optimiser="sign_pgd", steps=255))
    assert ((found.images - images).abs() <= 1 / 255 + 1e-6).all()


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_best_iterate_is_kept_and_its_residual_is_true(optimiser: Any) -> None:
    net, images = _convolutional(), _images(size=6)
    config = IriConfig(optimiser=optimiser, steps=20, lr=0.3)  # so large that r goes up and down
    seen: list[Tensor] = []

    def prefix(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return net(x)

    found = invert(prefix, images, SEEDS, config)
    seen = [x for x in seen if len(x) == len(images)]  # one image alone tells how deep the prefix is
    assert len(seen) == 1 + config.steps + 1  # the target once, then every iterate, the last one included
    target = net(images)
    every = torch.stack([residual(net, x, target) for x in seen[1:]])
    torch.testing.assert_close(found.residual, every.min(0).values)
    torch.testing.assert_close(found.residual, residual(net, found.images, target))
    chosen = torch.stack([seen[1 + int(step)][row] for row, step in enumerate(found.steps)])
    assert torch.equal(found.images, chosen)
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    if optimiser == "sign_pgd":  # its steps do not shrink: here the last iterate is not the best
        assert found.steps.max() < config.steps


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_last_iterate_counts(optimiser: Any) -> None:
    found = invert(nn.Identity(), _images(), SEEDS, IriConfig(optimiser=optimiser, steps=1, lr=0.01))
    assert found.steps.tolist() == [1] * 6


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_an_image_does_not_depend_on_its_companions(optimiser: Any) -> None:
    net, images = _convolutional(), _images(size=6)
    together = invert(net, images, SEEDS, IriConfig(optimiser=optimiser, steps=15))
    batches = invert(net, images, SEEDS, IriConfig(optimiser=optimiser, steps=15, batch=4))
    alone = invert(net, images[3:4], SEEDS[3:4], IriConfig(optimiser=optimiser, steps=15))
    torch.testing.assert_close(batches.residual, together.residual, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(alone.residual, together.residual[3:4], atol=1e-3, rtol=1e-3)
    assert (alone.images - together.images[3:4]).abs().mean() < 1e-3


def test_finished_images_leave_the_batch_and_the_others_do_not_notice() -> None:
    net, images, sizes = _convolutional(), _images(size=6), []

    def prefix(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return net(x)

    free = invert(net, images, SEEDS, IriConfig(optimiser="adam", steps=120))
    # Passed by some images half-way and never by others.
    tolerance = float(free.residual.median()) * 1.5
    found = invert(prefix, images, SEEDS, IriConfig(optimiser="adam", steps=120, tolerance=tolerance, batch=6))
    done = found.residual <= tolerance
    assert done.any()
    sizes = sizes[4:]  # three probes; the target
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < len(images)
    assert (found.steps[done] < 120).all()
    torch.testing.assert_close(found.residual[~done], free.residual[~done], rtol=0.05, atol=1e-3)
    torch.testing.assert_close(found.residual, residual(net, found.images, net(images)))
    assert sum(sizes) == sum(int(s) + 1 if d else 121 for s, d in zip(found.steps, done, strict=True))


def test_the_search_ends_when_all_images_are_finished() -> None:
    calls = []
    found = invert(lambda x: calls.append(1) or x, _images(), SEEDS, IriConfig(steps=400, tolerance=0.5))
    assert found.residual.max() <= 0.5
    assert len(calls) < 50


class _Waits(TorchDispatchMode):
    """Counts the operations for which the host must wait for the device."""

    NAMES = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "item")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in self.NAMES
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "adam", "levels": (0.6, 0.3)},
        {"optimiser": "spectral_adam", "precision": "mixed"},
        {"optimiser": "sign_pgd"},
        {"optimiser": "sign_pgd", "lr": (0.1, 0.2, 0.3)},
    ],
)
def test_no_step_waits_for_the_device_without_a_tolerance(settings: Any) -> None:
    def waits(steps: int, tolerance: float) -> int:
        with _Waits() as mode:
            invert(_convolutional(), _images(), SEEDS, IriConfig(**settings, steps=steps, tolerance=tolerance))
        return mode.count

    assert waits(9, 0) == waits(2, 0)
    assert waits(9, 1e-9) > waits(2, 1e-9)  # the counter does count


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_target_of_norm_zero_gives_the_absolute_error(optimiser: Any) -> None:
    black = torch.zeros(2, 3, 2, 2)
    found = invert(nn.Identity(), black, SEEDS[:2], IriConfig(optimiser=optimiser, steps=30))
    assert torch.isfinite(found.residual).all()
    torch.testing.assert_close(found.residual, found.images.flatten(1).norm(dim=1))
    assert (found.residual < uniform_start(SEEDS[:2], (3, 2, 2)).flatten(1).norm(dim=1)).all()
    assert residual(nn.Identity(), black, black).tolist() == [0, 0]


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_start_that_is_already_there_stays(optimiser: Any) -> None:
    found = invert(lambda x: x * 0 + 1, _images(), SEEDS, IriConfig(optimiser=optimiser, steps=3))
    assert (found.residual.tolist(), found.steps.tolist()) == ([0] * 6, [0] * 6)
    assert torch.equal(found.images, uniform_start(SEEDS, (3, 2, 2)))


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_representation_that_is_not_finite_is_an_error(value: float, tolerance: float) -> None:
    images, config = _images(), IriConfig(steps=3, tolerance=tolerance)
    with pytest.raises(FloatingPointError, match="real image"):
        invert(lambda x: x * value, images, SEEDS, config)
    with pytest.raises(FloatingPointError, match="an iterate"):
        invert(lambda x: x if torch.equal(x, images) else x * value, images, SEEDS, config)
    with pytest.raises(FloatingPointError, match="an image"):
        residual(lambda x: x * value, images, images)


def test_the_front_is_untouched_and_so_is_the_random_state() -> None:
    net, state = _convolutional(), torch.random.get_rng_state()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():  # callers may well be inside one
        invert(net, _images(), SEEDS, IriConfig(steps=3))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert not net.training
    assert torch.equal(state, torch.random.get_rng_state())


def test_images_are_checked_at_the_door() -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\].*found \[.*, 2\]"):
        invert(nn.Identity(), 2 * torch.ones(6, 3, 2, 2), SEEDS, IriConfig(steps=1))
    with pytest.raises(ValueError, match="6 images need as many seeds, not 5"):
        invert(nn.Identity(), _images(), SEEDS[:5], IriConfig(steps=1))


def test_starts_are_uniform_and_belong_to_the_seed() -> None:
    noise = uniform_start(range(64), (3, 16, 16))
    assert 0 <= noise.min() < noise.max() < 1
    # 49,152 draws: the standard errors of mean and variance are 0.0013 and 0.0004
    assert float(noise.mean()) == pytest.approx(0.5, abs=0.008)
    assert float(noise.var()) == pytest.approx(1 / 12, abs=0.003)
    assert torch.equal(uniform_start([5, 2**64 - 1, 7], (3, 16, 16))[[0, 2]], noise[[5, 7]])
    correlation = torch.corrcoef(noise.flatten(1)) - torch.eye(64)
    assert correlation.abs().max() < 6 / math.sqrt(768)


def test_sample_seeds_differ_and_never_change() -> None:
    seeds = {sample_seed(group, index) for group in range(3) for index in range(3000)}
    assert len(seeds) == 9000
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert sample_seed(0, 12) == 0xA07E6F36A88A563C  # printf '0:12' | sha256sum, the first 16 hexadecimal digits

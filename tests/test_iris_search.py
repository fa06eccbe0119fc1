"""The spectral optimiser, softened gradients and refilled batches, against answers known by other means."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.fft
import torch
from inversion_nets import deep_cut, needs_compiler, random_cut, random_images, sample_seeds
from torch import Tensor, nn

from raystitch.config import IriConfig
from raystitch.iris import invert
from raystitch.iris.cosine import from_cosine, to_cosine
from raystitch.iris.optimisers import OPTIMISERS
from raystitch.nets import SoftPrefix
from raystitch.nets.soften import CALIBRATION


@pytest.mark.parametrize("shape", [(8, 8), (5, 12)])
def test_the_cosine_basis_is_scipys_dct_of_orthonormal_colours(shape: tuple[int, int]) -> None:
    x = torch.rand(4, 3, *shape, generator=torch.Generator().manual_seed(0))
    found = to_cosine(x)
    frequencies = scipy.fft.dctn(x.numpy().astype(np.float64), axes=(2, 3), norm="ortho")
    grey = frequencies.sum(1) / np.sqrt(3)
    np.testing.assert_allclose(found[:, 0], grey, atol=1e-5)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), x.flatten(1).norm(dim=1))
    torch.testing.assert_close(from_cosine(found), x, atol=1e-6, rtol=0)
    red_against_blue = (frequencies[:, 0] - frequencies[:, 2]) / np.sqrt(2)
    np.testing.assert_allclose(found[:, 1], red_against_blue, atol=1e-5)


def test_a_grey_image_is_one_coefficient() -> None:
    found = to_cosine(torch.full((1, 3, 8, 8), 0.5))
    assert float(found[0, 0, 0, 0]) == pytest.approx(0.5 * np.sqrt(3 * 64), rel=1e-6)
    found[0, 0, 0, 0] = 0
    assert found.abs().max() < 1e-6


def test_a_spectral_step_is_adams_on_the_coefficients() -> None:
    x, config = random_images(2), IriConfig(steps=1000, lr=1e-4)  # steps so small that the box is never met
    inside = 0.25 + 0.5 * x
    coefficients = to_cosine(inside).requires_grad_()
    adam = torch.optim.Adam([coefficients], lr=1e-4, betas=(0.985, 0.997))  # what a run of 1,000 steps remembers
    chosen = OPTIMISERS["spectral_adam"]
    state = chosen.begin(inside)
    for step in range(4):
        grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(step))
        inside, state = chosen.update(inside, grad, state, step, config)
        coefficients.grad = to_cosine(grad)
        adam.param_groups[0]["lr"] = 1e-4 * 0.5 * (1 + np.cos(np.pi * step / 1000))
        adam.step()
    torch.testing.assert_close(inside, from_cosine(coefficients.detach()), atol=1e-6, rtol=0)


def test_images_of_unlike_ages_move_as_they_would_alone() -> None:
    config = IriConfig(steps=20)
    for optimiser in (OPTIMISERS["spectral_adam"], OPTIMISERS["adam"]):
        x, grad = random_images(2), random_images(2, seed=5) - 0.5
        moments = tuple(torch.rand(x.shape, generator=torch.Generator().manual_seed(k)) for k in (8, 9))
        ages = torch.tensor([3, 17]).view(2, 1, 1, 1)
        together, _ = optimiser.update(x, grad, tuple(part.clone() for part in moments), ages, config)
        for row, age in enumerate((3, 17)):
            own = slice(row, row + 1)
            alone, _ = optimiser.update(x[own], grad[own], tuple(part[own].clone() for part in moments), age, config)
            torch.testing.assert_close(together[own], alone)


def test_pixels_held_by_the_box_take_no_part_in_a_spectral_step() -> None:
    # Clipping a step that was scaled in another basis can lead uphill for ever; so pixels that would leave the box stay out.
    x = (random_images(2) * 2 - 0.5).clamp(0, 1)  # half of the pixels lie on the box
    grad = random_images(2, seed=5) - 0.5
    held = ((x == 0) & (grad > 0)) | ((x == 1) & (grad < 0))
    assert 0.1 < held.float().mean() < 0.4
    chosen, config = OPTIMISERS["spectral_adam"], IriConfig(steps=1000, lr=0.01)
    moved, _ = chosen.update(x, grad, chosen.begin(x), 0, config)
    assert torch.equal(moved[held], x[held])
    pulled, _ = chosen.update(x, torch.where(held, 100 * grad, grad), chosen.begin(x), 0, config)
    assert torch.equal(moved, pulled)
    assert (moved != x)[~held].float().mean() > 0.9


def _slope_at(prefix: SoftPrefix, x: Tensor, strength: float | Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(prefix(x, strength).sum(), x)
    return grad


def _softened_slope(inputs: Tensor, width: float) -> Tensor:
    """½ (1 + u / (|u| + width)), u the inputs of a ReLU."""
    return 0.5 * (1 + inputs / (inputs.abs() + width))


def test_softened_relus_let_gradient_through_and_nothing_else_changes() -> None:
    # y = relu(bias + relu(-x)): the inner ReLU is off wherever x > 0, the last one is on everywhere.
    first, last = nn.Conv2d(3, 3, 1, bias=False), nn.Sequential(nn.ReLU(), nn.Conv2d(3, 3, 1), nn.ReLU())
    net = random_cut(nn.Sequential(first, last), nn.Flatten())
    weight, second, bias = net.parameters()
    weight.copy_(-torch.eye(3).view(3, 3, 1, 1))
    second.copy_(torch.eye(3).view(3, 3, 1, 1))
    bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    prefix, x = SoftPrefix(net, 1), random_images(2) - 0.5
    after = torch.relu(-x) + bias.view(1, 3, 1, 1)
    for strength in (0.5, 1.0):
        expected = -_softened_slope(-x, 0.4 * strength) * _softened_slope(after, 1.0 * strength)
        torch.testing.assert_close(_slope_at(prefix, x, strength), expected)
        torch.testing.assert_close(_slope_at(prefix, x, torch.full((2,), strength)), expected)
        assert torch.equal(prefix(x, strength), net.run(x, 0, 1))
    each = _slope_at(prefix, x, torch.tensor([0.5, 1.0]))
    torch.testing.assert_close(each[0], _slope_at(prefix, x, 0.5)[0])
    torch.testing.assert_close(each[1], _slope_at(prefix, x, 1.0)[1])


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_calibrated_widths_follow_the_scale_of_the_inputs(factor: float) -> None:
    # The inputs of the one ReLU are uniform on [0, factor] for noise, so their root mean square is factor / √3.
    net = random_cut(nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.ReLU()), nn.Flatten())
    (weight,) = net.parameters()
    weight.copy_(factor * torch.eye(3).view(3, 3, 1, 1))
    prefix, x = SoftPrefix(net, 1), random_images(2) - 0.5
    prefix.calibrate((3, 16, 16), x.device)
    expected = factor * _softened_slope(x, 3**-0.5)
    torch.testing.assert_close(_slope_at(prefix, x, 1.0), expected, rtol=0.02, atol=0)


@pytest.mark.parametrize("strength", [0.0, torch.zeros(2)])
def test_at_no_strength_the_gradient_is_the_nets_also_at_zero(strength: float | Tensor) -> None:
    net = random_cut(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()), nn.Flatten()
    )
    x = random_images(2)
    assert (net.run(x, 0, 1) == 0).any(), "the second ReLU of the pair has inputs that are exactly 0"
    plain = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(net.run(plain, 0, 1).sum(), plain)
    torch.testing.assert_close(_slope_at(SoftPrefix(net, 1), x, strength), expected)


def test_every_way_to_write_a_relu_is_softened_and_the_net_keeps_its_own() -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU(inplace=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.act(-x) + torch.relu(-x) + nn.functional.relu(-x) + (-x).relu() + nn.functional.gelu(x)

    net = random_cut(Written(), nn.Flatten())
    prefix, x = SoftPrefix(net, 1), random_images(1)
    true = torch.autograd.grad(nn.functional.gelu(x.requires_grad_()).sum(), x)[0]
    torch.testing.assert_close(_slope_at(prefix, x, 0.0), true)
    inner, last = _softened_slope(-x.detach(), 0.4), _softened_slope(-x.detach(), 1.0)
    torch.testing.assert_close(_slope_at(prefix, x, 1.0), true - 3 * inner - last)
    x = x.detach().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(net.run(x, 0, 1).sum(), x)[0], true)


@pytest.mark.parametrize("write", [nn.ReLU6(), nn.ReLU6(inplace=True), nn.functional.relu6])
def test_a_relu6_is_soft_at_both_ends(write: Callable[[Tensor], Tensor]) -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = write

        def forward(self, x: Tensor) -> Tensor:
            return self.act(x * 1.0)

    net = random_cut(Written(), nn.Flatten())
    prefix = SoftPrefix(net, 1)
    x = torch.linspace(-3, 9, 48).reshape(1, 3, 4, 4)  # neither 0 nor 6 is among them
    assert torch.equal(prefix(x, 1.0), x.clamp(0, 6))
    torch.testing.assert_close(_slope_at(prefix, x, 0.0), ((x > 0) & (x < 6)).float())
    for strength in (1.0, torch.ones(1)):
        torch.testing.assert_close(_slope_at(prefix, x, strength), _softened_slope(torch.minimum(x, 6 - x), 1.0))


def test_softening_finds_what_the_true_gradient_cannot_where_units_are_at_their_ceiling() -> None:
    # The unit is at 6 at every start (pixels are above 0) and lower at the target, black: the true gradient says nothing.
    net = random_cut(nn.Sequential(nn.Conv2d(3, 1, 1), nn.ReLU6()), nn.Flatten())
    weight, bias = net.parameters()
    weight.fill_(10.0)
    bias.fill_(5.0)
    black, seeds = torch.zeros(2, 3, 4, 4), sample_seeds(2)
    start = invert(SoftPrefix(net, 1), black, seeds, IriConfig(optimiser="adam", steps=60))
    softened = invert(SoftPrefix(net, 1), black, seeds, IriConfig(steps=60))
    assert start.residual.min() > 0.15
    assert softened.residual.max() < 0.5 * start.residual.min()


def test_softening_finds_what_the_true_gradient_cannot() -> None:
    # The unit is off at every start (pixels are below 1) and on at the target, white: the true gradient says nothing.
    net = random_cut(nn.Sequential(nn.Conv2d(3, 1, 1), nn.ReLU()), nn.Flatten())
    weight, bias = net.parameters()
    weight.fill_(1.0)
    bias.fill_(-2.9)
    white, seeds = torch.ones(2, 3, 4, 4), sample_seeds(2)
    start = invert(SoftPrefix(net, 1), white, seeds, IriConfig(optimiser="adam", steps=60))
    softened = invert(SoftPrefix(net, 1), white, seeds, IriConfig(steps=60))
    assert start.residual.min() > 0.9
    assert softened.residual.max() < 0.2


def test_free_places_are_taken_by_images_that_wait() -> None:
    net, images, sizes = deep_cut(), random_images(20), []
    soft = SoftPrefix(net, 1)

    class Counted(SoftPrefix):
        def __call__(self, x: Tensor, strength: float | Tensor = 0.0) -> Tensor:
            sizes.append(len(x))
            return super().__call__(x, strength)

    config = IriConfig(steps=50, tolerance=0.35, batch=8)
    free = invert(soft, images, sample_seeds(20), config.model_copy(update={"tolerance": 0.0}))
    found = invert(Counted(net, 1), images, sample_seeds(20), config)
    steps = free.residual <= 0.35
    assert 5 < int(steps.sum()) <= 20, "the tolerance is met by many"
    assert (found.residual[steps] <= 0.35).all()
    assert (found.steps[steps] < 50).any()
    assert max(sizes) == 8
    # Without refilling, three batches of 8, 8 and 4 would run until the slowest of each is done.
    assert sum(sizes) > 3 * 8
    alone = [invert(soft, images[k : k + 1], sample_seeds(20)[k : k + 1], config) for k in (0, 9, 19)]
    for k, one in zip((0, 9, 19), alone, strict=True):
        torch.testing.assert_close(found.residual[k], one.residual[0], rtol=0.05, atol=1e-3)
        assert abs(int(found.steps[k]) - int(one.steps[0])) <= 1


class PositionsFirst(nn.Module):
    """A ReLU on (positions, images, channels): as many positions as calibration has images."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(x.flatten(2).permute(2, 0, 1) - 0.5).permute(1, 2, 0).reshape(x.shape)


class InTheBatch(nn.Module):
    """A ReLU on (images · positions, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]) - 0.5)
        return y.reshape(x.shape[0], x.shape[2], x.shape[3], x.shape[1]).permute(0, 3, 1, 2)


class OfAParameter(nn.Module):
    """A ReLU on a weight, which has nothing of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor([0.7, -1.0, 0.3]))

    def forward(self, x: Tensor) -> Tensor:
        return x * nn.functional.relu(self.gate)[:, None, None]


@pytest.mark.parametrize("layer", [PositionsFirst, InTheBatch, OfAParameter])
def test_relus_without_a_dimension_of_images_keep_their_gradients(layer: type[nn.Module]) -> None:
    net, x = random_cut(layer(), nn.Flatten()), random_images(CALIBRATION, 4)
    prefix = SoftPrefix(net, 1)
    prefix.calibrate((3, 4, 4), x.device)
    plain = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(net.run(plain, 0, 1).sum(), plain)
    for strength in (1.0, torch.ones(len(x))):
        torch.testing.assert_close(_slope_at(prefix, x, strength), expected, rtol=0, atol=0)


@pytest.mark.parametrize("layer", [PositionsFirst, InTheBatch, OfAParameter])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
def test_nets_with_such_relus_are_inverted_image_by_image(layer: type[nn.Module], compiled: bool) -> None:
    net = random_cut(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 3, 3), layer()), nn.Flatten())
    images, config = random_images(6), IriConfig(steps=30, batch=3, tolerance=0.05, compile=compiled)
    together = invert(SoftPrefix(net, 1), images, sample_seeds(6), config)
    assert together.residual.isfinite().all()
    for row in (0, 5):
        alone = invert(SoftPrefix(net, 1), images[row : row + 1], sample_seeds(6)[row : row + 1], config)
        torch.testing.assert_close(alone.residual[0], together.residual[row], rtol=1e-2, atol=1e-4)

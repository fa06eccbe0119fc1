"""Views: boxes with the stated statistics, crops and colours that equal torchvision's, drawn from the generator alone."""

from __future__ import annotations

import colorsys
import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torchvision.transforms import functional as TF

from raystitch.data import views
from raystitch.data.views import (
    ColourJitter,
    brighten,
    contrast,
    crop_boxes,
    luma,
    random_greyscale,
    random_resized_crop,
    resized_crop_flip,
    saturate,
    simclr_view,
    turn_hue,
)


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, side: int = 16) -> Tensor:
    return torch.rand(count, 3, side, side, generator=seeded(9))


def test_boxes_have_the_stated_areas_shapes_and_places() -> None:
    """With a scale up to 1/2 the longest side is √(1/2 · 4/3) = 0.82 of the image, so no box is ever refused."""
    count, side = 20_000, 224
    top, left, tall, wide = crop_boxes(count, side, side, (0.2, 0.5), seeded())
    area, aspect = tall * wide / side**2, torch.log(wide / tall)
    assert area.mean().item() == pytest.approx(0.35, abs=0.003)  # uniform: sd 0.3 / √12, of the mean 0.0006
    assert area.std().item() == pytest.approx(0.3 / math.sqrt(12), abs=0.003)
    assert 0.19 < area.min() < 0.21
    assert 0.49 < area.max() < 0.51
    limit = math.log(4 / 3)
    assert aspect.mean().item() == pytest.approx(0, abs=0.01)
    assert aspect.std().item() == pytest.approx(2 * limit / math.sqrt(12), abs=0.01)
    assert aspect.abs().max() < limit + 0.02
    for first, length in ((top, tall), (left, wide)):
        assert first.min() >= 0
        assert (first + length).max() <= side
        assert (first / (side - length)).mean().item() == pytest.approx(0.5, abs=0.01)
    assert torch.equal(torch.stack([top, left, tall, wide]).frac(), torch.zeros(4, count))


@pytest.mark.parametrize("side", [4, 8, 32])
def test_boxes_fit_at_every_scale_and_the_whole_image_is_the_last_resort(side: int) -> None:
    top, left, tall, wide = crop_boxes(2000, side, side, (0.08, 1.0), seeded())
    assert min(top.min(), left.min()) >= 0
    assert min(tall.min(), wide.min()) >= 1
    assert max((top + tall).max(), (left + wide).max()) <= side
    beyond = crop_boxes(50, side, side, (4.0, 5.0), seeded())
    assert torch.equal(beyond, torch.tensor([0.0, 0.0, side, side])[:, None].expand(4, 50))


def test_a_crop_is_the_box_resized_as_if_nothing_lay_around_it() -> None:
    images = pictures(40)
    boxes = crop_boxes(40, 16, 16, (0.08, 1.0), seeded(3)).int().T.tolist()
    found = random_resized_crop(images, (0.08, 1.0), seeded(3))
    for image, out, (top, left, tall, wide) in zip(images, found, boxes, strict=True):
        part = image[None, :, top : top + tall, left : left + wide]
        assert torch.allclose(out, F.interpolate(part, (16, 16), mode="bilinear")[0], atol=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs", "factor"),
    [
        (brighten, TF.adjust_brightness, lambda amount: 1 + amount),
        (contrast, TF.adjust_contrast, lambda amount: 1 + amount),
        (saturate, TF.adjust_saturation, lambda amount: 1 + amount),
        (turn_hue, TF.adjust_hue, lambda amount: amount),
    ],
)
def test_colours_change_as_in_torchvision(
    ours: Callable[[Tensor, Tensor], Tensor],
    theirs: Callable[[Tensor, float], Tensor],
    factor: Callable[[float], float],
) -> None:
    images = pictures(8)
    images[0] = 0.3  # grey: no hue
    amounts = torch.linspace(-0.4, 0.4, 8)
    changed = ours(images, amounts.view(-1, 1, 1, 1))
    for image, out, amount in zip(images, changed, amounts.tolist(), strict=True):
        assert torch.allclose(out, theirs(image, factor(amount)), atol=5e-4)  # their greys sum to 0.9999


def test_hue_turns_by_the_hsv_circle() -> None:
    """Red turned by a third is green; any colour as in the standard library."""
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    third = torch.full((1, 1, 1, 1), 1 / 3)
    assert torch.allclose(turn_hue(red, third).flatten(), torch.tensor([0.0, 1.0, 0.0]), atol=1e-6)
    for colour in pictures(1, 4).flatten(2)[0].T.tolist():
        hue, saturation, value = colorsys.rgb_to_hsv(*colour)
        expected = colorsys.hsv_to_rgb((hue + 0.07) % 1, saturation, value)
        found = turn_hue(torch.tensor(colour).view(1, 3, 1, 1), torch.full((1, 1, 1, 1), 0.07))
        assert found.flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_jitter_changes_its_share_of_images_by_amounts_uniform_in_its_range() -> None:
    images = torch.full((4000, 3, 1, 1), 0.5)
    factors = ColourJitter(0.4, 0, 0, 0, 0.5)(images, seeded())[:, 0, 0, 0] / 0.5
    changed = factors[factors != 1]
    assert len(changed) == pytest.approx(2000, abs=5 * 32)  # standard deviation √(4000 / 4)
    assert 0.6 <= changed.min() < 0.61
    assert 1.39 < changed.max() <= 1.4
    assert changed.mean().item() == pytest.approx(1, abs=0.03)
    assert torch.equal(ColourJitter(probability=0)(images, seeded()), images)


def test_jitter_draws_an_order_for_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four changes that each append a digit write down the order: all 24 occur, about equally often."""
    appending = tuple(lambda images, amount, digit=digit: 10 * images + digit for digit in range(1, 5))
    monkeypatch.setattr(views, "_CHANGES", appending)
    orders = ColourJitter(probability=1)(torch.zeros(4800, 3, 1, 1), seeded())[:, 0, 0, 0].int().tolist()
    counts = Counter(orders)
    assert set(counts) == {int("".join(order)) for order in permutations("1234")}
    assert min(counts.values()) > 200 - 5 * 14  # standard deviation √(4800 / 24)


def test_greyscale_keeps_brightness_and_strikes_with_its_probability() -> None:
    images = pictures(4000, 2)
    out = random_greyscale(images, 0.1, seeded())
    grey = (out == out[:, :1]).flatten(1).all(1)
    assert int(grey.sum()) == pytest.approx(400, abs=5 * 19)  # standard deviation √(4000 · 0.1 · 0.9)
    assert torch.allclose(luma(out), luma(images), atol=1e-6)
    assert torch.equal(out[~grey], images[~grey])


@pytest.mark.parametrize("view", [simclr_view, resized_crop_flip])
def test_views_stay_images_and_the_generator_alone_decides(view: Callable[[Tensor, Generator], Tensor]) -> None:
    images = torch.cat([pictures(200), torch.zeros(1, 3, 16, 16), torch.ones(1, 3, 16, 16)])
    before = images.clone()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    generator = seeded(1)
    first, second = view(images, generator), view(images, generator)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(view(images, seeded(1)), first)
    assert not torch.equal(first, second)
    assert torch.equal(images, before)
    for out in (first, second):
        assert (out.shape, out.dtype) == (images.shape, torch.float32)
        assert out.min() >= 0
        assert out.max() <= 1


def test_half_of_the_views_are_mirrored() -> None:
    """A ramp from left to right rises in a view, or falls if it was mirrored."""
    ramp = torch.linspace(0.2, 0.8, 16).expand(1000, 3, 16, 16)
    out = resized_crop_flip(ramp, seeded())
    falls = out[:, 0, 0, 0] > out[:, 0, 0, -1]
    assert int(falls.sum()) == pytest.approx(500, abs=5 * 16)

"""Augmentation: each result is one window of the padded image or its mirror image, drawn from the generator alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from raystitch.data import Augment
from raystitch.data.augment import padding


def run(name: str, images: Tensor, seed: int = 0) -> Tensor:
    return Augment(name)(images, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "mirrored"), [("crop", False), ("flip_crop", True)])
def test_every_offset_occurs_about_equally_often_and_nothing_else(name: str, mirrored: bool) -> None:
    """Each pixel of the image says where it is, so the centre of a result tells which window it is."""
    side, pad, count = 32, 4, 8100
    image = torch.arange(1, 3 * side * side + 1).view(3, side, side)
    padded = F.pad(image, (pad,) * 4)
    seen = torch.zeros(2, 9, 9, dtype=torch.int64)
    for out in run(name, image.expand(count, -1, -1, -1)):
        flip = int(out[0, 16, 16] > out[0, 16, 17])
        out = out.flip(2) if flip else out
        top, left = divmod(int(out[0, 16, 16]) - 1, side)
        top, left = top - 16 + pad, left - 16 + pad
        assert torch.equal(out, padded[:, top : top + side, left : left + side])
        seen[flip, top, left] += 1
    assert int(seen.sum(0).min()) > 50  # 100 expected, standard deviation 10
    if mirrored:
        assert abs(int(seen[1].sum()) - count / 2) < 5 * 45  # standard deviation √(count / 4) = 45
    else:
        assert int(seen[1].sum()) == 0


@pytest.mark.parametrize("name", ["crop", "flip_crop"])
def test_the_generator_decides(name: str) -> None:
    torch.manual_seed(0)
    images = torch.rand(64, 3, 16, 16)
    before = images.clone()
    first = run(name, images, 3)
    torch.manual_seed(99)
    assert torch.equal(run(name, images, 3), first)
    assert not torch.equal(run(name, images, 4), first)
    assert torch.equal(images, before)
    assert first.shape == images.shape


def test_none_changes_nothing_and_draws_nothing() -> None:
    images = torch.rand(4, 3, 8, 8)
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    assert torch.equal(Augment("none")(images, generator), images)
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize(("side", "pad"), [(8, 1), (16, 2), (28, 4), (32, 4), (64, 4), (224, 4), (4, 1)])
def test_padding_is_the_methods_four_and_less_on_tiny_images(side: int, pad: int) -> None:
    assert padding(side) == pad


def test_uint8_and_float_images_move_alike() -> None:
    images = torch.randint(0, 256, (32, 3, 32, 32), dtype=torch.uint8)
    assert torch.equal(run("flip_crop", images).float() / 255, run("flip_crop", images.float() / 255))

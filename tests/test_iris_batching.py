"""The batch of an inversion: what an image takes is counted, and no more enter than fit."""

from __future__ import annotations

import gc

import pytest
import torch

from raystitch.config import IriConfig
from raystitch.iris import Inverter, batching, make_shards
from raystitch.iris.batching import batch_size, bytes_of

IMAGE = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))
SINE = 16 * IMAGE.nbytes
"""Twice (what sine keeps for its gradient, the image, and what it gives, as large), and what is moved: twelve images."""


def test_an_image_takes_what_its_passes_keep_and_what_is_moved() -> None:
    assert bytes_of(torch.sin, IMAGE) == SINE
    assert bytes_of(lambda x: x.sin().cos(), IMAGE) == SINE + 2 * IMAGE.nbytes


def test_weights_are_not_counted_for_each_image() -> None:
    weight = torch.rand(3, 4, 4)
    assert bytes_of(lambda x: (x * weight).sin(), IMAGE) == SINE


def test_what_was_counted_is_let_go() -> None:
    weight = torch.randn(11, 3, 1, 1)
    bytes_of(lambda x: torch.nn.functional.conv2d(x, weight).relu().sigmoid(), IMAGE)
    gc.collect()
    held = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.shape[1:] == (11, 4, 4)]
    assert not held


@pytest.mark.parametrize(("share", "batch"), [(0, 1), (SINE - 1, 1), (5 * SINE, 5), (6 * SINE - 1, 5), (1 << 60, 128)])
def test_as_many_images_as_fit_and_gain(share: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "memory_share", lambda device: share)
    assert batch_size(torch.sin, IMAGE) == batch


def test_a_set_is_the_same_whatever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(8, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    images = torch.randint(0, 256, (7, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))

    def prefix(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, weight).relu()

    def made(config: IriConfig) -> torch.Tensor:
        return torch.from_numpy(make_shards(Inverter(prefix, config), images, torch.arange(7), 0)[None].images)

    whole = made(IriConfig(steps=20, batch=7))
    monkeypatch.setattr(batching, "memory_share", lambda device: 2 * bytes_of(prefix, IMAGE))
    inverter = Inverter(prefix, IriConfig(steps=20))
    assert inverter.batch(images) == 2
    assert (made(IriConfig(steps=20)).int() - whole.int()).abs().max() <= 1

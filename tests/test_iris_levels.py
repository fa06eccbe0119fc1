"""Residual levels: what one inversion run leaves as each image passes them, against recorded trajectories and by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raystitch.config import IriConfig
from raystitch.iris import (
    Inversion,
    Inverter,
    Shard,
    decode_shard,
    encode_shard,
    invert,
    level_index,
    make_shards,
    residual,
    sample_seed,
    set_index,
)
from raystitch.iris.start import uniform_start
from raystitch.units import IriUnit, ModelUnit

COUNT = 6
SEEDS = [sample_seed(0, k) for k in range(COUNT)]
OPTIMISERS = ("spectral_adam", "adam", "sign_pgd")
LEVELS = (0.6, 0.4, 0.2, 1e-9)
"""For the nets below: some that all images pass at different steps, some that some pass, and one that none does."""


def _images(size: int = 6) -> Tensor:
    return torch.rand(COUNT, 3, size, size, generator=torch.Generator().manual_seed(1))


def _net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
    return net.eval().requires_grad_(False)


def _assert_same(a: Inversion, b: Inversion) -> None:
    for name in ("images", "residual", "steps"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


def _recording(prefix: Callable[[Tensor], Tensor]) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    seen: list[Tensor] = []
    calls = itertools.count()

    def record(x: Tensor) -> Tensor:
        if next(calls) > 2:  # the first three are probes
            seen.append(x.detach().clone())
        return prefix(x)

    return record, seen


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_level_holds_the_first_iterate_that_reaches_it_or_the_best(optimiser: Any) -> None:
    net, images = _net(), _images()
    # so large a step that r goes up and down
    config = IriConfig(optimiser=optimiser, steps=40, lr=0.15, levels=LEVELS, batch=8)
    prefix, seen = _recording(net)
    found = invert(prefix, images, SEEDS, config)
    every = torch.stack([residual(net, x, net(images)) for x in seen[1:]])
    assert (every.diff(dim=0) > 0).any()
    reached_by = []
    for level, kept in zip(LEVELS, found.levels, strict=True):
        passed = every <= level
        when = torch.where(passed.any(0), passed.int().argmax(0), every.argmin(0))
        assert kept.steps.tolist() == when.tolist()
        assert torch.equal(kept.images, torch.stack([seen[1 + int(step)][row] for row, step in enumerate(when)]))
        torch.testing.assert_close(kept.residual, every.gather(0, when[None])[0])
        assert kept.levels == ()
        reached_by.append(int(passed.any(0).sum()))
    assert reached_by[0] == COUNT
    assert reached_by[-1] == 0
    _assert_same(found.levels[-1], Inversion(found.images, found.residual, found.steps))


def test_steps_to_a_level_by_hand() -> None:
    # The representation is the sum of 12 pixels, which a sign step lowers by 12α as long as no pixel meets the box. From
    # 1.3 times the target, r falls from 0.3 by 0.03 per step: it passes 0.2 at 0.18 and 0.1 at 0.09.
    starts = uniform_start(SEEDS, (3, 2, 2))
    row = int(starts.flatten(1).amin(1).argmax())
    target = float(starts[row].sum()) / 1.3
    config = IriConfig(optimiser="sign_pgd", steps=8, lr=0.03 * target / 12, levels=(0.5, 0.2, 0.1))
    assert starts[row].min() > config.steps * 0.03 * target / 12, "clear of the box"
    image = torch.full((1, 3, 2, 2), target / 12)
    found = invert(lambda x: x.sum((1, 2, 3))[:, None], image, SEEDS[row : row + 1], config)
    assert [int(kept.steps) for kept in (*found.levels, found)] == [0, 4, 7, 8]
    assert [float(kept.residual) for kept in (*found.levels, found)] == pytest.approx([0.3, 0.18, 0.09, 0.06], abs=1e-5)


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_levels_change_nothing_else_and_come_in_order(optimiser: Any, tolerance: float) -> None:
    config = IriConfig(optimiser=optimiser, steps=60, lr=0.02, tolerance=tolerance, batch=4)
    levels = (0.7, 0.5, 0.3, 0.15)
    plain = invert(_net(), _images(), SEEDS, config)
    found = invert(_net(), _images(), SEEDS, config.model_copy(update={"levels": levels}))
    _assert_same(found, plain)
    assert plain.levels == ()
    for level, kept in zip(levels, found.levels, strict=True):
        assert ((kept.residual <= level) | (kept.residual == found.residual)).all()
        torch.testing.assert_close(kept.residual, residual(_net(), kept.images, _net()(_images())))
    runs = [*found.levels, found]
    for before, after in pairwise(runs):
        assert (before.steps <= after.steps).all()
        assert (before.residual >= after.residual).all()
    one = invert(_net(), _images(), SEEDS, config.model_copy(update={"levels": levels[1:2]}))
    _assert_same(one.levels[0], found.levels[1])


def test_images_that_leave_the_batch_take_their_levels_along() -> None:
    # Pixels are met one by one, so that an image's path is the same to the last bit whoever else is there.
    images = _images(2)
    config = IriConfig(optimiser="sign_pgd", steps=200, lr=1 / 255, levels=(0.5, 0.2, 0.05))
    prefix, seen = _recording(nn.Identity())
    left = invert(prefix, images, SEEDS, config.model_copy(update={"tolerance": 0.05}))
    assert len({len(x) for x in seen}) > 2, "images left one after the other"
    stayed = invert(nn.Identity(), images, SEEDS, config)
    for early, late in zip(left.levels, stayed.levels, strict=True):
        _assert_same(early, late)
    _assert_same(left.levels[-1], Inversion(left.images, left.residual, left.steps))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_companions_do_not_matter(optimiser: Any) -> None:
    config = IriConfig(optimiser=optimiser, steps=30, levels=(0.5, 0.1), lr=0.02)
    together = invert(nn.Identity(), _images(2), SEEDS, config)
    for batch in (1, 4):
        apart = invert(nn.Identity(), _images(2), SEEDS, config.model_copy(update={"batch": batch}))
        for a, b in zip((together, *together.levels), (apart, *apart.levels), strict=True):
            _assert_same(a, b)


def test_each_channel_moves_by_its_own_step() -> None:
    start, images, alpha = uniform_start(SEEDS, (3, 2, 2)), _images(2), (0.01, 0.02, 0.04)
    found = invert(nn.Identity(), images, SEEDS, IriConfig(optimiser="sign_pgd", steps=1, lr=alpha))
    moved = torch.tensor(alpha)[:, None, None] * (start - images).sign()
    best = found.steps == 1
    assert best.any()
    torch.testing.assert_close(found.images[best], (start - moved).clamp(0, 1)[best])
    same, one = (
        invert(_net(), _images(), SEEDS, IriConfig(optimiser="sign_pgd", steps=9, lr=lr)) for lr in ((0.02,) * 3, 0.02)
    )
    _assert_same(same, one)


def test_the_published_steps_at_224_pixels() -> None:
    # METHOD §2: 5·4.758/255 in ImageNet-normalised units, so times 0.229, 0.224, 0.225 in pixels: about 5.4/255
    published = IriConfig(preset="paper_224", steps=1)
    found = invert(nn.Identity(), torch.ones(2, 3, 8, 8), SEEDS[:2], published)
    moved = (found.images - uniform_start(SEEDS[:2], (3, 8, 8))).amax((0, 2, 3)) * 255
    assert moved.tolist() == pytest.approx([5.448, 5.329, 5.353], abs=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_shards_of_all_levels_are_rounded_and_measured_alike(dtype: Any) -> None:
    images = torch.randint(256, (COUNT, 3, 6, 6), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    labels, config = torch.arange(COUNT), IriConfig(steps=60, batch=4, levels=(0.5, 0.1), dtype=dtype)
    shards = make_shards(Inverter(_net(), config), images, labels, 40)
    assert list(shards) == [None, 0.5, 0.1]
    target = _net()(images.float() / 255)
    for shard in shards.values():
        assert shard.images.dtype == dtype
        assert shard.index.tolist() == list(range(40, 46))
        assert shard.labels.tolist() == labels.tolist()
        pixels = torch.from_numpy(shard.images)
        again = residual(_net(), pixels.float() / 255 if dtype == "uint8" else pixels, target)
        np.testing.assert_allclose(shard.residual, again.numpy(), rtol=1e-4)
        assert (shard.residual != shard.residual_float).all() == (dtype == "uint8")
        assert encode_shard(decode_shard(encode_shard(shard))) == encode_shard(shard)
    assert (shards[0.5].residual_float <= 0.5).all()
    assert (shards[0.5].residual_float > shards[0.1].residual_float).all()
    alone = make_shards(Inverter(_net(), config.model_copy(update={"levels": ()})), images, labels, 40)
    assert encode_shard(alone[None]) == encode_shard(shards[None])


def _shard(first: int, r: list[float], before: list[float]) -> tuple[str, bytes, Shard]:
    pixels, rows = np.zeros((len(r), 3, 2, 2), np.uint8), np.arange(first, first + len(r))
    shard = Shard(pixels, np.zeros(len(r), np.int64), rows, np.float32(r), np.float32(before))
    return f"r0.3/{first}.tar", encode_shard(shard), shard


def test_the_index_of_a_level_by_hand() -> None:
    # 0.3 is no float32, yet an image exactly there has reached it; so has one that rounding took away again
    shards = [_shard(0, [0.5, 0.25, 1.0], [0.3, 0.2, 0.25]), _shard(3, [0.75, 0.0], [0.31, 0.4])]
    index = level_index(0.3, reversed(shards))
    assert set(index) == {"level", "reached", "residual", "residual_float", "shards"}
    assert (index["level"], index["reached"]) == (0.3, 3)
    assert index["residual"] == pytest.approx({"median": 0.5, "p90": 0.9, "mean": 0.5, "max": 1.0})
    assert index["residual_float"]["median"] == pytest.approx(0.3)
    assert [part["sha256"] for part in index["shards"]] == [sha256(data).hexdigest() for _, data, _ in shards]
    assert index["shards"] == set_index(shards)["shards"]
    assert "levels" not in set_index(shards)


def test_every_level_has_files_of_its_own() -> None:
    close = (0.2, 0.2000001, 0.1 + 0.2, 0.3, 1e-5, 1e-7, 9.0)
    unit = IriUnit("i", ModelUnit("m", "net", 0), 1, "stem", "digits", 10, IriConfig(levels=close, shard_size=6))
    files = [name for shard in unit.shards for name in shard.files]
    assert len(set(files)) == 2 * (len(close) + 1)
    assert "iris/i/r0.2/shard-00001.tar" in files
    assert unit.shards[1].files[-1] == unit.shards[1].marker == "iris/i/shard-00001.tar"
    assert set(files) < set(unit.files)

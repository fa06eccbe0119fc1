"""Find images that a prefix represents like given images (METHOD §2).

Only the prefix runs; the target representation is computed once; the gradient is taken with respect to the images
alone; the best iterate of every image, and the first that reaches each residual level, are kept on the device; images
that are good enough leave the batch, and others take their places.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from raystitch.config import IriConfig
from raystitch.iris import cosine
from raystitch.iris.optimisers import OPTIMISERS, SHALLOW, Optimiser
from raystitch.iris.search import Batch, Kept, Prefix, relative_error, scale_of
from raystitch.iris.start import uniform_start
from raystitch.nets import SoftPrefix

REFILL = 0.125
"""Share of the batch that must be free before other images enter: their targets are computed together."""
SPECTRAL_SHARE = 8
"""``spectral_adam`` works in the cosine basis where the prefix has at least this many times the FLOPs of the two transforms."""


@dataclass(frozen=True)
class Inversion:
    """One iterate of each image: the best; and the same run as it passed each of its residual levels.

    Attributes:
        images: float32 (N, 3, H, W) in [0, 1].
        residual: float32 (N,), r ≥ 0 of these images (before any rounding for storage).
        steps: int64 (N,), optimiser steps that led to them; 0 is the noise they started from.
        levels: for each of ``config.levels`` the first iterate of each image with r at most the level; the best one of an
            image that never gets there. They have no levels of their own.
    """

    images: Tensor
    residual: Tensor
    steps: Tensor
    levels: tuple[Inversion, ...] = ()


def invert(prefix: Prefix, images: Tensor, seeds: Sequence[int], config: IriConfig) -> Inversion:
    """Search, from noise, for images whose representation is that of ``images``.

    Args:
        prefix: images (B, 3, H, W) in [0, 1] → representation (B, ...). It must treat images one by one (eval mode);
            its parameters should not require gradients. It lives on the device of ``images``.
        images: float (N, 3, H, W) in [0, 1].
        seeds: one per image, non-negative, below 2**64; decides the noise that the image's search starts from.
        config: optimiser, steps, step size, levels, batch. Images with r ≤ ``tolerance`` > 0 leave the batch; with
            ``tolerance`` 0 no step waits for the device.

    Returns:
        The iterate with the smallest r = ‖prefix(x') − prefix(x)‖₂ / ‖prefix(x)‖₂ of each image, the start and the last
        iterate included; beside it the same run at every level. Where prefix(x) is all zero, r is the absolute error
        ‖prefix(x')‖₂.

    Raises:
        ValueError: images outside [0, 1], or another number of seeds than of images.
        FloatingPointError: the prefix gave a representation that is not finite.
    """
    _check(images, seeds)
    found = _empty(images, len(config.levels))
    optimiser, waiting = _optimiser(prefix, images, config), iter(range(len(images)))
    batch: Batch | None = None
    with torch.no_grad():
        while batch := _refilled(batch, waiting, prefix, images, seeds, optimiser, config):
            batch.step(prefix, optimiser, config)
            batch = _without_finished(batch, found, prefix, config)
    if isinstance(prefix, SoftPrefix):
        prefix.soften(0.0)
    return found


@torch.no_grad()
def residual(prefix: Prefix, candidates: Tensor, targets_z: Tensor) -> Tensor:
    """Relative error r ≥ 0 of each candidate image, float32 (N,); see :func:`invert` for an all-zero target.

    Args:
        prefix: images → representation.
        candidates: float (N, 3, H, W) in [0, 1].
        targets_z: representation to meet, (N, ...).

    Raises:
        FloatingPointError: a representation is not finite.
    """
    r = relative_error(prefix(candidates), targets_z, scale_of(targets_z))
    _require_finite(r, "an image")
    return r


def _optimiser(prefix: Prefix, images: Tensor, config: IriConfig) -> Optimiser:
    """The configured optimiser, in pixels where the transforms of ``spectral_adam`` would be a burden."""
    if config.optimiser != "spectral_adam" or not len(images):
        return OPTIMISERS[config.optimiser]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        prefix(images[:1].float())
    deep = counter.get_total_flops() >= SPECTRAL_SHARE * 2 * cosine.flops(images.shape[1:])
    return OPTIMISERS[config.optimiser] if deep else SHALLOW


def _refilled(
    batch: Batch | None,
    waiting: Iterator[int],
    prefix: Prefix,
    images: Tensor,
    seeds: Sequence[int],
    optimiser: Optimiser,
    config: IriConfig,
) -> Batch | None:
    """The batch with those that wait in its free places; ``None`` when nobody is left."""
    free = config.batch - (len(batch.rows) if batch else 0)
    rows = list(itertools.islice(waiting, free)) if not batch or free >= REFILL * config.batch else []
    if not rows:
        return batch
    start = uniform_start([seeds[row] for row in rows], images.shape[1:]).to(images.device)
    target = prefix(images[rows].float()).float()
    _require_finite(target, "a real image")
    kept = [Kept.unseen(start) for _ in range(1 + len(config.levels))]
    sound = torch.zeros((), device=images.device)
    entering = Batch(rows, [0] * len(rows), start, target, scale_of(target), optimiser.begin(start), kept, sound)
    return batch.joined(entering) if batch else entering


def _without_finished(batch: Batch, found: Inversion, prefix: Prefix, config: IriConfig) -> Batch | None:
    """Write down the images that took all their steps or are good enough, and go on with the others."""
    finished = [age > config.steps for age in batch.ages]
    if config.tolerance > 0:
        good = batch.kept[0].residual <= config.tolerance
        for place in good.nonzero()[:, 0].tolist():  # the one place where a step waits for the device
            finished[place] = True
    if not any(finished):
        return batch
    _require_finite(batch.sound, "an iterate")
    leaving = batch.take([place for place, done in enumerate(finished) if done])
    if leaving.rough:
        leaving.measure_again(prefix)
    for place, kept in zip((found, *found.levels), leaving.kept, strict=True):
        place.images[leaving.rows], place.residual[leaving.rows] = kept.images, kept.residual
        place.steps[leaving.rows] = kept.steps
    staying = [place for place, done in enumerate(finished) if not done]
    return batch.take(staying) if staying else None


def _empty(images: Tensor, levels: int) -> Inversion:
    """Room for every image."""
    count, device = len(images), images.device
    return Inversion(
        torch.empty(images.shape, device=device),
        torch.empty(count, device=device),
        torch.empty(count, dtype=torch.int64, device=device),
        tuple(_empty(images, 0) for _ in range(levels)),
    )


def _require_finite(values: Tensor, whose: str) -> None:
    if not torch.isfinite(values).all():
        raise FloatingPointError(
            f"the representation of {whose} is not finite: the front has NaN or overflowing values"
        )


def _check(images: Tensor, seeds: Sequence[int]) -> None:
    if len(seeds) != len(images):
        raise ValueError(f"{len(images)} images need as many seeds, not {len(seeds)}")
    if not len(images):
        return
    low, high = images.amin().item(), images.amax().item()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"images must lie in [0, 1] (normalisation belongs inside the net); found [{low:.3g}, {high:.3g}]"
        )

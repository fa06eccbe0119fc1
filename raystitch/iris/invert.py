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
from raystitch.iris.batching import batch_size
from raystitch.iris.checks import check_images, check_prefix, check_target, require_finite
from raystitch.iris.compiling import worth_compiling
from raystitch.iris.optimisers import OPTIMISERS, SHALLOW
from raystitch.iris.passes import Kept, Passes, Prefix, norm_of, relative_error, scale_of
from raystitch.iris.search import LOW_PRECISION, Batch
from raystitch.iris.start import uniform_start
from raystitch.modes import plainly
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
            image that never gets there. In bfloat16 r is mostly larger, so that an iterate may be passed over that is just
            below the level in full precision; none that is kept is above. They have no levels of their own.
    """

    images: Tensor
    residual: Tensor
    steps: Tensor
    levels: tuple[Inversion, ...] = ()


class Inverter:
    """Searches, from noise, for images whose representation is that of given ones, all of one size; keeps what it compiled.

    Args:
        prefix: images (B, 3, H, W) in [0, 1] → representation (B, ...). It must treat images one by one (eval mode);
            its parameters should not require gradients.
        config: optimiser, steps, step size, levels, batch. Images with r ≤ ``tolerance`` > 0 leave the batch. No step waits
            for the device but with a tolerance, or with levels in bfloat16.
        expected: how many images there will be in all calls together, by default those of the first one: by that
            ``config.compile`` auto decides.
    """

    def __init__(self, prefix: Prefix, config: IriConfig, expected: int | None = None) -> None:
        self.prefix, self.config, self.expected = prefix, config, expected
        self._passes: Passes | None = None
        self._shape = torch.Size()
        self._batch = None if config.batch == "auto" else config.batch

    def batch(self, images: Tensor) -> int:
        """How many of such images (N, 3, H, W) are moved at once: as configured, or by what fits in memory."""
        self._batch = self._batch or batch_size(self.prefix, images[:1].float())
        return self._batch

    @property
    def compiled(self) -> bool:
        """Whether the steps of the calls so far ran compiled: as asked for, and the compiler was able to."""
        return self._passes is not None and self._passes.compiled

    def __call__(self, images: Tensor, seeds: Sequence[int]) -> Inversion:
        """Invert; see :func:`invert`."""
        check_images(images, seeds)
        with plainly(gradients=False):
            images = images.clone() if images.is_inference() else images
            found = _empty(images, len(self.config.levels))
            if len(images):
                self._passes = self._passes or self._prepare(images)
                if images.shape[1:] != self._shape:
                    raise ValueError(f"this Inverter is for images {tuple(self._shape)}, not {tuple(images.shape[1:])}")
                _Search(self._passes, self.batch(images), images, seeds, found).run()
        return found

    def _prepare(self, images: Tensor) -> Passes:
        """The configured optimiser, in pixels where the transforms of ``spectral_adam`` would be a burden."""
        self._shape = images.shape[1:]
        check_prefix(self.prefix, images.shape[1:], images.device)
        with FlopCounterMode(display=False) as counter:
            self.prefix(images[:1].float())
        if isinstance(self.prefix, SoftPrefix):
            self.prefix.calibrate(images.shape[1:], images.device)
        flops, optimiser = counter.get_total_flops(), OPTIMISERS[self.config.optimiser]
        spectral = self.config.optimiser == "spectral_adam"
        if spectral and flops < SPECTRAL_SHARE * 2 * cosine.flops(images.shape[1:]):
            optimiser = SHALLOW
        expected = len(images) if self.expected is None else self.expected
        compiled = worth_compiling(self.config, flops * expected, images.device)
        return Passes(self.prefix, optimiser, self.config, compiled)


def invert(prefix: Prefix, images: Tensor, seeds: Sequence[int], config: IriConfig) -> Inversion:
    """Search, from noise, for images whose representation is that of ``images``.

    Args:
        prefix: as for :class:`Inverter`; it lives on the device of ``images``.
        images: float (N, 3, H, W) in [0, 1].
        seeds: one per image, non-negative, below 2**64; decides the noise that the image's search starts from.
        config: as for :class:`Inverter`.

    Returns:
        The iterate with the smallest r = ‖prefix(x') − prefix(x)‖₂ / ‖prefix(x)‖₂ of each image, the start and the last
        iterate included; beside it the same run at every level. Where prefix(x) is all zero, r is the absolute error
        ‖prefix(x')‖₂.

    Raises:
        TypeError: images that are not floats, or seeds that are not integers.
        ValueError: images of another shape or outside [0, 1], another number of seeds than of images, or a prefix that gives
            anything but one row for each image, by that image alone, with a gradient to it.
        FloatingPointError: the prefix gave a representation that is not finite, or too small for float32 to measure.
    """
    return Inverter(prefix, config)(images, seeds)


def residual(prefix: Prefix, candidates: Tensor, targets_z: Tensor) -> Tensor:
    """Relative error r ≥ 0 of each candidate image, float32 (N,); see :func:`invert` for an all-zero target.

    Args:
        prefix: images → representation.
        candidates: float (N, 3, H, W) in [0, 1].
        targets_z: representation to meet, (N, ...).

    Raises:
        FloatingPointError: a representation is not finite.
    """
    with plainly(gradients=False):
        r = relative_error(prefix(candidates), targets_z, scale_of(targets_z))
    require_finite(r, "an image")
    return r


@dataclass
class _Search:
    """One call: the images that wait are those of ``waiting``, at most ``size`` are being moved, the others are found."""

    passes: Passes
    size: int
    images: Tensor
    seeds: Sequence[int]
    found: Inversion
    low: Batch | None = None
    """Images that are young enough to be moved in bfloat16."""
    full: Batch | None = None
    """The others."""

    def run(self) -> None:
        waiting, until = iter(range(len(self.images))), self._low_steps()
        while self._refill(waiting):
            self.low = self._moved(self.low)
            if self.low:
                self.low, grown = self.low.parted([age < until for age in self.low.ages])
                self.full = grown.raised(self.passes).joined(self.full) if grown else self.full
            self.full = self._moved(self.full)

    def _low_steps(self) -> float:
        config = self.passes.config
        return LOW_PRECISION[config.precision] * config.steps

    def _refill(self, waiting: Iterator[int]) -> bool:
        """Give the free places to those that wait, and say whether anybody is left."""
        free = self.size - sum(len(batch.rows) for batch in (self.low, self.full) if batch)
        rows = list(itertools.islice(waiting, free)) if free >= REFILL * self.size else []
        if rows:
            entering = self._entering(rows)
            if entering.low:
                self.low = entering.joined(self.low)
            else:
                self.full = entering.joined(self.full)
        return bool(self.low or self.full)

    def _entering(self, rows: list[int]) -> Batch:
        images, passes = self.images, self.passes
        start = uniform_start([self.seeds[row] for row in rows], images.shape[1:]).to(images.device)
        target = passes.prefix(images[rows].float()).float()
        check_target(target, norm_of(target))
        kept = tuple(Kept.unseen(start) for _ in range(1 + len(passes.config.levels)))
        sound = torch.zeros((), device=images.device)
        state, age = passes.optimiser.begin(start), torch.zeros(len(rows), dtype=torch.int64, device=images.device)
        low = self._low_steps() > 0
        return Batch(rows, [0] * len(rows), age, start, target, scale_of(target), state, kept, sound, low)

    def _moved(self, batch: Batch | None) -> Batch | None:
        """The batch a step on; images that took all their steps or are good enough are written down and gone."""
        if not batch:
            return None
        batch.step(self.passes)
        config = self.passes.config
        finished = [age > config.steps for age in batch.ages]
        if config.tolerance > 0:
            good = batch.kept[0].residual <= config.tolerance
            for place in good.nonzero()[:, 0].tolist():  # here a step waits for the device
                finished[place] = True
        if not any(finished):
            return batch
        require_finite(batch.sound, "an iterate")
        leaving, staying = batch.parted(finished)
        if leaving:
            for place, kept in zip((self.found, *self.found.levels), leaving.kept, strict=True):
                place.images[leaving.rows], place.residual[leaving.rows] = kept.images, kept.residual
                place.steps[leaving.rows] = kept.steps
        return staying


def _empty(images: Tensor, levels: int) -> Inversion:
    """Room for every image."""
    count, device = len(images), images.device
    return Inversion(
        torch.empty(images.shape, device=device),
        torch.empty(count, device=device),
        torch.empty(count, dtype=torch.int64, device=device),
        tuple(_empty(images, 0) for _ in range(levels)),
    )

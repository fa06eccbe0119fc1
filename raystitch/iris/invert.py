"""Find images that a prefix represents like given images (METHOD §2).

Only the prefix runs; the target representation is computed once; the gradient is taken with respect to the images
alone; the best iterate of every image, and the first that reaches each residual level, are kept on the device; images
that are good enough leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris.optimisers import OPTIMISERS, Optimiser, State
from raystitch.iris.start import uniform_start

Prefix = Callable[[Tensor], Tensor]


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
    start = uniform_start(seeds, images.shape[1:])
    parts = [
        _invert_batch(prefix, images[part].float(), start[part].to(images.device), config)
        for part in _parts(len(images), config.batch)
    ]
    return _joined(parts)


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
    r = _relative_error(prefix(candidates), targets_z, _scale(targets_z))
    _require_finite(r, "an image")
    return r


@dataclass
class _Search:
    """The images still searched for, one row each; ``rows`` are their places in the batch."""

    rows: Tensor
    x: Tensor
    target: Tensor
    scale: Tensor
    state: State


@torch.no_grad()
def _invert_batch(prefix: Prefix, images: Tensor, start: Tensor, config: IriConfig) -> Inversion:
    optimiser = OPTIMISERS[config.optimiser]
    target = prefix(images).float()
    _require_finite(target, "a real image")
    rows = torch.arange(len(images), device=images.device)
    search = _Search(rows, start, target, _scale(target), optimiser.begin(start))
    best = replace(_unseen(start), levels=tuple(_unseen(start) for _ in config.levels))
    total = torch.zeros((), device=images.device)  # becomes inf or NaN, and stays so, when an iterate's r does
    for step in range(config.steps):
        r, grad = _residual_and_gradient(prefix, search, optimiser)
        total += r.sum()
        _record(best, search, r, step, config.levels)
        search.x, search.state = optimiser.update(search.x, grad, search.state, step, config)
        if config.tolerance > 0:
            search = _unfinished(search, r > config.tolerance)
            if not len(search.rows):
                break
    else:
        r = _relative_error(prefix(search.x), search.target, search.scale)
        total += r.sum()
        _record(best, search, r, config.steps, config.levels)
    _require_finite(total, "an iterate")
    return best


def _residual_and_gradient(prefix: Prefix, search: _Search, optimiser: Optimiser) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = search.x.detach().requires_grad_()
        r = _relative_error(prefix(x), search.target, search.scale)
        (grad,) = torch.autograd.grad(optimiser.objective(r).sum(), x)
    return r.detach(), grad


def _unfinished(search: _Search, going_on: Tensor) -> _Search:
    which = going_on.nonzero()[:, 0]  # the one place where a step waits for the device
    if len(which) == len(going_on):
        return search
    state = tuple(part[which] for part in search.state)
    return _Search(search.rows[which], search.x[which], search.target[which], search.scale[which], state)


def _unseen(start: Tensor) -> Inversion:
    """Room for one iterate of each image; the first one seen beats what is there."""
    count = len(start)
    residual = torch.full((count,), torch.inf, device=start.device)
    return Inversion(start.clone(), residual, torch.zeros(count, dtype=torch.int64, device=start.device))


def _record(best: Inversion, search: _Search, r: Tensor, step: int, levels: Sequence[float]) -> None:
    """Keep, in place and on the device, the iterates that beat the best so far: for a level until one has reached it."""
    rows = search.rows
    _keep(best, search, r, step, r < best.residual[rows])
    for level, kept in zip(levels, best.levels, strict=True):
        so_far = kept.residual[rows]
        _keep(kept, search, r, step, (r < so_far) & (so_far > level))


def _keep(kept: Inversion, search: _Search, r: Tensor, step: int, better: Tensor) -> None:
    rows = search.rows
    kept.images[rows] = torch.where(better[:, None, None, None], search.x, kept.images[rows])
    kept.residual[rows] = torch.where(better, r, kept.residual[rows])
    kept.steps[rows] = torch.where(better, step, kept.steps[rows])


def _joined(parts: Sequence[Inversion]) -> Inversion:
    return Inversion(
        torch.cat([part.images for part in parts]),
        torch.cat([part.residual for part in parts]),
        torch.cat([part.steps for part in parts]),
        tuple(_joined(level) for level in zip(*(part.levels for part in parts), strict=True)),
    )


def _parts(count: int, size: int) -> list[slice]:
    return [slice(first, first + size) for first in range(0, max(count, 1), size)]


def _scale(target: Tensor) -> Tensor:
    """Norm of each target (N,), or 1 where it is zero: there the error is taken as it is."""
    norm = torch.linalg.vector_norm(target.float().flatten(1), dim=1)
    return torch.where(norm > 0, norm, 1.0)


def _relative_error(z: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm((z.float() - target.float()).flatten(1), dim=1)
    return norm / scale


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

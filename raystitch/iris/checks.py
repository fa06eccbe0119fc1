"""What an inversion asks of its images, seeds and prefix, told in one line where it is not so."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from raystitch.iris.start import uniform_start

SMALLEST_NORM = 1e-14
"""Of a representation that is not zero: squares of a thousandth of it, and their reciprocals, stay within float32."""
SAME = 1e-2
"""Relative difference of a representation by the company of its image that passes as rounding, of any precision."""


def check_images(images: Tensor, seeds: Sequence[int]) -> None:
    """Images and seeds of a search; see :func:`~raystitch.iris.invert`.

    Raises:
        TypeError: images that are not floats, seeds that are not integers.
        ValueError: another shape than (N, 3, H, W), values outside [0, 1], another number of seeds, or one outside [0, 2**64).
    """
    if not images.is_floating_point():
        raise TypeError(f"images must be floats in [0, 1], not {images.dtype}: divide pixels of 0 to 255 by 255")
    if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
        raise ValueError(f"images must have the shape (N, 3, H, W), not {tuple(images.shape)}")
    if len(seeds) != len(images):
        raise ValueError(f"{len(images)} images need as many seeds, not {len(seeds)}")
    for seed in map(operator.index, seeds):
        if not 0 <= seed < 2**64:
            raise ValueError(f"seeds must lie in [0, 2**64); found {seed}")
    if not len(images):
        return
    low, high = images.amin().item(), images.amax().item()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"images must lie in [0, 1] (normalisation belongs inside the net); found [{low:.3g}, {high:.3g}]"
        )


def check_prefix(prefix: Callable[[Tensor], Tensor], shape: Sequence[int], device: torch.device) -> None:
    """Run a prefix on noise: on one image, with a gradient, and on it beside another.

    Noise, since layers that normalise each image by itself make nothing but rounding of a real one of a single colour.

    Args:
        prefix: images (B, 3, H, W) in [0, 1] → representations (B, ...).
        shape: of an image, (3, H, W).
        device: of the images.

    Raises:
        ValueError: it gives anything but one row for each image, by that image alone, with a gradient to it.
    """
    noise = uniform_start([0, 1], shape).to(device)
    x = noise[:1].requires_grad_()
    with torch.enable_grad():
        z = prefix(x)
    _check_rows(z, 1)
    if not z.requires_grad or torch.autograd.grad(z, x, torch.ones_like(z), allow_unused=True)[0] is None:
        raise ValueError(
            "the front's representation has no gradient to its images: it is constant, detached, or computed under no_grad"
        )
    with torch.no_grad():
        pair = prefix(noise)
    _check_rows(pair, 2)
    alone, beside = z.detach()[0].double(), pair[0].double()
    if alone.shape != beside.shape or (alone - beside).norm() > SAME * alone.norm():
        raise ValueError(
            "the front's representation of an image depends on the images beside it: is a BatchNorm in train mode?"
        )


def check_target(target: Tensor, norm: Tensor) -> None:
    """Representations (B, ...) of real images, and their norms (B,).

    Raises:
        FloatingPointError: one is not finite, or too small for float32 to measure what is a fraction of it.
    """
    require_finite(norm, "a real image")
    small = (norm < SMALLEST_NORM) & (target.reshape(len(target), -1) != 0).any(dim=1)
    if small.any():
        raise FloatingPointError(
            f"the representation of a real image has norm {float(norm[small].min()):.3g}: too small for float32 to measure"
            f" an error (from {SMALLEST_NORM:g} on it can)"
        )


def require_finite(values: Tensor, whose: str) -> None:
    """Raise a :class:`FloatingPointError` unless all are."""
    if not torch.isfinite(values).all():
        raise FloatingPointError(
            f"the representation of {whose} is not finite: the front has NaN or overflowing values"
        )


def _check_rows(z: object, images: int) -> None:
    if not isinstance(z, Tensor) or z.dim() == 0 or len(z) != images or z.is_complex():
        found = f"{z.dtype} of shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(
            f"the front must give one tensor of reals with a row for each image; given {images}, it gave {found}"
        )

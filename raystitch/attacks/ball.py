"""The L∞ ball of radius ε around each image, cut by the box [0, 1]: check, project, start at random."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def check_inputs(x: Tensor, labels: Tensor, eps: float) -> None:
    """Refuse what no attack can work with.

    Raises:
        ValueError: images outside [0, 1] or not floating, labels that do not fit, or ε that is not positive.
    """
    if not x.is_floating_point() or labels.shape != x.shape[:1]:
        found = f"{tuple(x.shape)} {x.dtype}, {tuple(labels.shape)}"
        raise ValueError(f"images and labels must be float (N, ...) and (N,); found {found}")
    if eps <= 0:
        raise ValueError(f"eps must be positive, in units of pixels in [0, 1]; found {eps}")
    if x.numel() and not (x.amin().item() >= 0 and x.amax().item() <= 1):
        raise ValueError("images must lie in [0, 1]: normalisation belongs inside the net")


def project(candidates: Tensor, x: Tensor, eps: float) -> Tensor:
    """The nearest point of [x − ε, x + ε] ∩ [0, 1] to each candidate, pixel by pixel."""
    return candidates.clamp(x - eps, x + eps).clamp(0, 1)


def random_start(x: Tensor, eps: float, seeds: Sequence[int]) -> Tensor:
    """A point uniform in the ball around each image, then cut to [0, 1]; it follows from the image's own seed alone.

    Raises:
        ValueError: another number of seeds than of images.
    """
    if len(seeds) != len(x):
        raise ValueError(f"{len(x)} images need as many seeds, not {len(seeds)}")
    noise = np.empty(tuple(x.shape), dtype=np.float32)
    for row, seed in zip(noise, seeds, strict=True):
        np.random.Generator(np.random.Philox(key=seed)).random(dtype=np.float32, out=row)
    offsets = torch.from_numpy(noise).to(x.device, x.dtype) * 2 - 1
    return project(x + eps * offsets, x, eps)


def sample_seeds(seed: int, stream: str, indices: Sequence[int]) -> list[int]:
    """One seed (64 bits) per sample of an evaluation set, from the set's seed and the sample's index."""
    return [
        int.from_bytes(hashlib.sha256(f"{seed}:{stream}:{index}".encode()).digest()[:8], "big") for index in indices
    ]

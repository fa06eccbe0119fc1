"""Where an inversion starts: uniform noise of its own for every sample, whatever the batch, shard or machine.

A sample's noise follows from its seed alone. The counter-based Philox generator takes all 64 bits of the seed as its
key (a torch CPU generator keeps 32, so two of 50,000 samples may well share their noise).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def sample_seed(set_seed: int, index: int) -> int:
    """The seed (64 bits, non-negative) of sample ``index`` of the IRI set with seed ``set_seed``."""
    return int.from_bytes(hashlib.sha256(f"{set_seed}:{index}".encode()).digest()[:8], "big")


def uniform_start(seeds: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Noise ~ Uniform[0, 1), independent per pixel: float32 (len(seeds), *shape), on the CPU."""
    noise = np.empty((len(seeds), *shape), dtype=np.float32)
    for row, seed in zip(noise, seeds, strict=True):
        np.random.Generator(np.random.Philox(key=seed)).random(dtype=np.float32, out=row)
    return torch.from_numpy(noise)

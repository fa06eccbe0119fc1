"""The product's inversion as the benchmarks call it, and the floor: the one place to adapt when its interface changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris import Inversion, invert, sample_seed
from raystitch.iris.invert import Prefix
from raystitch.nets import CutNet, fold_batchnorm

Precision = Literal["float32", "bf16"]
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Search:
    """How to invert: a config of the product, and the precision of the prefix."""

    config: IriConfig
    precision: Precision = "float32"


def prefix_of(net: CutNet, point: int, search: Search) -> Prefix:
    """The prefix as a worker of a sweep runs it: BatchNorm folded, channels-last on the CPU."""
    folded, dtype = fold_batchnorm(net), DTYPES[search.precision]
    folded.to(dtype)
    return lambda x: folded.run(x.to(dtype), 0, point)


def run(prefix: Prefix, images: Tensor, search: Search, steps: int) -> Inversion:
    """Invert with a budget of ``steps``. It costs ``steps`` + 1 pairs of forward and backward passes, or a little more."""
    seeds = [sample_seed(search.config.seed, row) for row in range(len(images))]
    return invert(prefix, images, seeds, search.config.model_copy(update={"steps": steps}))


def floor(prefix: Prefix, images: Tensor, search: Search, pairs: int) -> None:
    """The least that gradient descent can cost: ``pairs`` of a bare forward and backward pass, and nothing else."""
    batch = images.to(DTYPES[search.precision])
    for _ in range(pairs):
        x = batch.detach().requires_grad_()
        z = prefix(x)
        torch.autograd.grad(z, x, z.detach())

"""The product's inversion as the benchmarks call it, and the floor: the one place to adapt when its interface changes."""

from __future__ import annotations

import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris import Inversion, invert, sample_seed
from raystitch.iris.passes import Prefix
from raystitch.nets import CutNet, SoftPrefix, fold_batchnorm


def prefix_of(net: CutNet, point: int) -> SoftPrefix:
    """The prefix as a worker of a sweep runs it: BatchNorm folded, channels-last on the CPU."""
    return SoftPrefix(fold_batchnorm(net), point)


def run(prefix: Prefix, images: Tensor, search: IriConfig, steps: int) -> Inversion:
    """Invert with a budget of ``steps``. It costs ``steps`` + 1 pairs of forward and backward passes, or a little more."""
    seeds = [sample_seed(search.seed, row) for row in range(len(images))]
    return invert(prefix, images, seeds, search.model_copy(update={"steps": steps}))


def floor(prefix: Prefix, images: Tensor, search: IriConfig, pairs: int) -> None:
    """The least that gradient descent can cost: ``pairs`` of a bare forward and backward pass, and nothing else."""
    low = search.precision != "float32"
    for _ in range(pairs):
        x = images.detach().requires_grad_()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=low):
            z = prefix(x)
        torch.autograd.grad(z, x, z.detach())

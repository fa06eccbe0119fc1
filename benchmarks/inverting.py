"""The product's inversion as the benchmarks call it, and the floor: the one place to adapt when its interface changes."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris import Inversion, Inverter, sample_seed
from raystitch.iris.compiling import can_compile
from raystitch.iris.passes import Prefix, compiled_whole
from raystitch.nets import CutNet, SoftPrefix, fold_batchnorm


def prefix_of(net: CutNet, point: int) -> SoftPrefix:
    """The prefix as a worker of a sweep runs it: BatchNorm folded, channels-last on the CPU."""
    return SoftPrefix(fold_batchnorm(net), point)


def run(prefix: Prefix, images: Tensor, search: IriConfig, steps: int) -> Inversion:
    """Invert with a budget of ``steps``. It costs ``steps`` + 1 pairs of forward and backward passes, or a little more."""
    return Search(prefix, images, search.model_copy(update={"compile": False}), steps)()


class Search:
    """The same as something to call again and again: what ``search.compile`` asks for is compiled in the first call.

    Without a compiler it runs as it is written, as it does where the compiler fails.
    """

    def __init__(self, prefix: Prefix, images: Tensor, search: IriConfig, steps: int) -> None:
        self._images = images
        if search.compile and not can_compile(images.device):
            search = search.model_copy(update={"compile": False})
        self._seeds = [sample_seed(search.seed, row) for row in range(len(images))]
        self._inverter = Inverter(prefix, search.model_copy(update={"steps": steps, "batch": len(images)}))

    def __call__(self) -> Inversion:
        """Run it."""
        return self._inverter(self._images, self._seeds)

    @property
    def compiled(self) -> bool:
        """Whether the steps of the calls so far were."""
        return self._inverter.compiled


def on_compiling(uncompiled: Collection[int]) -> str:
    """The note of a benchmark whose searches are to be compiled, by the points where they were not."""
    note = "Steps are compiled before they are timed, which takes some 10 s for each prefix and precision"
    if not uncompiled:
        return f"{note}."
    points = ", ".join(map(str, uncompiled))
    return f"{note}; but there was no compiler, or it failed, at points {points}: there they ran as they are written."


def floor(prefix: Prefix, images: Tensor, search: IriConfig, pairs: int) -> None:
    """The least that gradient descent can cost: ``pairs`` of a bare forward and backward pass, as written, and nothing else."""
    low = search.precision != "float32"
    for _ in range(pairs):
        x = images.detach().requires_grad_()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=low):
            z = prefix(x)
        torch.autograd.grad(z, x, z.detach())


class CompiledFloor:
    """The same with each pair compiled as one graph, in the first call; as written without a compiler, or where it fails.

    Attributes:
        compiled: whether the pairs so far were.
    """

    def __init__(self, prefix: Prefix, images: Tensor, search: IriConfig, pairs: int) -> None:
        low, device, self._pairs = search.precision != "float32", images.device.type, pairs
        self._images = images.contiguous(memory_format=torch.channels_last) if device == "cpu" else images

        def represent(x: Tensor) -> Tensor:
            with torch.autocast(device, torch.bfloat16, enabled=low):
                return prefix(x)

        def pair(x: Tensor) -> Tensor:
            z, pull, *_ = torch.func.vjp(represent, x)
            grad: Tensor = pull(z)[0]
            return grad

        self.compiled, self._written = can_compile(images.device), pair
        self._pair = compiled_whole(pair) if self.compiled else pair

    def __call__(self) -> None:
        """Run it."""
        with torch.no_grad():
            for _ in range(self._pairs):
                try:
                    self._pair(self._images)
                except (torch.cuda.OutOfMemoryError, MemoryError):
                    raise
                except Exception:  # of the compiler
                    self._pair, self.compiled = self._written, False

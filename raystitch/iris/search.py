"""The images an inversion is working on: one batch, each image at a step of its own, entering and leaving as it must."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raystitch.config import IriConfig
from raystitch.iris.optimisers import Optimiser, State
from raystitch.nets import SoftPrefix

Prefix = Callable[[Tensor], Tensor]

LOW_PRECISION: Mapping[str, float] = {"float32": 0.0, "mixed": 0.75, "bfloat16": 1.0}
"""Share of the steps, from the first, that is taken in bfloat16."""


@dataclass
class Kept:
    """An iterate of each image: the best so far, or the first that reached a level.

    Attributes:
        images: float32 (B, 3, H, W).
        residual: float32 (B,); inf before the first.
        steps: int64 (B,).
    """

    images: Tensor
    residual: Tensor
    steps: Tensor

    @classmethod
    def unseen(cls, start: Tensor) -> Kept:
        """Room for one iterate of each image; the first one seen beats what is there."""
        residual = torch.full((len(start),), torch.inf, device=start.device)
        return cls(start.clone(), residual, torch.zeros(len(start), dtype=torch.int64, device=start.device))

    def record(self, x: Tensor, r: Tensor, step: Tensor | int, better: Tensor) -> None:
        """Put the iterates marked in ``better`` (B,) in place of those kept."""
        self.images = torch.where(better[:, None, None, None], x, self.images)
        self.residual = torch.where(better, r, self.residual)
        self.steps = torch.where(better, step, self.steps)

    def take(self, which: Tensor) -> Kept:
        """Some of the images, by their places (K,)."""
        return Kept(self.images[which], self.residual[which], self.steps[which])

    def joined(self, other: Kept) -> Kept:
        """The images of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Kept(*(torch.cat(pair) for pair in pairs))


@dataclass
class Batch:
    """Images in the search, one row each.

    Attributes:
        rows: their places in the set, on the host.
        ages: steps taken by each, on the host, where no step waits for them.
        x: the iterates.
        target: representation to meet, float32.
        scale: what the error is divided by (B,).
        state: the optimiser's.
        kept: best iterates, then those of each level.
        sound: becomes inf or NaN, and stays so, when an iterate's r does.
        rough: whether residuals of what is kept may have been measured in low precision.
    """

    rows: list[int]
    ages: list[int]
    x: Tensor
    target: Tensor
    scale: Tensor
    state: State
    kept: list[Kept]
    sound: Tensor
    rough: bool = False

    def joined(self, other: Batch) -> Batch:
        """The images of both."""
        return Batch(
            rows=self.rows + other.rows,
            ages=self.ages + other.ages,
            x=torch.cat([self.x, other.x]),
            target=torch.cat([self.target, other.target]),
            scale=torch.cat([self.scale, other.scale]),
            state=tuple(map(torch.cat, zip(self.state, other.state, strict=True))),
            kept=[own.joined(new) for own, new in zip(self.kept, other.kept, strict=True)],
            sound=self.sound + other.sound,
            rough=self.rough or other.rough,
        )

    def take(self, places: Sequence[int]) -> Batch:
        """Some of the images, by their places in the batch."""
        which = torch.tensor(places, device=self.x.device)
        return Batch(
            rows=[self.rows[place] for place in places],
            ages=[self.ages[place] for place in places],
            x=self.x[which],
            target=self.target[which],
            scale=self.scale[which],
            state=tuple(part[which] for part in self.state),
            kept=[kept.take(which) for kept in self.kept],
            sound=self.sound,
            rough=self.rough,
        )

    def step(self, prefix: Prefix, optimiser: Optimiser, config: IriConfig) -> None:
        """Measure every image, record it, and move it; one that was measured after its last step is past its steps then."""
        low = max(self.ages) < LOW_PRECISION[config.precision] * config.steps
        if self.rough and not low:
            self.measure_again(prefix)
        self.rough = low
        if min(self.ages) == config.steps:
            self._record(relative_error(prefix(self.x), self.target, self.scale), config)
        else:
            r, grad = self._residual_and_gradient(prefix, optimiser, config, low)
            self._record(r, config)
            self.x, self.state = optimiser.update(self.x, grad, self.state, self._ages(4), config)
        self.ages = [age + 1 for age in self.ages]

    def measure_again(self, prefix: Prefix) -> None:
        """Residuals of what is kept, in full precision."""
        for kept in self.kept:
            kept.residual = relative_error(prefix(kept.images), self.target, self.scale)
        self.rough = False

    def _residual_and_gradient(
        self, prefix: Prefix, optimiser: Optimiser, config: IriConfig, low: bool
    ) -> tuple[Tensor, Tensor]:
        """r (B,), and the gradient of the objective to the images; only the prefix is differentiated by autograd."""
        if optimiser.softens and isinstance(prefix, SoftPrefix):
            prefix.soften(1 - self._ages(1) / config.steps)
        with torch.enable_grad(), torch.autocast(self.x.device.type, torch.bfloat16, enabled=low):
            x = self.x.detach().requires_grad_()
            z = prefix(x)
        error = z.detach().float() - self.target
        r = _norm(error) / self.scale
        (grad,) = torch.autograd.grad(z, x, error.to(z.dtype))
        weight = optimiser.slope(r) / self.scale.square()  # applied to the images, which are smaller than z
        return r, grad * weight[:, None, None, None]

    def _record(self, r: Tensor, config: IriConfig) -> None:
        self.sound += r.sum()
        step, (best, *levels) = self._ages(1), self.kept
        best.record(self.x, r, step, r < best.residual)
        for level, kept in zip(config.levels, levels, strict=True):
            kept.record(self.x, r, step, (r < kept.residual) & (kept.residual > level))

    def _ages(self, dims: int) -> int | Tensor:
        """The steps taken: a number where all images took as many, else int64 (B, 1, …), with ``dims`` dimensions."""
        if min(self.ages) == max(self.ages):
            return self.ages[0]
        return torch.tensor(self.ages, device=self.x.device).view(-1, *[1] * (dims - 1))


def scale_of(target: Tensor) -> Tensor:
    """Norm of each target (N,), or 1 where it is zero: there the error is taken as it is."""
    norm = _norm(target.float())
    return torch.where(norm > 0, norm, 1.0)


def relative_error(z: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    """‖z − target‖₂ / scale of each image, float32 (N,)."""
    return _norm(z.float() - target.float()) / scale


def _norm(z: Tensor) -> Tensor:
    """Over all but the first dimension; no copy, whatever the order in memory."""
    norm: Tensor = torch.linalg.vector_norm(z, dim=tuple(range(1, z.dim()))) if z.dim() > 1 else z.abs()
    return norm

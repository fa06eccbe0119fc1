"""The images an inversion is working on: one batch, each image at a step of its own, entering and leaving as it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raystitch.iris.optimisers import State
from raystitch.iris.passes import Kept, Passes

LOW_PRECISION: Mapping[str, float] = {"float32": 0.0, "mixed": 0.75, "bfloat16": 1.0}
"""Share of the steps, from the first, that is taken in bfloat16."""


@dataclass
class Batch:
    """Images in the search, one row each.

    Attributes:
        rows: their places in the set, on the host.
        ages: steps taken by each, on the host, where no step waits for them; ``age`` has the same on the device, int64 (B,).
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
    age: Tensor
    x: Tensor
    target: Tensor
    scale: Tensor
    state: State
    kept: tuple[Kept, ...]
    sound: Tensor
    rough: bool = False

    def joined(self, other: Batch) -> Batch:
        """The images of both."""
        return Batch(
            rows=self.rows + other.rows,
            ages=self.ages + other.ages,
            age=torch.cat([self.age, other.age]),
            x=torch.cat([self.x, other.x]),
            target=torch.cat([self.target, other.target]),
            scale=torch.cat([self.scale, other.scale]),
            state=tuple(map(torch.cat, zip(self.state, other.state, strict=True))),
            kept=tuple(own.joined(new) for own, new in zip(self.kept, other.kept, strict=True)),
            sound=self.sound + other.sound,
            rough=self.rough or other.rough,
        )

    def take(self, places: Sequence[int]) -> Batch:
        """Some of the images, by their places in the batch."""
        which = torch.tensor(places, device=self.x.device)
        return Batch(
            rows=[self.rows[place] for place in places],
            ages=[self.ages[place] for place in places],
            age=self.age[which],
            x=self.x[which],
            target=self.target[which],
            scale=self.scale[which],
            state=tuple(part[which] for part in self.state),
            kept=tuple(kept.take(which) for kept in self.kept),
            sound=self.sound,
            rough=self.rough,
        )

    def step(self, passes: Passes) -> None:
        """Measure every image, record it, and move it; one that was measured after its last step is past its steps then."""
        config = passes.config
        low = max(self.ages) < LOW_PRECISION[config.precision] * config.steps
        if self.rough and not low:
            self.measure_again(passes)
        self.rough = low
        age = self._age(passes)
        if min(self.ages) == config.steps:
            r = passes.residual(self.x, self.target, self.scale)
            self.kept, self.sound = passes.record(self.x, r, self.kept, self.sound, age)
        else:
            self.x, self.state, self.kept, self.sound = passes.step(
                self.x, self.target, self.scale, self.state, self.kept, self.sound, age, low
            )
        self.ages, self.age = [age + 1 for age in self.ages], self.age + 1

    def measure_again(self, passes: Passes) -> None:
        """Residuals of what is kept, in full precision."""
        again = (passes.residual(kept.images, self.target, self.scale) for kept in self.kept)
        self.kept = tuple(kept._replace(residual=r) for kept, r in zip(self.kept, again, strict=True))
        self.rough = False

    def _age(self, passes: Passes) -> int | Tensor:
        """The steps taken: a number where all images took as many, else int64 (B,)."""
        if min(self.ages) == max(self.ages) and not passes.compiled:
            return self.ages[0]
        return self.age

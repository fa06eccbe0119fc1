"""The images an inversion is working on: one batch, each image at a step of its own, entering and leaving as it must."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raystitch.iris.optimisers import State
from raystitch.iris.passes import Kept, Passes

LOW_PRECISION: Mapping[str, float] = {"float32": 0.0, "mixed": 0.75, "bfloat16": 1.0}
"""Share of the steps, from the first, that an image takes in bfloat16."""


@dataclass
class Batch:
    """Images in the search, one row each.

    Attributes:
        rows: their places in the set, on the host.
        ages: steps taken by each, on the host; ``age`` has the same on the device, int64 (B,), so that neither waits.
        x: the iterates.
        target: representation to meet, float32.
        scale: what the error is divided by (B,).
        state: the optimiser's.
        kept: best iterates, then those of each level.
        sound: becomes inf or NaN, and stays so, when an iterate's r does.
        low: whether steps are taken in bfloat16, and residuals above the tolerance and the levels are as measured there.
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
    low: bool

    def joined(self, other: Batch | None) -> Batch:
        """The images of both, in the precision of this one."""
        if not other:
            return self
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
            low=self.low,
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
            low=self.low,
        )

    def parted(self, first: Sequence[bool]) -> tuple[Batch | None, Batch | None]:
        """The images so marked, and the others."""
        if all(first) or not any(first):
            return (self, None) if first[0] else (None, self)
        places = range(len(first))
        return self.take([k for k in places if first[k]]), self.take([k for k in places if not first[k]])

    def step(self, passes: Passes) -> None:
        """Measure every image, record it, and move it; one that was measured after its last step is past its steps then."""
        age, measured = self._age(passes), self.x
        if min(self.ages) == passes.config.steps:
            r = passes.residual(self.x, self.target, self.scale)
            self.kept, self.sound = passes.record(self.x, r, self.kept, self.sound, age)
        else:
            self.x, self.state, self.kept, self.sound = passes.step(
                self.x, self.target, self.scale, self.state, self.kept, self.sound, age, self.low
            )
        if self.low:
            self._confirm(passes, measured)
        self.ages, self.age = [age + 1 for age in self.ages], self.age + 1

    def raised(self, passes: Passes) -> Batch:
        """The batch in full precision, with the residuals of what it keeps; levels that are reached have theirs."""
        kept = []
        for threshold, one in zip((0.0, *passes.config.levels), self.kept, strict=True):
            r = passes.residual(one.images, self.target, self.scale)
            kept.append(one._replace(residual=torch.where(one.residual <= threshold, one.residual, r)))
        return dataclasses.replace(self, kept=tuple(kept), low=False)

    def _confirm(self, passes: Passes, x: Tensor) -> None:
        """Measure iterates in full precision that have just come to the tolerance or a level: by that they leave, or stay."""
        thresholds = (passes.config.tolerance, *passes.config.levels)
        if not any(thresholds):
            return
        fresh = [kept.steps == self.age for kept in self.kept]
        near = [new & (kept.residual <= r) for new, kept, r in zip(fresh, self.kept, thresholds, strict=True)]
        rows = torch.stack(near).any(dim=0).nonzero()[:, 0]
        if not len(rows):
            return
        r = passes.residual(x[rows], self.target[rows], self.scale[rows])
        for new, kept in zip(fresh, self.kept, strict=True):
            kept.residual[rows] = torch.where(new[rows], r, kept.residual[rows])

    def _age(self, passes: Passes) -> int | Tensor:
        """The steps taken: a number where all images took as many, else int64 (B,)."""
        if min(self.ages) == max(self.ages) and not passes.compiled:
            return self.ages[0]
        return self.age

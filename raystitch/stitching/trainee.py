"""One objective in training: its stitch, its optimiser, and under ``paper`` its own end whose statistics move."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from raystitch.config import FitConfig
from raystitch.stitching.fitted import Fitted
from raystitch.stitching.frozen import moves, private_copy, use_batch_statistics
from raystitch.stitching.objectives import batch_loss, reach, targets
from raystitch.stitching.stitched import StitchedNet
from raystitch.stitching.streams import FRONT

if TYPE_CHECKING:
    from raystitch.nets import CutNet


class Trainee:
    """One objective in training.

    Args:
        result: what will be returned; its stitch is trained in place.
        end: the end as it runs in training: equivalent to the result's.
        config: the recipe.
    """

    def __init__(self, result: Fitted, end: CutNet, config: FitConfig) -> None:
        self.result, self._end = result, end
        self.targets = targets(result.objective, result.end_point, result.end.n)
        self._reach = reach(result.objective, result.end_point, result.end.n)
        parameters = list(result.stitch.parameters())
        self._adam = _adam(parameters, config) if parameters else None
        self._losses: list[Tensor] = []

    def move_statistics(self, front: CutNet) -> None:
        """Evaluate with ``front``, and let a copy of the end follow this objective's stitched stream."""
        self._end = private_copy(self.result.end)
        use_batch_statistics(self._end, move=True)
        self.result.front, self.result.end = front, self._end

    @property
    def keys(self) -> frozenset[int]:
        """What a step needs of a batch of streams."""
        return frozenset({FRONT, *self.targets})

    def stitched(self, front: CutNet) -> StitchedNet:
        """The stitched net as it trains, behind a front that is equivalent to the result's."""
        own = self.result
        return StitchedNet(front, own.stitch, self._end, own.front_point, own.end_point)

    def start_epoch(self, rate: float) -> None:
        """Set the learning rate and begin a new mean of the loss."""
        for group in self._adam.param_groups if self._adam is not None else ():
            group["lr"] = rate
        self._losses = []

    def step(self, batch: Mapping[int, Tensor], labels: Tensor) -> None:
        """One optimiser step on a batch of streams."""
        z = self.result.stitch.apply_trainable(batch[FRONT])
        stitched = [z, *self._end.trace(z, self.result.end_point, self._reach)]
        loss = batch_loss(self.result.objective, stitched, [batch[point] for point in self.targets], labels)
        self._move_the_rest(stitched[-1])
        if self._adam is not None:  # an identity stitch has nothing to train
            self._adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._adam.step()
        self._losses.append(loss.detach())

    def _move_the_rest(self, z: Tensor) -> None:
        """BatchNorm layers beyond the objective's reach see the stitched stream too, as evaluation will use them."""
        last = self._end.n
        if self._reach <= last and moves(self._end.segments[self._reach :]):
            with torch.no_grad():
                self._end.run(z.detach(), self._reach, last + 1)

    def end_epoch(self, epoch: int) -> None:
        """Record the mean loss; raises FloatingPointError where it is not finite."""
        mean = float(torch.stack(self._losses).mean())
        if not math.isfinite(mean):
            raise FloatingPointError(f"the loss of {self.result.objective} is {mean} in epoch {epoch + 1}")
        self.result.train_loss.append(mean)

    def finish(self) -> None:
        """Leave the result in eval mode and without gradients."""
        for net in (self.result.front, self.result.end):
            net.eval()
        self.result.stitch.requires_grad_(False)


def _adam(parameters: Sequence[Tensor], config: FitConfig) -> torch.optim.Adam:
    """In one kernel for each tensor: on one core a step of 64 channels takes half the time, one of 2,048 a twelfth."""
    fused = parameters[0].device.type in ("cpu", "cuda")  # where every torch that is supported has it
    return torch.optim.Adam(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=fused or None)

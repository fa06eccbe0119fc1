"""A trained stitch together with the two nets it is evaluated with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from raystitch.config import Objective
from raystitch.stitching.moments import InitReport
from raystitch.stitching.stitch import Stitch
from raystitch.stitching.stitched import StitchedNet

if TYPE_CHECKING:
    from raystitch.nets import CutNet


@dataclass
class Fitted:
    """A trained stitch with the two nets it is evaluated with.

    Attributes:
        objective: what it was trained for.
        stitch: the trained stitch.
        front: the front as evaluated; under ``paper`` on real images its BatchNorm statistics are the moved ones.
        end: the end as evaluated, likewise; each objective moved its own.
        front_point: i, from 1.
        end_point: j, from 1.
        init: the least-squares problem of the initialisation; of ``dm_exact``: the one it solves, centred.
        train_loss: mean loss over the batches of each epoch; of ``dm_exact``: one value, the loss over all images.
    """

    objective: Objective
    stitch: Stitch
    front: CutNet
    end: CutNet
    front_point: int
    end_point: int
    init: InitReport
    train_loss: list[float] = field(default_factory=list)

    @property
    def net(self) -> StitchedNet:
        """h as a module, of these very parts."""
        return StitchedNet(self.front, self.stitch, self.end, self.front_point, self.end_point)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """h(x): logits (B, C) of the stitched net for images (B, 3, H, W) float in [0, 1], on the stitch's device."""
        logits: Tensor = self.net(images.to(self.stitch.device))
        return logits

    @torch.no_grad()
    def trace(self, images: Tensor) -> list[Tensor]:
        """The stitched stream [z_j, z_{j+1}, …, z_n, logits] for images (B, 3, H, W) float in [0, 1]."""
        return self.trace_from(self.front.run(images.to(self.stitch.device), 0, self.front_point))

    @torch.no_grad()
    def trace_from(self, representation: Tensor) -> list[Tensor]:
        """The same from the front's representation of the images at ``front_point``."""
        z: Tensor = self.stitch(representation)
        return [z, *self.end.trace(z, self.end_point, self.end.n + 1)]

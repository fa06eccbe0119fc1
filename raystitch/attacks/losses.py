"""What an attack maximises, per image: functions from logits (N, C) and labels (N,) to losses (N,), in float32 at least."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from raystitch.errors import InputError

Loss = Callable[[Tensor, Tensor], Tensor]

_TINY = 1e-12  # keeps the ratio finite where the three largest logits are equal


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each image, in nats."""
    return F.cross_entropy(_wide(logits), labels, reduction="none")


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """Difference of logits ratio: −(z_y − max_{i≠y} z_i) / (z_π1 − z_π3), π from large to small (Croce & Hein 2020, eq. 6).

    Invariant to shift and scale of the logits; positive exactly where an image is misclassified, at least −1.

    Raises:
        InputError: fewer than three classes, for which there is no third logit.
    """
    require_three_classes(logits.shape[1])
    logits = _wide(logits)
    largest = logits.topk(3, dim=1).values
    own = logits.gather(1, labels[:, None])
    other = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return (other - own[:, 0]) / (largest[:, 0] - largest[:, 2] + _TINY)


def require_three_classes(classes: int) -> None:
    """Refuse the DLR loss for nets with fewer than three classes.

    Raises:
        InputError: as said.
    """
    if classes < 3:
        problem = f"the DLR loss needs at least 3 classes and the net has {classes}: use pgd, or apgd on ce"
        raise InputError("attack", "dlr", problem)


LOSSES: Mapping[str, Loss] = {"ce": cross_entropy, "dlr": dlr}
"""By the name that :func:`raystitch.attacks.apgd` takes."""


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()

"""What an attack asks a model for: whether it is right, losses and gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from raystitch.attacks.losses import Loss

Model = Callable[[Tensor], Tensor]


@torch.no_grad()
def is_right(model: Model, x: Tensor, labels: Tensor) -> Tensor:
    """Whether each image is given its label, bool (N,).

    Raises:
        FloatingPointError: the logits are not finite.
    """
    logits = model(x)
    _require_finite(logits)
    return logits.argmax(1) == labels


def is_right_in_batches(model: Model, x: Tensor, labels: Tensor, batch: int) -> Tensor:
    """:func:`is_right` of a whole set, ``batch`` images per pass."""
    parts = zip(torch.split(x, batch), torch.split(labels, batch), strict=True)
    return torch.cat([is_right(model, part, own) for part, own in parts])


def loss_and_gradient(model: Model, loss: Loss, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss (N,), its gradient with respect to the images, and whether each image is misclassified, bool (N,).

    Raises:
        FloatingPointError: the logits are not finite.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        logits = model(x)
        values = loss(logits, labels)
        (gradient,) = torch.autograd.grad(values.sum(), x)
    _require_finite(logits)
    return values.detach(), gradient, logits.detach().argmax(1) != labels


def _require_finite(logits: Tensor) -> None:
    if not torch.isfinite(logits).all():
        raise FloatingPointError("the logits of the attacked model are not finite")

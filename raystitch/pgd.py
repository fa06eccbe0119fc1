"""Projected gradient descent on the cross-entropy in an L∞ ball (Madry et al. 2018): the attack of adversarial training.

One attack for base models and for stitches as they train. It asks the device for nothing, so a GPU need not wait between
steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from raystitch.nets import held


def pgd(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    steps: int,
    step_size: float,
    start: Tensor | None = None,
) -> Tensor:
    """The last iterate of x ← clip(x + step · sign ∇CE(x), clean ± ε, 0 … 1).

    A model that is a module is attacked in eval mode; its modes, buffers and gradients stay as they are. One that is not must
    be in eval mode itself. Logits that are not finite give images that are not.

    Args:
        model: images → logits (B, C), on the device of the images; treats images one by one.
        images: clean, float (B, 3, H, W) in [0, 1].
        labels: int64 (B,), to be moved away from.
        eps: radius, in pixel units of [0, 1].
        steps: gradient steps, ≥ 0.
        step_size: in pixel units.
        start: where to begin, in the ball; by default at the clean images.

    Returns:
        Attacked images of the same shape and dtype, without a graph.
    """
    clean = images.detach()
    lowest, highest = (clean - eps).clamp(min=0), (clean + eps).clamp(max=1)
    attacked = clean if start is None else start.detach()
    with held(model), torch.enable_grad():
        for _ in range(steps):
            attacked = attacked.detach().requires_grad_()
            loss = F.cross_entropy(model(attacked), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, attacked)
            attacked = (attacked.detach() + step_size * gradient.sign()).clamp(lowest, highest)
    return attacked

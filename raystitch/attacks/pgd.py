"""PGD as an attack of its own: checked at the door, and where wanted from a random start in the ball."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from raystitch.attacks.ask import Model
from raystitch.attacks.ball import check_inputs, random_start
from raystitch.pgd import pgd as descend


def pgd(
    model: Model,
    x: Tensor,
    labels: Tensor,
    *,
    eps: float,
    steps: int,
    step_size: float,
    seeds: Sequence[int] | None = None,
) -> Tensor:
    """The last iterate of projected gradient descent on the cross-entropy (:func:`raystitch.pgd.pgd`).

    The method's adversarial training uses ε 8/255, 10 steps of 2/255, from the clean image (METHOD §8).

    Args:
        model: images in [0, 1] → logits, on the device of ``x``.
        x: float (N, 3, H, W) in [0, 1]; one batch.
        labels: int64 (N,).
        eps: radius, in pixel units of [0, 1].
        steps: gradient steps, ≥ 0.
        step_size: in pixel units.
        seeds: one per image for a start uniform in the ball; ``None`` starts at the clean image.

    Returns:
        Images like ``x``, within ε of it and in [0, 1].

    Raises:
        ValueError: see :func:`raystitch.attacks.ball.check_inputs`.
        FloatingPointError: the logits are not finite.
    """
    check_inputs(x, labels, eps)
    start = None if seeds is None else random_start(x.detach(), eps, seeds)
    found = descend(model, x, labels, eps=eps, steps=steps, step_size=step_size, start=start)
    if not torch.isfinite(found).all():
        raise FloatingPointError("the logits of the attacked model are not finite")
    return found

"""Projected gradient descent on the cross-entropy in an L∞ ball (Madry et al. 2018), as in adversarial training."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from raystitch.attacks.ball import check_inputs, project, random_start
from raystitch.attacks.held import Model, held, loss_and_gradient
from raystitch.attacks.losses import cross_entropy


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
    """The last iterate of x' ← clip(x' + step·sign ∇CE) in the ball and the box.

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
    adversarial = x.detach() if seeds is None else random_start(x.detach(), eps, seeds)
    with held(model):
        for _ in range(steps):
            _, gradient, _ = loss_and_gradient(model, cross_entropy, adversarial, labels)
            adversarial = project(adversarial + step_size * gradient.sign(), x.detach(), eps)
    return adversarial

"""Auto-PGD in an L∞ ball (Croce & Hein 2020, algorithm 1): momentum, and a step size that halves where progress stalls.

The constants are the paper's. Where checkpoints lie follows the authors' released code, with which published 20-step
results were made; for 100 steps the two are the same (see :func:`checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raystitch.attacks.ask import Model, loss_and_gradient
from raystitch.attacks.ball import check_inputs, project, random_start
from raystitch.attacks.losses import LOSSES
from raystitch.errors import InputError, did_you_mean
from raystitch.nets import held

MOMENTUM = 0.75
"""α of the paper: the share of the plain gradient step in a step."""
PROGRESS = 0.75
"""ρ of the paper: halve the step where at most this share of the steps since the last checkpoint raised the loss."""


def apgd(
    model: Model, x: Tensor, labels: Tensor, *, eps: float, steps: int, seeds: Sequence[int], loss: str = "ce"
) -> Tensor:
    """The best iterate of each image: a misclassified one where there is any, of those the one with the largest loss.

    Args:
        model: images in [0, 1] → logits, on the device of ``x``.
        x: float (N, 3, H, W) in [0, 1]; one batch.
        labels: int64 (N,).
        eps: radius, in pixel units of [0, 1].
        steps: gradient steps, ≥ 1; ``steps`` + 1 forward and backward passes.
        seeds: one per image, decides where its search starts.
        loss: ``ce`` or ``dlr``.

    Returns:
        Images like ``x``, within ε of it and in [0, 1].

    Raises:
        InputError: unknown loss, or ``dlr`` for a net with fewer than three classes.
        ValueError: see :func:`raystitch.attacks.ball.check_inputs`.
        FloatingPointError: the logits are not finite.
    """
    if loss not in LOSSES:
        raise InputError("attack", loss, f"unknown loss{did_you_mean(loss, LOSSES)}")
    check_inputs(x, labels, eps)
    x = x.detach()
    lengths = checkpoints(steps)
    with held(model):
        start = random_start(x, eps, seeds)
        search = _begin(start, eps, *loss_and_gradient(model, LOSSES[loss], start, labels))
        for step in range(1, steps + 1):
            _move(search, x, eps, MOMENTUM if step > 1 else 1.0)
            _record(search, *loss_and_gradient(model, LOSSES[loss], search.x, labels))
            if step in lengths:
                _adapt(search, lengths[step])
    return torch.where(_per_image(torch.isfinite(search.adversarial_loss), x), search.adversarial, search.best)


def checkpoints(steps: int) -> dict[int, int]:
    """Steps after which the step size may be halved, each with the number of steps since the one before.

    The first interval is 22 % of the steps; each next one is 3 % shorter, down to 6 %; all rounded down, at least 1 (for
    100 steps: 22, 41, 57, 70, 80, 87, 93, 99, the paper's).
    """
    length, shortest, shrink = (max(percent * steps // 100, 1) for percent in (22, 6, 3))
    found, at = {}, length
    while at <= steps:
        found[at] = length
        length = max(length - shrink, shortest)
        at += length
    return found


@dataclass
class _Search:
    """The state of every image's search; tensors are (N, ...) like the images, or (N,)."""

    x: Tensor
    previous: Tensor
    gradient: Tensor
    loss: Tensor
    step: Tensor
    best: Tensor
    best_gradient: Tensor
    best_loss: Tensor
    adversarial: Tensor
    adversarial_loss: Tensor
    rises: Tensor
    checked_loss: Tensor
    halved: Tensor


def _begin(start: Tensor, eps: float, loss: Tensor, gradient: Tensor, wrong: Tensor) -> _Search:
    return _Search(
        x=start,
        previous=start,
        gradient=gradient,
        loss=loss,
        step=torch.full_like(loss, 2 * eps),
        best=start,
        best_gradient=gradient,
        best_loss=loss,
        adversarial=start,
        adversarial_loss=torch.where(wrong, loss, -torch.inf),
        rises=torch.zeros_like(loss),
        checked_loss=loss,
        halved=torch.ones_like(wrong),  # so the first checkpoint asks for progress only
    )


def _move(search: _Search, x: Tensor, eps: float, momentum: float) -> None:
    plain = project(search.x + _per_image(search.step, x) * search.gradient.sign(), x, eps)
    moved = search.x + momentum * (plain - search.x) + (1 - momentum) * (search.x - search.previous)
    search.previous, search.x = search.x, project(moved, x, eps)


def _record(search: _Search, loss: Tensor, gradient: Tensor, wrong: Tensor) -> None:
    search.rises = search.rises + (loss > search.loss)
    search.loss, search.gradient = loss, gradient
    better = loss > search.best_loss
    search.best = torch.where(_per_image(better, search.x), search.x, search.best)
    search.best_gradient = torch.where(_per_image(better, search.x), gradient, search.best_gradient)
    search.best_loss = torch.where(better, loss, search.best_loss)
    fooled = wrong & (loss > search.adversarial_loss)
    search.adversarial = torch.where(_per_image(fooled, search.x), search.x, search.adversarial)
    search.adversarial_loss = torch.where(fooled, loss, search.adversarial_loss)


def _adapt(search: _Search, length: int) -> None:
    """Halve the step, and go back to the best iterate, where the loss rarely rose, or is stuck at an unhalved step."""
    stuck = ~search.halved & (search.checked_loss >= search.best_loss)
    halve = (search.rises <= PROGRESS * length) | stuck
    search.step = torch.where(halve, search.step / 2, search.step)
    search.x = torch.where(_per_image(halve, search.x), search.best, search.x)
    search.gradient = torch.where(_per_image(halve, search.x), search.best_gradient, search.gradient)
    search.halved, search.checked_loss, search.rises = halve, search.best_loss, torch.zeros_like(search.rises)


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.view(-1, *[1] * (images.ndim - 1))

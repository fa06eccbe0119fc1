"""The optimisers of an inversion, chosen by name in :data:`OPTIMISERS`.

Each treats every image on its own: the objective is a sum over images, the state has one row per image, and so an image
moves the same way whatever shares its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from raystitch.config import ChannelSteps, IriConfig

State = tuple[Tensor, ...]

BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8
SMALLEST_RESIDUAL = 1e-12  # keeps log r finite; far below what float32 can resolve


@dataclass(frozen=True)
class Optimiser:
    """One way to lower the residual.

    Attributes:
        objective: residuals (N,) → what each image minimises, (N,).
        begin: images (N, 3, H, W) → the state before the first step, tensors with N rows.
        update: (images, gradient, state, step from 0, config) → next images, inside [0, 1], and next state. May
            overwrite the state, not images or gradient.
    """

    objective: Callable[[Tensor], Tensor]
    begin: Callable[[Tensor], State]
    update: Callable[[Tensor, Tensor, State, int, IriConfig], tuple[Tensor, State]]


def _sign_step(x: Tensor, grad: Tensor, state: State, step: int, config: IriConfig) -> tuple[Tensor, State]:
    """x ← clip(x − α·sign(∇r), 0, 1), α one for all channels or one each: the published optimiser (METHOD §2)."""
    return _subtract(x, grad.sign(), config.step_size).clamp_(0, 1), state


def _subtract(x: Tensor, move: Tensor, alpha: float | ChannelSteps) -> Tensor:
    if not isinstance(alpha, tuple):
        return torch.sub(x, move, alpha=alpha)
    channels = zip(x.unbind(1), move.unbind(1), alpha, strict=True)  # numbers, since a tensor would wait for its copy
    return torch.stack([torch.sub(pixels, signs, alpha=step) for pixels, signs, step in channels], dim=1)


def _adam_step(x: Tensor, grad: Tensor, state: State, step: int, config: IriConfig) -> tuple[Tensor, State]:
    """Adam (Kingma & Ba 2015, algorithm 1) with β = (0.9, 0.99), a cosine step from ``lr`` to 0, and the box [0, 1]."""
    mean, square = state
    mean.lerp_(grad, 1 - BETA1)
    square.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    first = cast(float, config.step_size)  # a config with steps per channel has another optimiser
    lr = first * 0.5 * (1 + math.cos(math.pi * step / config.steps))
    spread = (square / (1 - BETA2 ** (step + 1))).sqrt_().add_(EPSILON)
    return torch.addcdiv(x, mean, spread, value=-lr / (1 - BETA1 ** (step + 1))).clamp_(0, 1), state


OPTIMISERS: Mapping[str, Optimiser] = {
    "sign_pgd": Optimiser(objective=lambda r: r, begin=lambda x: (), update=_sign_step),
    "adam": Optimiser(
        objective=lambda r: r.clamp_min(SMALLEST_RESIDUAL).log(),
        begin=lambda x: (torch.zeros_like(x), torch.zeros_like(x)),
        update=_adam_step,
    ),
}

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
from raystitch.iris.cosine import from_cosine, to_cosine

State = tuple[Tensor, ...]
Step = int | Tensor
"""The steps taken so far: one number for all images, or one for each, int64 (B, 1, 1, 1)."""

BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8
LONGEST_BETA1 = 0.985
SMALLEST_RESIDUAL = 1e-12  # keeps log r finite; far below what float32 can resolve


@dataclass(frozen=True)
class Optimiser:
    """One way to lower the residual.

    Attributes:
        slope: residuals r (N,) → (dL/dr)/r (N,) of what each image minimises, L(r).
        begin: images (N, 3, H, W) → the state before the first step, tensors with N rows.
        update: (images, gradient, state, step from 0, config) → next images, inside [0, 1], and next state. It
            overwrites nothing.
        softens: whether the steps of ReLUs are soft backwards, from full strength to none over the run.
    """

    slope: Callable[[Tensor], Tensor]
    begin: Callable[[Tensor], State]
    update: Callable[[Tensor, Tensor, State, Step, IriConfig], tuple[Tensor, State]]
    softens: bool = False


def _sign_step(x: Tensor, grad: Tensor, state: State, step: Step, config: IriConfig) -> tuple[Tensor, State]:
    """x ← clip(x − α·sign(∇r), 0, 1), α one for all channels or one each: the published optimiser (METHOD §2)."""
    return _subtract(x, grad.sign(), config.step_size).clamp_(0, 1), state


def _subtract(x: Tensor, move: Tensor, alpha: float | ChannelSteps) -> Tensor:
    if not isinstance(alpha, tuple):
        return torch.sub(x, move, alpha=alpha)
    channels = zip(x.unbind(1), move.unbind(1), alpha, strict=True)  # numbers, since a tensor would wait for its copy
    return torch.stack([torch.sub(pixels, signs, alpha=step) for pixels, signs, step in channels], dim=1)


def _adam_step(x: Tensor, grad: Tensor, state: State, step: Step, config: IriConfig) -> tuple[Tensor, State]:
    """Adam (Kingma & Ba 2015, algorithm 1) with β = (0.9, 0.99), a cosine step from ``lr`` to 0, and the box [0, 1]."""
    state, spread, rate = _moments(grad, state, step, config, (BETA1, BETA2))
    return _move(x, state[0], spread, rate), state


def _shallow_step(x: Tensor, grad: Tensor, state: State, step: Step, config: IriConfig) -> tuple[Tensor, State]:
    """Adam whose memory is a share of the run."""
    state, spread, rate = _moments(grad, state, step, config, _memory(config.steps))
    return _move(x, state[0], spread, rate), state


def _spectral_step(x: Tensor, grad: Tensor, state: State, step: Step, config: IriConfig) -> tuple[Tensor, State]:
    """The same in the basis of :mod:`raystitch.iris.cosine`, for the pixels that the box leaves free.

    A step that is scaled in another basis and then clipped need not go downhill; it does where pixels that are held at 0 or 1
    take no part in it (Bertsekas 1982, two-metric projection).
    """
    free = torch.where(grad > 0, torch.sign(x), torch.sign(1 - x))  # 1 or 0; compiled masks of bool are slow
    state, spread, rate = _moments(to_cosine(grad * free), state, step, config, _memory(config.steps))
    return from_cosine((state[0] / spread).mul_(rate)).mul_(free).add_(x).clamp_(0, 1), state


def _move(x: Tensor, mean: Tensor, spread: Tensor, rate: float | Tensor) -> Tensor:
    if isinstance(rate, Tensor):
        return (mean / spread).mul_(rate).add_(x).clamp_(0, 1)
    return torch.addcdiv(x, mean, spread, value=rate).clamp_(0, 1)


def _memory(steps: int) -> tuple[float, float]:
    """β of a run: the first moment remembers an eighth of it, up to 67 steps; the second a third, and at least 100."""
    return min(LONGEST_BETA1, max(0.0, 1 - 8 / steps)), max(BETA2, 1 - 3 / steps)


def _moments(
    grad: Tensor, state: State, step: Step, config: IriConfig, beta: tuple[float, float]
) -> tuple[State, Tensor, float | Tensor]:
    """Adam's next moments (mean, square), spread and rate: a step adds rate · mean / spread."""
    (mean, square), (beta1, beta2) = state, beta
    mean = mean.lerp(grad, 1 - beta1)
    square = (square * beta2).addcmul_(grad, grad, value=1 - beta2)
    first = cast(float, config.step_size)  # a config with steps per channel has another optimiser
    angle = _up_to(step, config.steps - 1) * (math.pi / config.steps)  # past its last step an image does not move
    cosine = angle.cos() if isinstance(angle, Tensor) else math.cos(angle)
    unbias = (1 - beta2 ** (step + 1)) ** 0.5
    rate = -first * 0.5 * (1 + cosine) * unbias / (1 - beta1 ** (step + 1))
    return (mean, square), square.sqrt().add_(EPSILON * unbias), rate


def _up_to(step: Step, last: int) -> Step:
    return step.clamp(max=last) if isinstance(step, Tensor) else min(step, last)


def _of_log(r: Tensor) -> Tensor:
    return r.clamp_min(SMALLEST_RESIDUAL).square().reciprocal()


def _zeros(x: Tensor) -> State:
    return torch.zeros_like(x), torch.zeros_like(x)


OPTIMISERS: Mapping[str, Optimiser] = {
    "sign_pgd": Optimiser(
        slope=lambda r: r.clamp_min(SMALLEST_RESIDUAL).reciprocal(), begin=lambda x: (), update=_sign_step
    ),
    "adam": Optimiser(slope=_of_log, begin=_zeros, update=_adam_step),
    "spectral_adam": Optimiser(slope=_of_log, begin=_zeros, update=_spectral_step, softens=True),
}
SHALLOW = Optimiser(slope=_of_log, begin=_zeros, update=_shallow_step, softens=True)
"""What ``spectral_adam`` is where the transforms would cost more than they save: in pixels."""

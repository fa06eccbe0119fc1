"""The optimisers of an inversion, chosen by name in :data:`OPTIMISERS`.

Each treats every image on its own: the objective is a sum over images, the state has one row per image, and so an image
moves the same way whatever shares its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
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
    """Adam (Kingma & Ba 2015, algorithm 1) with a cosine step from ``lr`` to 0, and the box [0, 1]."""
    state, spread, rate = _moments(grad, state, step, config)
    return _move(x, state[0], spread, rate), state


def _spectral_step(x: Tensor, grad: Tensor, state: State, step: Step, config: IriConfig) -> tuple[Tensor, State]:
    """The same in the basis of :mod:`raystitch.iris.cosine`, for the pixels that the box leaves free.

    A step that is scaled in another basis and then clipped need not go downhill; it does where pixels that are held at 0 or 1
    take no part in it (Bertsekas 1982, two-metric projection).
    """
    free = torch.where(grad > 0, torch.sign(x), torch.sign(1 - x))  # 1 or 0; compiled masks of bool are slow
    state, spread, rate = _moments(to_cosine(grad * free), state, step, config)
    return from_cosine((state[0] / spread).mul_(rate)).mul_(free).add_(x).clamp_(0, 1), state


def _move(x: Tensor, mean: Tensor, spread: Tensor, rate: float | Tensor) -> Tensor:
    if isinstance(rate, Tensor):
        return (mean / spread).mul_(rate).add_(x).clamp_(0, 1)
    return torch.addcdiv(x, mean, spread, value=rate).clamp_(0, 1)


def _moments(grad: Tensor, state: State, step: Step, config: IriConfig) -> tuple[State, Tensor, float | Tensor]:
    """Adam's next moments (mean, square), spread and rate: a step adds rate · mean / spread."""
    (mean, square), (beta1, beta2) = state, _memory(config)
    mean = mean.lerp(grad, 1 - beta1)
    square = (square * beta2).addcmul_(grad, grad, value=1 - beta2)
    at = step.clamp(max=config.steps - 1) if isinstance(step, Tensor) else min(step, config.steps - 1)
    if isinstance(at, Tensor):  # looked up for each image: powers for each pixel would cost more than all the rest
        rate, epsilon = _schedule_on(config, grad.device)[:, at]
        return (mean, square), square.sqrt().add_(epsilon), rate
    number, small = _schedule(config)[:, at].tolist()
    return (mean, square), square.sqrt().add_(small), number


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _memory(config: IriConfig) -> tuple[float, float]:
    """β: of ``adam`` (0.9, 0.99). Else the first moment remembers an eighth of the run, up to 67 steps; the second a third,
    and at least 100."""
    if config.optimiser == "adam":
        return BETA1, BETA2
    return min(LONGEST_BETA1, max(0.0, 1 - 8 / config.steps)), max(BETA2, 1 - 3 / config.steps)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _schedule_on(config: IriConfig, device: torch.device) -> Tensor:
    return _copy_of_schedule(config, device)


@lru_cache(16)
def _copy_of_schedule(config: IriConfig, device: torch.device) -> Tensor:
    return _schedule(config).to(device, torch.float32)


@lru_cache(16)
def _schedule(config: IriConfig) -> Tensor:
    """Rate and ε of each step, float64 (2, steps): a cosine from ``lr`` to 0, corrected for moments that begin at 0."""
    first = cast(float, config.step_size)  # a config with steps per channel has another optimiser
    beta1, beta2 = _memory(config)
    step = torch.arange(config.steps, dtype=torch.float64)
    unbias = (1 - beta2 ** (step + 1)).sqrt()
    rate = -first * 0.5 * (1 + torch.cos(step * (math.pi / config.steps))) * unbias / (1 - beta1 ** (step + 1))
    return torch.stack([rate, EPSILON * unbias])


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
SHALLOW = replace(OPTIMISERS["adam"], softens=True)
"""What ``spectral_adam`` is where the transforms would cost more than they save: in pixels."""

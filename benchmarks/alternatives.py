"""Second-order ways to invert, plain: what the product's optimiser was compared with. Each returns the best r of every image.

Cost is counted in pairs of passes, one forward and one backward through the prefix: what a step of a first-order method takes.
All images move on their own; the box [0, 1] is kept by clipping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

Prefix = Callable[[Tensor], Tensor]


@dataclass
class Problem:
    """Half of r², and what it takes to lower it; ``pairs`` counts the passes spent."""

    prefix: Prefix
    target: Tensor
    pairs: float = 0.0

    def residuals(self, x: Tensor) -> Tensor:
        """(z − target) / ‖target‖, flat (B, D)."""
        scale = self.target.flatten(1).norm(dim=1, keepdim=True)
        return torch.div((self.prefix(x) - self.target).flatten(1), scale)

    def value_and_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """r (B,) and the gradient of r²/2 (B, 3, H, W)."""
        self.pairs += 1
        x = x.detach().requires_grad_()
        error = self.residuals(x)
        (slope,) = torch.autograd.grad(error.square().sum() / 2, x)
        return error.detach().norm(dim=1), slope


def lbfgs(problem: Problem, x: Tensor, pairs: int, memory: int = 20) -> Tensor:
    """L-BFGS (Liu & Nocedal 1989) with backtracking, each image at its own pace; pixels held by the box do not take part."""
    r, slope = problem.value_and_slope(x)
    best, past = r, _Memory(x, memory)
    step, size = past.direction(x, slope), torch.ones_like(r)
    while problem.pairs < pairs:
        tried = (x + _wide(size) * step).clamp(0, 1)
        r_tried, slope_tried = problem.value_and_slope(tried)
        best = torch.minimum(best, r_tried)
        taken = r_tried.square() <= r.square() + 2e-4 * _dot(slope, tried - x)
        past.learn(tried - x, slope_tried - slope, taken)
        keep = _wide(taken)
        x, slope, r = torch.where(keep, tried, x), torch.where(keep, slope_tried, slope), torch.where(taken, r_tried, r)
        step, size = torch.where(keep, past.direction(x, slope), step), torch.where(taken, 1.0, 0.4 * size)
    return best


class _Memory:
    """The last ``memory`` moves and changes of slope of each image."""

    def __init__(self, x: Tensor, memory: int) -> None:
        self.moves = x.new_zeros(memory, *x.flatten(1).shape)
        self.changes = torch.zeros_like(self.moves)
        self.weight = x.new_zeros(memory, len(x))
        self.scale, self.next = x.new_zeros(len(x)), x.new_zeros(len(x), dtype=torch.int64)

    def learn(self, move: Tensor, change: Tensor, taken: Tensor) -> None:
        """Remember those of the images ``taken`` whose curvature is positive."""
        s, y = move.flatten(1), change.flatten(1)
        curvature = (s * y).sum(1)
        rows = (taken & (curvature > 1e-10 * (y * y).sum(1))).nonzero()[:, 0]
        slots = self.next[rows]
        self.moves[slots, rows], self.changes[slots, rows] = s[rows], y[rows]
        self.weight[slots, rows] = 1 / curvature[rows]
        self.scale[rows] = curvature[rows] / (y[rows] * y[rows]).sum(1)
        self.next[rows] = (slots + 1) % len(self.moves)

    def direction(self, x: Tensor, slope: Tensor) -> Tensor:
        """The two-loop recursion; a normalised downhill step where nothing is known yet, or where it points uphill."""
        free = ~(((x <= 0) & (slope > 0)) | ((x >= 1) & (slope < 0)))
        downhill, images = (slope * free).flatten(1), torch.arange(len(x), device=x.device)
        slots = [(self.next - 1 - back) % len(self.moves) for back in range(len(self.moves))]
        recalled = [(self.moves[k, images], self.changes[k, images], self.weight[k, images]) for k in slots]
        q, parts = downhill.clone(), []
        for s, y, weight in recalled:
            parts.append(weight * (s * q).sum(1))
            q -= parts[-1][:, None] * y
        first = 2 / downhill.norm(dim=1).clamp_min(1e-12)
        q *= torch.where(self.scale > 0, self.scale, first)[:, None]
        for (s, y, weight), part in zip(reversed(recalled), reversed(parts), strict=True):
            q += (part - weight * (y * q).sum(1))[:, None] * s
        uphill = (q * downhill).sum(1) <= 0
        q = torch.where(uphill[:, None], first[:, None] * downhill, q)
        return torch.where(free, -q.view_as(x), 0.0)


@sdpa_kernel(SDPBackend.MATH)  # the fused attention knows no forward-mode derivative
def gauss_newton(problem: Problem, x: Tensor, pairs: int, inner: int = 10) -> Tensor:
    """Levenberg–Marquardt, each step solved by ``inner`` conjugate-gradient steps on the linearised net."""
    damping = x.new_full((len(x),), 1e-3)
    best: Tensor = problem.residuals(x).detach().norm(dim=1)
    spent = 0.5
    while spent < pairs:
        leaf = x.detach().requires_grad_()
        error = problem.residuals(leaf)
        (slope,) = torch.autograd.grad(error, leaf, error.detach(), retain_graph=True)
        free = ~(((x <= 0) & (slope > 0)) | ((x >= 1) & (slope < 0)))
        step, left = torch.zeros_like(x), -slope * free
        towards, length = left.clone(), _dot(left, left)
        for _ in range(inner):
            (curved,) = torch.autograd.grad(error, leaf, _along(problem, x, towards), retain_graph=True)
            curved = curved * free + _wide(damping) * towards
            rate = length / _dot(towards, curved).clamp_min(1e-30)
            step, left = step + _wide(rate) * towards, left - _wide(rate) * curved
            length, before = _dot(left, left), length
            towards = left + _wide(length / before.clamp_min(1e-30)) * towards
        tried = (x + step).clamp(0, 1)
        r = problem.residuals(tried).detach().norm(dim=1)
        linear = (error.detach() + _along(problem, x, tried - x)).square().sum(1)
        gained = (best.square() - r.square()) / (best.square() - linear).clamp_min(1e-30)
        damping = torch.where(gained > 0.6, damping / 3, torch.where(gained < 0.2, 4 * damping, damping))
        damping = damping.clamp(1e-7, 1e3)
        better = r < best
        x, best = torch.where(_wide(better), tried, x), torch.where(better, r, best)
        spent += inner + 2  # a product with the linearised net forward and one backward make a pair
    return best


def _along(problem: Problem, x: Tensor, direction: Tensor) -> Tensor:
    """The linearised net's answer to a change of the images, (B, D)."""
    answer: Tensor = jvp(problem.residuals, (x.detach(),), (direction,))[1]
    return answer.detach()


def _wide(per_image: Tensor) -> Tensor:
    return per_image[:, None, None, None]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.mul(a, b).flatten(1).sum(1)

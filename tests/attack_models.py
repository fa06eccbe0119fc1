"""Models for the tests of attacks: linear ones, whose optimal perturbation is known, and a small trained one."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

SHAPE = (3, 4, 4)


class Linear(nn.Module):
    """Logits w·x + b of flattened images, float64."""

    def __init__(self, classes: int, seed: int = 0) -> None:
        super().__init__()
        self.layer = nn.Linear(48, classes, dtype=torch.float64)
        weight = torch.randn(classes, 48, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.layer.weight.data.copy_(weight / 4)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x.flatten(1))
        return logits

    def worst(self, x: Tensor, labels: Tensor, eps: float) -> Tensor:
        """Smallest reachable margin z_y − z_c over classes c ≠ y and the ball, the box [0, 1] included: float64 (N,).

        Each pixel goes as far against w_y − w_c as the ball and the box allow.
        """
        flat, weight = x.flatten(1), self.layer.weight.detach()
        low, high = (flat - eps).clamp_min(0), (flat + eps).clamp_max(1)
        margins = []
        for c in range(len(weight)):
            w = weight[labels] - weight[c]
            reached = (w * torch.where(w > 0, low, high)).sum(1)
            margins.append(torch.where(labels == c, torch.inf, reached))
        return torch.stack(margins).amin(0)


def images(count: int, seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Float64 images (count, 3, 4, 4) in [low, high]."""
    noise = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return low + (high - low) * noise


@cache
def trained() -> tuple[nn.Module, Tensor, Tensor]:
    """A small convolutional net with BatchNorm trained on four noisy patterns, in train mode; test images, labels."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(4, 3, 8, 8, generator=generator)
    labels = torch.arange(320) % 4
    x = (0.25 + 0.5 * patterns[labels] + 0.25 * torch.randn(320, 3, 8, 8, generator=generator)).clamp(0, 1)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(),
            nn.Flatten(), nn.Linear(72, 4),
        )  # fmt: skip
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x[:256]), labels[:256]).backward()
        optimiser.step()
    optimiser.zero_grad()
    return net, x[256:], labels[256:]

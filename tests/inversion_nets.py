"""Small random nets, images and seeds for the tests of inversion."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, fx, nn

from raystitch.iris import sample_seed
from raystitch.iris.compiling import can_compile
from raystitch.nets import CutNet, Point

needs_compiler = pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="torch.compile needs a C++ compiler")


def random_images(count: int, size: int = 8, seed: int = 1) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def random_cut(*segments: nn.Module, seed: int = 3) -> CutNet:
    """Traced segments with random weights, frozen; the last one is the head."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for segment in segments:
            for layer in segment.modules():
                if isinstance(layer, (nn.Conv2d, nn.Linear)):
                    layer.reset_parameters()
    points = [Point(k + 1, f"block{k}", "conv", (1, 1, 1)) for k in range(len(segments) - 1)]
    return CutNet(points, [fx.symbolic_trace(part) for part in segments]).eval().requires_grad_(False)


def deep_cut() -> CutNet:
    """Deep enough, against 8-pixel images, for the cosine basis to be worth its transforms."""
    first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    return random_cut(first, nn.Flatten())


def sample_seeds(count: int) -> Sequence[int]:
    return [sample_seed(0, k) for k in range(count)]

"""Small nets written as chains of segments, for tests of stitches: what they compute can be followed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ChainPoint:
    index: int
    module: str
    kind: str
    shape: tuple[int, ...]


class Chain(nn.Module):
    """A cut net by hand: ``segments[k]`` leads from point k (0 is the image) to point k+1, the last to the logits."""

    def __init__(self, segments: Sequence[nn.Module], size: int = 8) -> None:
        super().__init__()
        self.segments = nn.ModuleList(segments)
        z = torch.zeros(1, 3, size, size)
        points = []
        self.eval()
        with torch.no_grad():
            for index, segment in enumerate(self.segments[:-1], start=1):
                z = segment(z)
                kind = {4: "conv", 3: "token", 2: "vector"}[z.ndim]
                points.append(ChainPoint(index, f"block{index}", kind, tuple(z.shape[1:])))
        self.points = tuple(points)
        self.eval()

    @property
    def n(self) -> int:
        return len(self.points)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, 0, self.n + 1)

    def run(self, z: Tensor, start: int, stop: int) -> Tensor:
        for segment in self.segments[start:stop]:
            z = segment(z)
        return z

    def trace(self, z: Tensor, start: int, stop: int) -> list[Tensor]:
        traced = []
        for segment in self.segments[start:stop]:
            z = segment(z)
            traced.append(z)
        return traced


def conv_net(seed: int, width: int = 6, classes: int = 4, strides: Sequence[int] = (1, 2, 1), size: int = 8) -> Chain:
    """Conv–BN–ReLU blocks with warmed-up BatchNorm statistics, then pooling and a linear head."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    channels = [3] + [width] * len(strides)
    blocks: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        for a, b, stride in zip(channels[:-1], channels[1:], strides, strict=True)
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
    chain = Chain([*blocks, head], size)
    with torch.no_grad():
        for _ in range(20):
            chain.train()(torch.rand(64, 3, size, size))
    torch.random.set_rng_state(state)
    return chain.eval()

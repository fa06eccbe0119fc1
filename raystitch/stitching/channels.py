"""What a stitch does to the features of one position: its capacity, from nothing to a small network.

Every kind can hold any affine map ``z ↦ A z + b`` whose matrix has at most :attr:`ChannelMap.most_rank`; so each can start
from the same least-squares solution, cut to that rank.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raystitch.config import StitchConfig


class ChannelMap(nn.Module, ABC):
    """A map of features (…, in) → (…, out), or of conv channels (B, in, H, W) → (B, out, H, W).

    Attributes:
        in_features: width of the front's representation.
        out_features: width of the end's.
        most_rank: the largest rank of a matrix A that the map can hold.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.most_rank = min(in_features, out_features)

    @property
    @abstractmethod
    def matrix(self) -> Tensor | None:
        """A (out, in), detached; ``None`` if the map is not affine."""

    @abstractmethod
    def forward(self, z: Tensor, conv: bool) -> Tensor:
        """Map the last dimension, or with ``conv`` the first after the batch."""

    @abstractmethod
    def set_affine(self, matrix: Tensor, bias: Tensor) -> None:
        """Become ``z ↦ matrix z + bias``; (out, in) and (out). The matrix has at most ``most_rank``."""

    def randomise(self, generator: torch.Generator) -> None:
        """Uniform in ±1/√fan-in, weights and biases, layer by layer, as :class:`torch.nn.Linear`."""
        for parameter, fan_in in self._fan_in():
            values = torch.rand(parameter.shape, generator=generator) * 2 - 1
            parameter.data.copy_(values * (1 / math.sqrt(fan_in)))

    def _fan_in(self) -> list[tuple[nn.Parameter, int]]:
        return []


class Same(ChannelMap):
    """The identity, without parameters. Whatever it is told to become, it stays what it is."""

    @property
    def matrix(self) -> Tensor:
        """The identity matrix."""
        return torch.eye(self.in_features)

    def forward(self, z: Tensor, conv: bool) -> Tensor:
        """The features themselves."""
        return z

    def set_affine(self, matrix: Tensor, bias: Tensor) -> None:
        """Nothing to set."""


class Affine(ChannelMap):
    """``z ↦ A z + b``: the stitch of the method."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def matrix(self) -> Tensor:
        """A, sharing memory with the parameter."""
        return self.weight.detach()

    def forward(self, z: Tensor, conv: bool) -> Tensor:
        """A z + b."""
        return _linear(z, self.weight, self.bias, conv)

    def set_affine(self, matrix: Tensor, bias: Tensor) -> None:
        """Copy both."""
        self.weight.data.copy_(matrix)
        self.bias.data.copy_(bias)

    def _fan_in(self) -> list[tuple[nn.Parameter, int]]:
        return [(self.weight, self.in_features), (self.bias, self.in_features)]


class LowRank(ChannelMap):
    """``z ↦ U V z + b`` with U (out, rank) and V (rank, in)."""

    def __init__(self, in_features: int, out_features: int, rank: int) -> None:
        super().__init__(in_features, out_features)
        self.most_rank = rank
        self.down = nn.Parameter(torch.zeros(rank, in_features))
        self.up = nn.Parameter(torch.zeros(out_features, rank))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def matrix(self) -> Tensor:
        """U V."""
        return self.up.detach() @ self.down.detach()

    def forward(self, z: Tensor, conv: bool) -> Tensor:
        """U (V z) + b."""
        return _linear(_linear(z, self.down, None, conv), self.up, self.bias, conv)

    def set_affine(self, matrix: Tensor, bias: Tensor) -> None:
        """Factors of equal scale, from the singular value decomposition."""
        up, down = balanced_factors(matrix, self.most_rank)
        self.up.data.copy_(up)
        self.down.data.copy_(down)
        self.bias.data.copy_(bias)

    def _fan_in(self) -> list[tuple[nn.Parameter, int]]:
        rank = self.most_rank
        return [(self.down, self.in_features), (self.up, rank), (self.bias, rank)]


class Mlp(ChannelMap):
    """``z ↦ W₂ relu(W₁ z + b₁) + b₂`` with ``width`` hidden units.

    v = relu(v) − relu(−v): two hidden units carry one linear direction, so it can start as an affine map of rank ⌊width / 2⌋.
    """

    def __init__(self, in_features: int, out_features: int, width: int) -> None:
        super().__init__(in_features, out_features)
        self.most_rank = min(width // 2, self.most_rank)
        self.first_weight, self.first_bias = (
            nn.Parameter(torch.zeros(width, in_features)),
            nn.Parameter(torch.zeros(width)),
        )
        self.second_weight = nn.Parameter(torch.zeros(out_features, width))
        self.second_bias = nn.Parameter(torch.zeros(out_features))

    @property
    def matrix(self) -> None:
        """It has none."""
        return None

    def forward(self, z: Tensor, conv: bool) -> Tensor:
        """W₂ relu(W₁ z + b₁) + b₂."""
        hidden = _linear(z, self.first_weight, self.first_bias, conv).relu()
        return _linear(hidden, self.second_weight, self.second_bias, conv)

    def set_affine(self, matrix: Tensor, bias: Tensor) -> None:
        """Pairs of opposite hidden units; the units left over keep their input and have no output yet."""
        up, down = balanced_factors(matrix, self.most_rank)
        used = 2 * self.most_rank
        self.first_weight.data[:used] = torch.cat([down, -down]).to(self.first_weight)
        self.first_bias.data[:used] = 0
        self.second_weight.data.zero_()
        self.second_weight.data[:, :used] = torch.cat([up, -up], dim=1).to(self.second_weight)
        self.second_bias.data.copy_(bias)

    def _fan_in(self) -> list[tuple[nn.Parameter, int]]:
        first, second = self.in_features, len(self.first_bias)
        parts = (self.first_weight, first), (self.first_bias, first), (self.second_weight, second)
        return [*parts, (self.second_bias, second)]


def make_channels(in_features: int, out_features: int, config: StitchConfig) -> ChannelMap:
    """The map of a kind, all zeros."""
    if config.kind == "low_rank" and config.rank is not None:
        return LowRank(in_features, out_features, config.rank)
    if config.kind == "mlp" and config.width is not None:
        return Mlp(in_features, out_features, config.width)
    return (Same if config.kind == "identity" else Affine)(in_features, out_features)


def balanced_factors(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """U (out, rank) and V (rank, in) in float64 with U V the matrix, and equal singular values."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    root = values[:rank].sqrt()
    return left[:, :rank] * root, root[:, None] * right[:rank]


def _linear(z: Tensor, weight: Tensor, bias: Tensor | None, conv: bool) -> Tensor:
    return F.conv2d(z, weight[:, :, None, None], bias) if conv else F.linear(z, weight, bias)

"""Images in an orthonormal cosine basis: pixels ↔ frequencies of three opponent colours.

A net's response depends strongly on frequency and colour, and hardly on place; so in this basis, unlike in pixels, the scale of
each coordinate of a gradient says how steep the loss is along it, which is what Adam divides by.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

_OPPONENT = ((1.0, 1.0, 1.0), (1.0, 0.0, -1.0), (1.0, -2.0, 1.0))
"""Grey, red against blue, green against magenta; orthogonal, each row yet to be scaled to length 1."""


def to_cosine(x: Tensor) -> Tensor:
    """Pixels (B, 3, H, W) → coefficients (B, 3, H, W): DCT-II (Ahmed et al. 1974) of each opponent colour, lengths kept."""
    rows, columns, colours = _matrices(*x.shape[-2:], x.device)
    return _mix(colours, rows @ x @ columns.T)


def from_cosine(coefficients: Tensor) -> Tensor:
    """The inverse of :func:`to_cosine`."""
    rows, columns, colours = _matrices(*coefficients.shape[-2:], coefficients.device)
    return torch.matmul(torch.matmul(rows.T, _mix(colours.T, coefficients)), columns)


def flops(shape: tuple[int, ...]) -> int:
    """Floating-point operations of one transform of one image (3, H, W), a multiply and an add being two."""
    channels, height, width = shape
    return 2 * channels * height * width * (height + width + channels)


def _mix(colours: Tensor, x: Tensor) -> Tensor:
    return torch.matmul(colours, x.flatten(2)).reshape(x.shape)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _matrices(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    return _dct(height, device), _dct(width, device), _opponent(device)


@lru_cache(16)
def _dct(size: int, device: torch.device) -> Tensor:
    """Orthonormal DCT-II matrix (size, size): row k samples cos(π (2n + 1) k / 2N) at the pixels n."""
    n = torch.arange(size, dtype=torch.float64)
    matrix: Tensor = torch.cos(torch.pi * (2 * n[None, :] + 1) * n[:, None] / (2 * size)) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    return matrix.to(device, torch.float32)


@lru_cache(16)
def _opponent(device: torch.device) -> Tensor:
    rows = torch.tensor(_OPPONENT, dtype=torch.float64)
    return nn.functional.normalize(rows).to(device, torch.float32)

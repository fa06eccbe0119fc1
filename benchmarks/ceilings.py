"""The most that this machine does, to measure a loop against: rates of matrix products and of a large copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from benchmarks.turns import Work, in_turns

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
COPY = "copy"


@dataclass(frozen=True)
class Ceilings:
    """Best of the rounds.

    Attributes:
        products: dtype → side of the square matrices → FLOP/s, a multiply and an add being two.
        copy: bytes per second of a copy, each byte read and each byte written counted.
    """

    products: Mapping[str, Mapping[int, float]]
    copy: float

    def product(self, dtype: str) -> float:
        """Best FLOP/s of any size."""
        return max(self.products[dtype].values())


def measure(sides: tuple[int, ...], copied: int, rounds: int, device: str) -> Ceilings:
    """Measure with the threads that torch has.

    Args:
        sides: of the square matrices.
        copied: bytes of what is copied, well above any cache.
        rounds: how often each is timed, in turns.
        device: torch device.
    """
    works: dict[str, Work] = {COPY: _copy(copied, device)}
    for dtype in DTYPES:
        works |= {f"{dtype} {side}": _product(side, DTYPES[dtype], device) for side in sides}
    with _tf32_as_in_convolutions():
        best = {name: min(samples) for name, samples in in_turns(works, rounds, device).items()}
    products = {dtype: {side: 2 * side**3 / best[f"{dtype} {side}"] for side in sides} for dtype in DTYPES}
    return Ceilings(products, 2 * copied / best[COPY])


def _product(side: int, dtype: torch.dtype, device: str) -> Work:
    a, b = torch.randn((2, side, side), device=device).mul_(1 / math.sqrt(side)).to(dtype)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _copy(count: int, device: str) -> Work:
    source, target = torch.ones((2, count), dtype=torch.uint8, device=device)
    return lambda: target.copy_(source)


@contextmanager
def _tf32_as_in_convolutions() -> Iterator[None]:
    """On a GPU cuDNN may round float32 to TF32, torch.mm by default may not: give both the same."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before

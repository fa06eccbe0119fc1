"""Linear CKA (Kornblith et al. 2019) of two representations of the same samples, over a set that comes in batches.

The unbiased HSIC estimator (Song et al. 2012) is the inner product of U-centred Gram matrices, ⟨K̃, L̃⟩ / (n(n−3)). So
by Cauchy–Schwarz CKA lies in [−1, 1] up to rounding, also when HSIC is summed over blocks of samples (Nguyen et al.
2021). Samples are paired by construction: both representations of a batch arrive in one call, and the blocks follow
from the order of the samples, not from the caller's batches. Everything is computed in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 256
"""Samples per block; the last block takes the remainder, so it has up to 2·256 − 1."""

LEAST_SAMPLES = 16
"""Fewest samples from which CKA is given. The U-centred Gram matrices of n samples lie in a space of n(n−3)/2 dimensions, so
that of independent representations CKA, a cosine, scatters around 0 with a standard deviation of √(2/(n(n−3))): 0.71 for n = 4,
0.17 for 10, and less than 0.1 from 16 on."""
_LEAST_BLOCK = 4  # what the unbiased estimator needs: n − 3 is a divisor
_ROUNDING = 1e-12  # what is smaller than this, relative to what it was computed from, is rounding


class LinearCKA:
    """CKA of everything given to :meth:`update`: Σ HSIC(K, L) / √(Σ HSIC(K, K) · Σ HSIC(L, L)) over blocks.

    Each block's HSIC is weighted by its number of samples (with equal blocks: the mean of Nguyen et al. 2021, eq. 2). The
    last ``block`` … 2·``block`` − 1 samples are one block, so no block is tiny and no sample is dropped; a set of fewer
    than 2·``block`` samples gets the exact full-set value. At most 2·``block`` samples and one batch are kept.

    Args:
        block: samples per block, at least 4.
    """

    def __init__(self, block: int = BLOCK) -> None:
        if block < _LEAST_BLOCK:
            raise ValueError(f"the unbiased HSIC needs at least {_LEAST_BLOCK} samples per block, not {block}")
        self._block, self._count = block, 0
        self._waiting: tuple[Tensor, Tensor] | None = None
        self._sums: Tensor | None = None

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor) -> None:
        """Add both representations of a batch: float (B, ...) and (B, ...), conv, token or vector, flattened here.

        Batches may have any size, 1 and 0 included.

        Raises:
            ValueError: the two have different numbers of samples.
        """
        x, y = _flat_pair(x, y)
        self._count += len(x)
        if self._waiting is not None:
            x, y = torch.cat([self._waiting[0], x]), torch.cat([self._waiting[1], y])
        while len(x) >= 2 * self._block:
            self._sums = self._plus(x[: self._block], y[: self._block])
            x, y = x[self._block :], y[self._block :]
        self._waiting = x.clone(), y.clone()

    @torch.no_grad()
    def compute(self) -> float:
        """CKA in [−1, 1] up to rounding; around 0 (either side) for independent representations, 1 for equal ones.

        0 if a representation does not vary over the samples (it then shares nothing); never NaN.

        Raises:
            ValueError: fewer than 16 samples were given: CKA would be chance (:data:`LEAST_SAMPLES`).
            FloatingPointError: a representation is not finite.
        """
        if self._waiting is None or self._count < LEAST_SAMPLES:
            raise ValueError(f"CKA needs at least {LEAST_SAMPLES} samples; {self._count} were given")
        return _ratio(*self._plus(*self._waiting).tolist())

    def _plus(self, x: Tensor, y: Tensor) -> Tensor:
        k_x, k_y = u_centred_gram(x), u_centred_gram(y)
        sums = torch.stack([(k_x * k_y).sum(), k_x.square().sum(), k_y.square().sum()]) / (len(x) - 3)
        return sums if self._sums is None else self._sums + sums


def linear_cka(x: Tensor, y: Tensor, block: int = BLOCK) -> float:
    """:class:`LinearCKA` of whole tensors (N, ...) and (N, ...), N ≥ 16."""
    cka = LinearCKA(block)
    cka.update(x, y)
    return cka.compute()


def u_centred_gram(x: Tensor) -> Tensor:
    """U-centred linear Gram matrix (n, n) of features (n, d), n ≥ 4, float64, zero on the diagonal.

    Off the diagonal: k_ij − r_i/(n−2) − r_j/(n−2) + s/((n−1)(n−2)), r and s the row sums and the sum of the Gram matrix
    without its diagonal (Székely and Rizzo 2014, definition 2). Its rows sum to zero. All zero if the features vary
    by no more than rounding.
    """
    n = len(x)
    raw = x.double()
    centred = raw - raw.mean(0)  # changes nothing in exact arithmetic, and saves digits
    size = centred.square().sum()
    centred = torch.where(size > _ROUNDING**2 * raw.square().sum(), centred, centred * 0)
    k = (centred @ centred.T).fill_diagonal_(0)
    rows = k.sum(1) / (n - 2)
    k = (k - rows[:, None] - rows[None, :] + k.sum() / ((n - 1) * (n - 2))).fill_diagonal_(0)
    return torch.where(torch.linalg.matrix_norm(k) <= _ROUNDING * size, k * 0, k)


def unbiased_hsic(k_x: Tensor, k_y: Tensor) -> float:
    """Unbiased HSIC of Gram matrices K and L (n, n), n ≥ 4, as in the textbook (Song et al. 2012, eq. 5), in float64.

    [tr KL + 1ᵀK1·1ᵀL1 / ((n−1)(n−2)) − 2·1ᵀKL1 / (n−2)] / (n(n−3)), the diagonals of K and L set to zero.
    """
    n = len(k_x)
    k_x, k_y = (gram.double().clone().fill_diagonal_(0) for gram in (k_x, k_y))
    product = k_x @ k_y
    total = product.trace() + k_x.sum() * k_y.sum() / ((n - 1) * (n - 2)) - 2 * product.sum() / (n - 2)
    return float(total) / (n * (n - 3))


def exact_cka(x: Tensor, y: Tensor) -> float:
    """Unbiased linear CKA of whole sets (N, ...), straight from :func:`unbiased_hsic`: memory and time grow with N².

    The measure that :class:`LinearCKA` is tested against; it has no guard against representations that do not vary.
    """
    x, y = _flat_pair(x, y)
    k_x, k_y = (z.double() @ z.double().T for z in (x, y))
    return unbiased_hsic(k_x, k_y) / math.sqrt(unbiased_hsic(k_x, k_x) * unbiased_hsic(k_y, k_y))


def _flat_pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if len(x) != len(y):
        raise ValueError(f"representations of {len(x)} and {len(y)} samples are not pairs")
    return x.reshape(len(x), math.prod(x.shape[1:])), y.reshape(len(y), math.prod(y.shape[1:]))


def _ratio(xy: float, xx: float, yy: float) -> float:
    if not (math.isfinite(xy) and math.isfinite(xx) and math.isfinite(yy)):
        raise FloatingPointError("a representation given to CKA is not finite")
    return xy / (math.sqrt(xx) * math.sqrt(yy)) if xx > 0 and yy > 0 else 0.0

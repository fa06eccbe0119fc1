"""Linear CKA: textbook formulas, the U-statistic itself, known invariances, and batches of any size."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raystitch.metrics import LinearCKA, exact_cka, linear_cka
from raystitch.metrics.cka import u_centred_gram, unbiased_hsic


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _rotation(size: int, seed: int) -> Tensor:
    q: Tensor = torch.linalg.qr(_normal(size, size, seed=seed)).Q
    return q


def _in_batches(x: Tensor, y: Tensor, sizes: list[int], block: int) -> float:
    cka = LinearCKA(block)
    for a, b in zip(x.split(sizes), y.split(sizes), strict=True):
        cka.update(a, b)
    return cka.compute()


def test_hsic_is_the_u_statistic_over_all_quadruples() -> None:
    # Song et al. 2012, theorem 2: mean over distinct (i, j, q, r) of k_ij (l_ij + l_qr − 2 l_iq)
    x, y = _normal(6, 3), _normal(6, 2, seed=1)
    k, m = x @ x.T, y @ y.T
    terms = [float(k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])) for i, j, q, r in permutations(range(6), 4)]
    expected = sum(terms) / len(terms)
    assert unbiased_hsic(k, m) == pytest.approx(expected, rel=1e-10)
    assert float((u_centred_gram(x) * u_centred_gram(y)).sum()) / (6 * 3) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n", [16, 17, 30])
def test_small_sets_get_the_exact_full_set_value(n: int) -> None:
    x, y = _normal(n, 7), _normal(n, 5, seed=1) + 3
    y[:, :2] += x[:, :2]
    assert linear_cka(x, y) == pytest.approx(exact_cka(x, y), rel=1e-9)
    assert _in_batches(x, y, [1] * n, 256) == pytest.approx(exact_cka(x, y), rel=1e-9)


def test_blocks_sum_hsic_weighted_by_samples() -> None:
    x, y = _normal(22, 4), _normal(22, 4, seed=1)
    y += x
    parts = [slice(0, 8), slice(8, 22)]  # of 22 samples in blocks of 8 the last takes 14
    grams = [(x[p] @ x[p].T, y[p] @ y[p].T, len(x[p])) for p in parts]
    xy, xx, yy = (
        sum(n * unbiased_hsic(*pick(k, m)) for k, m, n in grams)
        for pick in (lambda k, m: (k, m), lambda k, _: (k, k), lambda _, m: (m, m))
    )
    assert linear_cka(x, y, block=8) == pytest.approx(xy / math.sqrt(xx * yy), rel=1e-10)


@given(st.integers(16, 60), st.integers(0, 2**31), st.data())
@settings(max_examples=30, deadline=None)
def test_the_cut_into_batches_does_not_matter(n: int, seed: int, data: st.DataObject) -> None:
    x, y = _normal(n, 3, 2, 2, seed=seed), _normal(n, 5, seed=seed + 1)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
    assert _in_batches(x, y, sizes, 8) == pytest.approx(linear_cka(x, y, block=8), abs=1e-9)


@given(st.integers(16, 40), st.integers(1, 12), st.sampled_from([1e-4, 1.0, 1e5]), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_identity_rotation_scale_shift_and_range(n: int, d: int, scale: float, seed: int) -> None:
    x, y = _normal(n, d, seed=seed), _normal(n, 6, seed=seed + 1)
    moved = scale * x @ _rotation(d, seed + 2) + 3 * scale
    value = linear_cka(x, y, block=8)
    assert linear_cka(x, x, block=8) == pytest.approx(1, abs=1e-9)
    assert linear_cka(x, moved, block=8) == pytest.approx(1, abs=1e-6)
    assert linear_cka(moved, y, block=8) == pytest.approx(value, abs=1e-6)
    assert linear_cka(y, x, block=8) == pytest.approx(value, abs=1e-9)
    assert abs(value) <= 1 + 1e-9


def test_independent_data_give_zero_on_average_where_the_biased_value_is_large() -> None:
    # The biased CKA of 16 samples with 200 independent features is near 1; the unbiased HSIC averages to 0.
    values = torch.tensor(
        [linear_cka(_normal(16, 200, seed=2 * s), _normal(16, 200, seed=2 * s + 1)) for s in range(200)]
    )
    error = float(values.std()) / math.sqrt(len(values))
    assert error < 0.02
    assert abs(float(values.mean())) < 4 * error
    assert float(values.min()) < 0


def test_chance_scatters_by_a_tenth_with_the_fewest_samples_allowed() -> None:
    # The cosine of independent directions in D dimensions has a standard deviation of 1/√D; here D = 16·13/2 = 104.
    values = [linear_cka(_normal(16, 20, seed=2 * s), _normal(16, 20, seed=2 * s + 1)) for s in range(400)]
    spread = math.sqrt(sum(value**2 for value in values) / len(values))
    assert spread == pytest.approx(1 / math.sqrt(104), rel=0.15)  # 400 draws know it to 3.5 %


def test_a_known_value() -> None:
    # Long-run: K from (a, b), L from a alone, a and b independent with variances 1 and 1: tr(C_xy C_yx) / … = 1/√2
    a, b = _normal(20000, 1), _normal(20000, 1, seed=1)
    assert linear_cka(torch.cat([a, b], 1), a) == pytest.approx(1 / math.sqrt(2), abs=0.01)


def test_representations_that_do_not_vary_share_nothing() -> None:
    x = _normal(20, 3)
    for still in (torch.zeros(20, 4), torch.full((20, 4), 0.1), torch.full((20, 2, 3, 3), 1e9)):
        assert linear_cka(x, still, block=8) == 0
        assert linear_cka(still, still, block=8) == 0
    lone = torch.zeros(20, 4, dtype=torch.float64)
    lone[3] = torch.tensor([0.1, 0.7, -0.3, 1.1], dtype=torch.float64)  # one sample apart: no distances to compare
    assert linear_cka(lone, lone) == 0


def test_low_precision_and_large_offsets_do_no_harm() -> None:
    x, y = _normal(64, 10), _normal(64, 10, seed=1)
    y += x
    expected = exact_cka(x, y)
    assert linear_cka(x.float() + 100, y.float()) == pytest.approx(expected, abs=1e-4)
    assert linear_cka(x.bfloat16(), y.bfloat16()) == pytest.approx(expected, abs=1e-2)


def test_batches_may_be_reused_and_compute_may_come_early() -> None:
    x, y = _normal(80, 3), _normal(80, 3, seed=1)
    cka, buffer = LinearCKA(8), torch.empty(20, 3, dtype=torch.float64)
    for part in range(4):
        buffer.copy_(x[20 * part : 20 * part + 20])
        cka.update(buffer, y[20 * part : 20 * part + 20])
        assert cka.compute() == cka.compute()
    assert cka.compute() == pytest.approx(linear_cka(x, y, block=8), abs=1e-9)


def test_misuse() -> None:
    with pytest.raises(ValueError, match="at least 16 samples; 0"):
        LinearCKA().compute()
    for block in (4, 256):
        with pytest.raises(ValueError, match="at least 16 samples; 15"):
            linear_cka(_normal(15, 2), _normal(15, 2), block)
        assert linear_cka(_normal(16, 2), _normal(16, 2), block) == pytest.approx(1)
    with pytest.raises(ValueError, match="5 and 4 samples are not pairs"):
        linear_cka(_normal(5, 2), _normal(4, 2))
    with pytest.raises(ValueError, match="not 3"):
        LinearCKA(block=3)
    with pytest.raises(FloatingPointError, match="not finite"):
        linear_cka(_normal(20, 2), torch.full((20, 2), torch.nan))

"""Bootstrap over samples: agreement with compare(), binomial theory, hand-enumerable sets, determinism."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raystitch.metrics import bootstrap, compare, intervals, metrics_of_means, per_sample
from raystitch.metrics.bootstrap import resampled_means


def _case(seed: int, n: int, classes: int, scale: float = 2.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h, g, f = scale * torch.randn(3, n, classes, generator=generator)
    return h, g, torch.randint(classes, (n,), generator=generator), f


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(2, 8), st.sampled_from([0.01, 1.0, 300.0]), st.booleans())
@settings(max_examples=50, deadline=None)
def test_means_of_samples_give_what_compare_gives(seed: int, n: int, classes: int, scale: float, same: bool) -> None:
    h, g, labels, f = _case(seed, n, classes, scale)
    g = h if same else g
    means = {name: values.mean() for name, values in per_sample(h, g, labels, f).items()}
    found, expected = metrics_of_means(means, classes), compare(h, g, labels, f)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), name


def test_any_resample_gives_what_compare_gives_on_its_logits() -> None:
    h, g, labels, f = _case(3, 30, 6)
    rows = torch.randint(30, (30,), generator=torch.Generator().manual_seed(1))
    statistics = per_sample(h, g, labels, f)
    found = metrics_of_means({name: values[rows.numpy()].mean() for name, values in statistics.items()}, 6)
    expected = compare(h[rows], g[rows], labels[rows], f[rows])
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected, rel=1e-9)


def test_resampled_means_follow_the_theory() -> None:
    # The mean of n draws from n values has their mean, and their (biased) variance over n.
    values = np.arange(10.0)[:, None] ** 2
    means = resampled_means(values, 20_000, seed=0)[:, 0]
    spread = values.std() / math.sqrt(10)
    assert abs(means.mean() - values.mean()) < 4 * spread / math.sqrt(20_000)
    assert means.std() == pytest.approx(spread, rel=0.03)


def test_two_samples_have_three_equally_known_resamples() -> None:
    means = resampled_means(np.array([[0.0], [1.0]]), 4000, seed=0)[:, 0]
    shares = [float((means == value).mean()) for value in (0.0, 0.5, 1.0)]
    assert sum(shares) == 1
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_interval_of_an_accuracy_is_the_binomial_one() -> None:
    n, wrong = 2000, 400
    h = torch.zeros(n, 2)
    h[:, 0] = 1
    labels = torch.zeros(n, dtype=torch.long)
    labels[:wrong] = 1
    low, high = intervals(h, h, labels, resamples=4000)["top1"]
    width = 1.96 * 100 * math.sqrt(0.8 * 0.2 / n)
    assert low == pytest.approx(80 - width, abs=0.15)
    assert high == pytest.approx(80 + width, abs=0.15)


def test_bounds_hold_the_value_and_widen_with_the_level() -> None:
    h, g, labels, f = _case(0, 300, 6)
    values = compare(h, g, labels, f)
    narrow, wide = (intervals(h, g, labels, f, level=level) for level in (0.5, 0.99))
    assert set(narrow) == set(values)
    for name, value in values.items():
        assert wide[name][0] < narrow[name][0] < value < narrow[name][1] < wide[name][1], name


def test_perfect_agreement_has_no_spread_and_undefined_metrics_have_no_bounds() -> None:
    h, _, labels, _ = _case(0, 50, 4)
    found = intervals(h, h, labels)
    for name, value in {
        "agreement": 100,
        "agreement_top1": 100,
        "agreement_correct": 100,
        "kappa": 1,
        "kappa_soft": 1,
    }.items():
        assert found[name] == pytest.approx((value, value), abs=1e-9), name
    assert all(math.isnan(bound) for name in ("top5", "top1_front") for bound in found[name])


def test_the_seed_decides() -> None:
    h, g, labels, f = _case(0, 700, 6)  # several portions of draws
    first, again, other = (intervals(h, g, labels, f, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert bootstrap(per_sample(h, g, labels, f), 6, seed=1) == first


def test_misuse() -> None:
    h, g, labels, _ = _case(0, 5, 3)
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        intervals(h, g, labels, level=1.0)
    with pytest.raises(ValueError, match="at least one"):
        intervals(h, g, labels, resamples=0)
    with pytest.raises(ValueError, match="no samples"):
        per_sample(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))

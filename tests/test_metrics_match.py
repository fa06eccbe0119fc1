"""The match error: relative Frobenius over the whole set, however it is cut into batches."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raystitch.metrics import MatchError


def _error(z: torch.Tensor, target: torch.Tensor, batch: int) -> float:
    match = MatchError()
    for a, b in zip(z.split(batch), target.split(batch), strict=True):
        match.update(a, b)
    return match.compute()


def test_by_hand() -> None:
    match = MatchError()
    match.update(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
    match.update(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 5.0]]))
    assert match.compute() == pytest.approx(5 / math.sqrt(26))


@pytest.mark.parametrize("streams", ["streams0", "streams1"])
def test_reference_values(shared: Path, streams: str) -> None:
    arrays = np.load(shared / "reference" / "metrics_and_losses.npz")
    expected = json.loads((shared / "reference" / "metrics_and_losses.json").read_text())[streams]
    errors = [
        _error(*(torch.from_numpy(arrays[f"{streams}_{side}_{k}"]) for side in ("stitched", "end")), batch=3)
        for k in range(3)
    ]
    assert errors[0] == pytest.approx(expected["dm"], abs=1e-5)
    assert sum(errors) / 3 == pytest.approx(expected["fula"], abs=1e-5)
    assert sum(errors[:2]) / 2 == pytest.approx(expected["fula_depth_1"], abs=1e-5)


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(1, 7), st.sampled_from([1e-3, 1.0, 1e4]))
@settings(max_examples=30, deadline=None)
def test_batches_and_scale_do_not_matter(seed: int, n: int, batch: int, scale: float) -> None:
    z, target = torch.randn(2, n, 4, 3, 3, generator=torch.Generator().manual_seed(seed))
    whole = float((z - target).double().norm() / target.double().norm())
    assert _error(scale * z, scale * target, batch) == pytest.approx(whole, rel=1e-5)
    assert _error(target, target, batch) == 0


def test_zero_targets_give_no_nan() -> None:
    zero = torch.zeros(2, 3)
    assert _error(zero, zero, 1) == 0
    assert _error(zero + 1, zero, 1) == math.inf


def test_misuse() -> None:
    with pytest.raises(ValueError, match="no batch"):
        MatchError().compute()
    with pytest.raises(ValueError, match=r"\(2, 1\) and \(2, 3\)"):
        MatchError().update(torch.zeros(2, 1), torch.zeros(2, 3))

"""Agreement, error consistency and accuracy: reference values, hand-worked tables, and properties that always hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raystitch.metrics import agreement, compare, kappa, kappa_soft

PERCENT = ("agreement", "agreement_top1", "agreement_correct", "top1", "top1_end")
SOFT = (0.01, 1.0)  # logits for which soft kappa is well-conditioned: 1 − c_exp is not tiny
NAMES = {*PERCENT, "kappa", "kappa_soft", "top5", "loss", "top1_front"}


@pytest.mark.parametrize("name", ["logits0", "logits1", "logits2"])
def test_reference_values(shared: Path, name: str) -> None:
    arrays = np.load(shared / "reference" / "metrics_and_losses.npz")
    expected = json.loads((shared / "reference" / "metrics_and_losses.json").read_text())[name]
    h, g, labels = (torch.from_numpy(arrays[f"{name}_{part}"]) for part in ("stitched", "end", "labels"))
    found = compare(h, g, labels, None)
    for key in ("agreement", "agreement_correct", "top1", "top1_end"):
        assert found[key] == pytest.approx(expected[key], abs=1e-3), key
    for key in ("kappa", "kappa_soft"):
        assert found[key] == pytest.approx(expected[key], abs=1e-4), key


def _logits(right: list[bool]) -> tuple[Tensor, Tensor]:
    """Two-class logits, label 0 throughout, right or wrong as asked."""
    return torch.tensor([[1.0, 0.0] if ok else [0.0, 1.0] for ok in right]), torch.zeros(len(right), dtype=torch.long)


def _table(both: int, only_h: int, only_g: int, neither: int) -> tuple[Tensor, Tensor, Tensor]:
    h, labels = _logits([True] * (both + only_h) + [False] * (only_g + neither))
    g, _ = _logits([True] * both + [False] * only_h + [True] * only_g + [False] * neither)
    return h, g, labels


@pytest.mark.parametrize(
    ("table", "observed", "expected_kappa"),
    [
        ((45, 15, 25, 15), 60.0, (0.60 - 0.54) / (1 - 0.54)),  # a_h 0.6, a_g 0.7: c_exp 0.42 + 0.12
        ((20, 5, 10, 15), 70.0, 0.4),  # Cohen's own textbook table: c_exp 0.5
        ((0, 50, 50, 0), 0.0, -1.0),
        ((25, 25, 25, 25), 50.0, 0.0),  # independent at 50 %
        ((81, 9, 9, 1), 82.0, 0.0),  # independent at 90 %: agreement 82 % is chance
        ((10, 0, 0, 0), 100.0, 1.0),  # both always right: c_exp = 1
        ((0, 0, 0, 10), 100.0, 1.0),  # both always wrong: c_exp = 1
        ((0, 10, 0, 0), 0.0, 0.0),  # one always right, one always wrong: c_exp = 0
    ],
)
def test_kappa_of_hand_worked_tables(table: tuple[int, int, int, int], observed: float, expected_kappa: float) -> None:
    h, g, labels = _table(*table)
    found = compare(h, g, labels)
    assert found["agreement_correct"] == pytest.approx(observed)
    assert found["kappa"] == pytest.approx(expected_kappa, abs=1e-12)
    both, only_h, only_g, _ = table
    assert found["top1"] == pytest.approx(100 * (both + only_h) / sum(table))
    assert found["top1_end"] == pytest.approx(100 * (both + only_g) / sum(table))


def test_kappa_is_over_the_whole_set_not_a_mean_of_batches() -> None:
    h, g, labels = _table(45, 15, 25, 15)
    halves = [kappa(h[part], g[part], labels[part]) for part in (slice(0, 50), slice(50, 100))]
    assert abs(sum(halves) / 2 - compare(h, g, labels)["kappa"]) > 0.1


def test_agreement_and_soft_kappa_by_hand() -> None:
    # p = (0.8, 0.2), q = (0.5, 0.5), label 0: p·q = 0.5, max(p·p, q·q) = 0.68; c_exp = 0.8·0.5 + 0.2·0.5/1 = 0.5
    h, g, label = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0])
    assert agreement(h, g) == pytest.approx(100 * 0.5 / 0.68)
    assert kappa_soft(h, g, label) == pytest.approx((0.5 / 0.68 - 0.5) / 0.5)
    assert compare(h, g, label)["loss"] == pytest.approx(-math.log(0.8))


def test_soft_kappa_spreads_the_rest_over_the_other_classes() -> None:
    # p·q = 0.3, p·p = 0.375, q·q = 0.36: 0.8 observed; 0.5·0.2 + 0.5·0.8/2 = 0.3 expected
    h, g = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.2, 0.4, 0.4]]).log()
    assert kappa_soft(h, g, torch.tensor([0])) == pytest.approx(0.5 / 0.7)


def test_opposite_predictions_agree_nowhere() -> None:
    h, labels = _logits([True] * 5)
    found = compare(h * 1e3, -h * 1e3, labels)
    assert found["agreement"] == pytest.approx(0)
    assert found["agreement_top1"] == 0


def test_top1_agreement_compares_predictions_not_correctness() -> None:
    h, g = torch.eye(3)[[1, 2]], torch.eye(3)[[2, 2]]
    found = compare(h, g, torch.tensor([0, 0]))  # all wrong, one with the same wrong class
    assert (found["agreement_top1"], found["agreement_correct"]) == (50.0, 100.0)


def test_top5_counts_the_five_largest_and_needs_five_classes() -> None:
    logits = torch.arange(6.0).flip(0).expand(6, 6)  # class c has rank c
    assert compare(logits, logits, torch.arange(6))["top5"] == pytest.approx(100 * 5 / 6)
    assert math.isnan(compare(logits[:, :4], logits[:, :4], torch.zeros(6, dtype=torch.long))["top5"])
    ties = compare(torch.zeros(6, 6), logits, torch.arange(6))
    assert (ties["top1"], ties["top5"]) == (pytest.approx(100 / 6), pytest.approx(100 * 5 / 6))


def test_front_may_have_its_own_number_of_classes() -> None:
    h, labels = torch.eye(3), torch.arange(3)
    assert compare(h, h, labels, torch.eye(3, 7))["top1_front"] == 100
    assert math.isnan(compare(h, h, labels)["top1_front"])


@st.composite
def _cases(draw: st.DrawFn, scales: tuple[float, ...] = (0.01, 1.0, 20.0, 300.0)) -> tuple[Tensor, Tensor, Tensor]:
    n, classes = draw(st.integers(1, 40)), draw(st.integers(2, 8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from(scales))
    h, g = scale * torch.randn(2, n, classes, generator=generator)
    return h, g, torch.randint(classes, (n,), generator=generator)


@given(_cases())
@settings(max_examples=60, deadline=None)
def test_ranges(case: tuple[Tensor, Tensor, Tensor]) -> None:
    found = compare(*case, case[0])
    assert set(found) == NAMES
    assert all(0 <= found[name] <= 100 for name in PERCENT)
    assert -1 - 1e-12 <= found["kappa"] <= 1 + 1e-12
    assert found["kappa_soft"] <= 1 + 1e-12
    assert found["loss"] >= 0
    assert math.isnan(found["top5"]) == (case[0].shape[1] < 5)
    assert not found["top5"] < found["top1"]
    assert found["top1_front"] == found["top1"]


@given(_cases())
@settings(max_examples=30, deadline=None)
def test_a_net_agrees_with_itself(case: tuple[Tensor, Tensor, Tensor]) -> None:
    h, _, labels = case
    found = compare(h, h, labels)
    assert [found[key] for key in ("agreement", "agreement_top1", "agreement_correct")] == [100, 100, 100]
    assert (found["kappa"], found["kappa_soft"]) == (1, 1)
    assert found["top1"] == found["top1_end"]


@given(_cases())
@settings(max_examples=30, deadline=None)
def test_agreement_and_kappa_are_symmetric(case: tuple[Tensor, Tensor, Tensor]) -> None:
    h, g, labels = case
    there, back = compare(h, g, labels), compare(g, h, labels)
    for key in ("agreement", "agreement_top1", "agreement_correct", "kappa", "kappa_soft"):
        assert there[key] == pytest.approx(back[key], rel=1e-9, abs=1e-9), key
    assert there["top1"] == back["top1_end"]


@given(_cases(SOFT), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_of_samples_and_names_of_classes_do_not_matter(
    case: tuple[Tensor, Tensor, Tensor],
    random: Random,
) -> None:
    h, g, labels = case
    rows, classes = list(range(len(h))), list(range(h.shape[1]))
    random.shuffle(rows)
    random.shuffle(classes)
    renamed = torch.argsort(torch.tensor(classes))[labels]
    before, after = compare(h, g, labels), compare(h[rows][:, classes], g[rows][:, classes], renamed[rows])
    for key in NAMES:
        assert after[key] == pytest.approx(before[key], rel=1e-8, abs=1e-8, nan_ok=True), key


@given(_cases(SOFT))
@settings(max_examples=20, deadline=None)
def test_a_constant_added_to_all_logits_changes_nothing(case: tuple[Tensor, Tensor, Tensor]) -> None:
    h, g, labels = (case[0].double(), case[1].double(), case[2])
    before, after = compare(h, g, labels), compare(h + 7, g - 3, labels)
    for key in ("agreement", "kappa_soft", "loss"):
        assert after[key] == pytest.approx(before[key], rel=1e-6, abs=1e-6), key


def test_logits_that_are_not_finite_are_refused() -> None:
    h = torch.zeros(2, 3)
    with pytest.raises(FloatingPointError, match="stitched net"):
        compare(torch.full((2, 3), torch.nan), h, torch.tensor([0, 1]))
    with pytest.raises(FloatingPointError, match="end model"):
        compare(h, torch.full((2, 3), torch.inf), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [(((2, 3), (2, 4), 2), "must be"), (((2, 3), (2, 3), 3), "must be"), (((0, 3), (0, 3), 0), "no samples")],
)
def test_shapes_that_do_not_fit_are_refused(shapes: tuple[tuple[int, int], tuple[int, int], int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(torch.zeros(shapes[0]), torch.zeros(shapes[1]), torch.zeros(shapes[2], dtype=torch.long))


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.\.2; found 1\.\.3"):
        compare(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([1, 3]))

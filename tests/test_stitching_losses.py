"""The objectives against values computed with the method authors' functions, and their exact properties."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from raystitch.stitching import fula_loss, hard_label_loss, match_loss, soft_label_loss
from raystitch.stitching.objectives import batch_loss, reach, targets


@pytest.fixture(scope="module")
def reference(shared: Path):
    folder = shared / "reference"
    arrays = np.load(folder / "metrics_and_losses.npz")
    tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    return tensors, json.loads((folder / "metrics_and_losses.json").read_text())


@pytest.mark.parametrize("case", ["logits0", "logits1", "logits2"])
def test_soft_label_loss_is_the_reference(reference, case):
    tensors, expected = reference
    loss = soft_label_loss(tensors[f"{case}_stitched"], tensors[f"{case}_end"])
    assert loss.item() == pytest.approx(expected[case]["soft_label_loss"], abs=1e-5)


@pytest.mark.parametrize("case", ["streams0", "streams1"])
def test_match_losses_are_the_reference(reference, case):
    tensors, expected = reference
    zs, z_hats = ([tensors[f"{case}_{side}_{k}"] for k in range(3)] for side in ("stitched", "end"))
    assert match_loss(zs[0], z_hats[0]).item() == pytest.approx(expected[case]["dm"], abs=1e-5)
    assert fula_loss(zs, z_hats).item() == pytest.approx(expected[case]["fula"], abs=1e-5)
    assert fula_loss(zs, z_hats, depth=1).item() == pytest.approx(expected[case]["fula_depth_1"], abs=1e-5)


def test_fula_at_the_last_point_is_direct_matching():
    z, z_hat = torch.rand(2, 5, 7)
    assert torch.equal(fula_loss([z], [z_hat]), match_loss(z, z_hat))
    assert targets("fula", 4, 4) == targets("dm", 4, 4) == (4,)
    assert reach("fula", 4, 4) == reach("dm", 4, 4) == 4


def test_what_each_objective_needs():
    assert {name: targets(name, 2, 4) for name in ("hlm", "slm", "dm", "fula")} == {
        "hlm": (),
        "slm": (5,),
        "dm": (2,),
        "fula": (2, 3, 4),
    }
    assert [reach(name, 2, 4) for name in ("hlm", "slm", "dm", "fula")] == [5, 5, 2, 4]


def test_hand_worked_values():
    assert match_loss(torch.tensor([[3.0, 0.0]]), torch.tensor([[3.0, 4.0]])).item() == pytest.approx(4 / 5)
    logits = torch.tensor([[0.0, 0.0]])
    assert hard_label_loss(logits, torch.tensor([1])).item() == pytest.approx(np.log(2))
    ends = torch.tensor([[np.log(3.0), 0.0]]).float()  # probabilities 3/4 and 1/4
    expected = 0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)
    assert soft_label_loss(logits, ends).item() == pytest.approx(expected, abs=1e-6)


def test_soft_label_loss_has_the_gradient_of_cross_entropy():
    h, g = torch.randn(2, 9, 5, dtype=torch.float64)
    kl, ce = h.clone().requires_grad_(), h.clone().requires_grad_()
    soft_label_loss(kl, g).backward()
    torch.nn.functional.cross_entropy(ce, g.softmax(1)).backward()
    torch.testing.assert_close(kl.grad, ce.grad)


@pytest.mark.parametrize("objective", ["slm", "dm", "fula"])
def test_a_perfect_stitch_has_no_loss_and_a_finite_gradient(objective):
    z = torch.rand(6, 3, requires_grad=True)
    own = [z.detach()] * len(targets(objective, 1, 1))
    loss = batch_loss(objective, [z], own, torch.zeros(6, dtype=torch.int64))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-7)
    assert torch.isfinite(z.grad).all()

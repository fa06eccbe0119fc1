"""The robust evaluation: closed-form robustness of linear models, what counts as robust, batches, full AutoAttack."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from attack_models import Linear, images, trained
from torch import Tensor

from raystitch.attacks import apgd, apgd_ce_dlr, robust_accuracy, standard_autoattack
from raystitch.errors import InputError
from raystitch.nets import fingerprint


@pytest.mark.parametrize("eps", [0.01, 0.03, 0.08])
def test_robust_images_of_a_linear_model_are_those_of_the_closed_form(eps: float) -> None:
    model, x = Linear(4), images(100, 1)
    labels = model(x).argmax(1)
    labels[:10] = (labels[:10] + 1) % 4  # ten are wrong from the start
    worst = model.worst(x, labels, eps)
    assert (worst.abs() > 1e-6).all()
    found = apgd_ce_dlr(model, x, labels, eps)
    assert torch.equal(found.robust, worst > 0)
    assert 0 < int(found.robust.sum()) < 90


def test_images_that_withstand_or_were_wrong_come_back_clean() -> None:
    net, x, labels = trained()
    found = apgd_ce_dlr(net, x, labels, 0.08, 10)
    net = copy.deepcopy(net).eval()
    clean_right, right = (net(z).argmax(1) == labels for z in (x, found.images))
    assert torch.equal(found.robust, right)
    changed = (found.images != x).flatten(1).any(1)
    assert torch.equal(changed, clean_right & ~right)
    assert 0 < int(found.robust.sum()) < int(clean_right.sum())
    assert float((found.images - x).abs().max()) <= 0.08 + 1e-6
    assert found.images.amin() >= 0
    assert found.images.amax() <= 1


def test_no_image_is_robust_that_either_attack_alone_takes() -> None:
    net, x, labels = trained()
    both = apgd_ce_dlr(net, x, labels, 0.06, 10).robust
    clean = copy.deepcopy(net).eval()(x).argmax(1) == labels
    ce = apgd(net, x[clean], labels[clean], eps=0.06, steps=10, seeds=range(int(clean.sum())))
    taken = copy.deepcopy(net).eval()(ce).argmax(1) != labels[clean]
    assert int(both.sum()) <= int(clean.sum()) - int(taken.sum()) + 2  # other starts may differ in a borderline image


def test_results_depend_on_the_image_not_on_its_batch() -> None:
    net, x, labels = trained()
    net, x = copy.deepcopy(net).double(), x.double()
    whole = apgd_ce_dlr(net, x, labels, 0.08, 8, seed=5)
    small = apgd_ce_dlr(net, x, labels, 0.08, 8, seed=5, batch=7)
    torch.testing.assert_close(small.images, whole.images)
    assert torch.equal(small.robust, whole.robust)
    rows = torch.tensor([60, 3, 17])
    part = apgd_ce_dlr(net, x[rows], labels[rows], 0.08, 8, seed=5, indices=rows.tolist())
    torch.testing.assert_close(part.images, whole.images[rows])
    other = apgd_ce_dlr(net, x, labels, 0.08, 8, seed=6)
    assert not torch.equal(other.images, whole.images)


def test_robust_means_right_on_clean_input_and_on_every_attack() -> None:
    def model(x: Tensor) -> Tensor:  # predicts 1 where the one pixel is bright
        bright = x.flatten(1)[:, :1] - 0.5
        return torch.cat([-bright, bright], 1)

    def pixels(*values: float) -> Tensor:
        return torch.tensor(values).view(-1, 1, 1, 1)

    labels = torch.tensor([1, 1, 1, 1, 0])
    clean = pixels(0.9, 0.1, 0.9, 0.9, 0.9)  # right, wrong, right, right, wrong
    first = pixels(0.9, 0.9, 0.1, 0.9, 0.1)  # an attack may make a wrong image right: it stays lost
    second = pixels(0.9, 0.9, 0.9, 0.1, 0.1)
    assert robust_accuracy(model, clean, labels, []) == pytest.approx(60)
    assert robust_accuracy(model, clean, labels, [first]) == pytest.approx(40)
    assert robust_accuracy(model, clean, labels, [first, second], batch=2) == pytest.approx(20)


def test_two_classes_are_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="DLR loss needs at least 3 classes and the net has 2"):
        apgd_ce_dlr(Linear(2), images(3, 0), torch.tensor([0, 1, 0]), 0.1)


def test_nothing_to_attack() -> None:
    model, x = Linear(3), images(4, 0)
    wrong = (model(x).argmax(1) + 1) % 3
    found = apgd_ce_dlr(model, x, wrong, 0.1)
    assert torch.equal(found.images, x)
    assert not found.robust.any()
    assert len(apgd_ce_dlr(model, x[:0], wrong[:0], 0.1).images) == 0


def test_full_autoattack_of_a_linear_model_is_the_closed_form_and_leaves_no_trace() -> None:
    pytest.importorskip("pyautoattack")
    model, x = Linear(4).float().train(), images(40, 2).float()
    labels = model(x).argmax(1)
    labels[0] = (labels[0] + 1) % 4
    eps = float(model.worst(x, labels, 0).sort().values[-3]) / 12  # weak enough that some withstand
    worst = model.worst(x, labels, eps)
    before, state, trace = fingerprint(model), torch.get_rng_state(), sys.gettrace()
    found = standard_autoattack(model, x, labels, eps, batch=16)
    assert torch.equal(found.robust, worst > 0)
    assert 0 < int(found.robust.sum()) < 39
    assert float((found.images - x).abs().max()) <= eps + 1e-6
    assert fingerprint(model) == before
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert sys.gettrace() is trace


def test_full_autoattack_needs_four_classes_and_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = images(3, 0).float(), torch.tensor([0, 1, 0])
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(InputError, match=r"raystitch\[robust\]"):
        standard_autoattack(Linear(4).float(), x, labels, 0.1)
    monkeypatch.undo()
    pytest.importorskip("pyautoattack")
    with pytest.raises(InputError, match="at least 4 classes and the net has 3"):
        standard_autoattack(Linear(3).float(), x, labels, 0.1)

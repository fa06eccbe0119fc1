"""PGD and APGD: the known optimum of linear models, the ball and the box, and nets left as they were."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from attack_models import Linear, images, trained
from torch import Tensor, nn

from raystitch.attacks import apgd, pgd
from raystitch.attacks.apgd import checkpoints
from raystitch.attacks.ball import sample_seeds
from raystitch.attacks.losses import cross_entropy, dlr
from raystitch.errors import InputError
from raystitch.nets import fingerprint

EPS = 0.05


def test_pgd_finds_the_closed_form_optimum_of_two_classes() -> None:
    model, x, labels = Linear(2), images(6, 0, 0.1, 0.9), torch.tensor([0, 1] * 3)
    weight = model.layer.weight.detach()
    difference = (weight[labels] - weight[1 - labels]).view_as(x)
    for seeds in (None, range(6)):
        found = pgd(model, x, labels, eps=EPS, steps=8, step_size=EPS / 3, seeds=seeds)
        torch.testing.assert_close(found, x - EPS * difference.sign())


@pytest.mark.parametrize("loss", ["ce", "dlr"])
def test_apgd_finds_the_closed_form_optimum_with_the_box_active(loss: str) -> None:
    model, x, labels = Linear(3 if loss == "dlr" else 2), images(20, 0), torch.arange(20) % 2
    found = apgd(model, x, labels, eps=EPS, steps=20, seeds=range(20), loss=loss)
    logits = model(found).detach()
    other = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    margin = logits.gather(1, labels[:, None])[:, 0] - other
    worst = model.worst(x, labels, EPS)
    assert (margin >= worst - 1e-9).all()
    if loss == "ce":
        torch.testing.assert_close(margin, worst)
    else:
        assert ((margin < 0) == (worst < 0)).all()


def test_dlr_by_hand_and_its_invariances() -> None:
    logits = torch.tensor([[4.0, 1.0, 2.0, 0.0], [4.0, 1.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 2, 3])
    expected = torch.tensor([-2 / 3, 2 / 3, 0.0], dtype=torch.float64)  # −(4 − 2)/(4 − 1); −(2 − 4)/(4 − 1); tie
    torch.testing.assert_close(dlr(logits, labels), expected)
    torch.testing.assert_close(dlr(7 * logits + 5, labels), expected)
    torch.testing.assert_close(cross_entropy(logits[2:], labels[2:]), torch.tensor([4.0], dtype=torch.float64).log())


def test_dlr_below_three_classes_is_refused() -> None:
    with pytest.raises(InputError, match="at least 3 classes and the net has 2"):
        apgd(Linear(2), images(2, 0), torch.tensor([0, 1]), eps=EPS, steps=2, seeds=(0, 1), loss="dlr")
    with pytest.raises(InputError, match="did you mean 'dlr'"):
        apgd(Linear(3), images(2, 0), torch.tensor([0, 1]), eps=EPS, steps=2, seeds=(0, 1), loss="dlrr")


def test_checkpoints_are_the_published_ones() -> None:
    # Croce & Hein 2020, section 3: p = 0.22, then + max(p_j − p_{j−1} − 0.03, 0.06)
    assert list(checkpoints(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(20) == {4: 4, 7: 3, 9: 2, **dict.fromkeys(range(10, 21), 1)}
    assert checkpoints(1) == {1: 1}


def _net() -> tuple[nn.Module, Tensor, Tensor]:
    net, x, labels = trained()
    return copy.deepcopy(net), x, labels


@pytest.mark.parametrize("attack", ["pgd", "pgd from noise", "ce", "dlr"])
def test_images_stay_in_ball_and_box_and_the_net_stays_as_it_was(attack: str) -> None:
    net, x, labels = _net()
    net.train()
    net[0].eval()
    net[3].weight.requires_grad_(False)
    before, clean = fingerprint(net), x.clone()
    modes = [module.training for module in net.modules()]
    flags = [parameter.requires_grad for parameter in net.parameters()]
    if attack.startswith("pgd"):
        seeds = range(len(x)) if "noise" in attack else None
        found = pgd(net, x, labels, eps=0.1, steps=5, step_size=0.04, seeds=seeds)
    else:
        found = apgd(net, x, labels, eps=0.1, steps=5, seeds=range(len(x)), loss=attack)
    assert float((found - x).abs().max()) == pytest.approx(0.1, abs=1e-6)
    assert found.amin() >= 0
    assert found.amax() <= 1
    assert (found.dtype, found.requires_grad) == (x.dtype, False)
    assert torch.equal(x, clean)
    assert fingerprint(net) == before
    assert [module.training for module in net.modules()] == modes
    assert [parameter.requires_grad for parameter in net.parameters()] == flags
    assert all(parameter.grad is None for parameter in net.parameters())


def test_the_net_is_put_back_when_the_attack_fails() -> None:
    net, x, labels = _net()
    net.train()
    net[-1].weight.data.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="not finite"):
        apgd(net, x, labels, eps=0.1, steps=2, seeds=range(len(x)))
    assert all(module.training for module in net.modules())
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_attacks_work_where_gradients_are_off() -> None:
    net, x, labels = _net()
    with torch.no_grad():
        off = pgd(net, x, labels, eps=0.1, steps=3, step_size=0.04)
    assert torch.equal(off, pgd(net, x, labels, eps=0.1, steps=3, step_size=0.04))


@pytest.mark.parametrize("eps", [0.06, 0.1, 0.15])
def test_apgd_is_not_weaker_than_pgd_at_equal_steps(eps: float) -> None:
    net, x, labels = _net()
    net.eval()
    seeds = sample_seeds(0, "start", range(len(x)))
    auto = apgd(net, x, labels, eps=eps, steps=20, seeds=seeds)
    plain = pgd(net, x, labels, eps=eps, steps=20, step_size=eps / 4, seeds=seeds)
    with torch.no_grad():
        loss_auto, loss_plain = (F.cross_entropy(net(z), labels, reduction="none") for z in (auto, plain))
        right_auto, right_plain, clean = (int((net(z).argmax(1) == labels).sum()) for z in (auto, plain, x))
    assert right_auto <= right_plain < clean
    assert float(loss_auto.mean()) >= float(loss_plain.mean())


def test_apgd_is_as_strong_as_the_reference() -> None:
    reference = pytest.importorskip("pyautoattack.autopgd_base").APGDAttack
    net, x, labels = _net()
    net.eval().requires_grad_(False)
    for name, loss in (("ce", cross_entropy), ("dlr", dlr)):
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            attack = reference(net, n_iter=20, eps=0.08, seed=0, loss=name, device="cpu")
            theirs = attack.perturb(x, labels, best_loss=True)
        ours = apgd(net, x, labels, eps=0.08, steps=20, seeds=range(len(x)), loss=name)
        reached, expected = (float(loss(net(found), labels).median()) for found in (ours, theirs))
        assert reached >= 0.95 * expected > 0, name  # medians: DLR has no bound where three logits meet
        fooled, theirs_fooled = (int((net(found).argmax(1) != labels).sum()) for found in (ours, theirs))
        assert abs(fooled - theirs_fooled) <= 2, name


def test_each_image_is_searched_by_itself() -> None:
    net, x, labels = _net()
    net = net.double().eval()
    x, seeds = x.double(), sample_seeds(3, "start", range(len(x)))
    whole = apgd(net, x, labels, eps=0.1, steps=8, seeds=seeds)
    rows = torch.tensor([5, 40, 11])
    part = apgd(net, x[rows], labels[rows], eps=0.1, steps=8, seeds=[seeds[i] for i in rows])
    torch.testing.assert_close(part, whole[rows])


def test_misuse() -> None:
    model, x, labels = Linear(3), images(2, 0), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        pgd(model, x + 1, labels, eps=0.1, steps=1, step_size=0.1)
    with pytest.raises(ValueError, match="eps must be positive"):
        pgd(model, x, labels, eps=0, steps=1, step_size=0.1)
    with pytest.raises(ValueError, match="float"):
        pgd(model, (255 * x).byte(), labels, eps=0.1, steps=1, step_size=0.1)
    with pytest.raises(ValueError, match="as many seeds, not 1"):
        apgd(model, x, labels, eps=0.1, steps=1, seeds=[0])

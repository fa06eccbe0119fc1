"""Evaluation on attacked images: the closed form of linear nets, one set per net, and rows that a limit does not change."""

from __future__ import annotations

import pytest
import torch
from stitching_chains import Chain, conv_net
from test_stitching_fit import fit as fit_all
from test_stitching_fit import images, recipe
from torch import Tensor, nn

from raystitch.attacks import apgd_ce_dlr
from raystitch.config import RobustConfig
from raystitch.data import ImageSet, evenly_spaced
from raystitch.evaluate import (
    Measured,
    evaluate,
    evaluate_attacked,
    evaluate_unstitched,
    evaluate_unstitched_attacked,
)
from raystitch.metrics import compare
from raystitch.nets import fingerprint
from raystitch.stitching import Fitted, InitReport, make_stitch
from raystitch.stitching.initialise import initialise

EPS = 0.01
ROBUST = RobustConfig(eps=EPS, steps=20)


def linear(seed: int) -> Chain:
    """Pixels (point 1) → four classes."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Chain([nn.Flatten(), nn.Linear(192, 4)])


def identical(front: Chain, end: Chain) -> Fitted:
    """h = the end: the identity between pixels."""
    stitch = make_stitch(front.points[0], end.points[0])
    initialise(stitch, "identity", torch.zeros(2, 192), None, seed=0)
    return Fitted("hlm", stitch, front, end, 1, 1, InitReport(1, 1.0), [0.0])


def worst_margin(end: Chain, x: Tensor, labels: Tensor, eps: float = EPS) -> Tensor:
    """Smallest z_y − z_c over c ≠ y, the ball and the box: each pixel as far against w_y − w_c as it may go."""
    weight, bias, x = end.segments[1].weight.detach(), end.segments[1].bias.detach(), x.flatten(1)
    low, high = (x - eps).clamp_min(0), (x + eps).clamp_max(1)
    margins = []
    for c in range(len(weight)):
        w = weight[labels] - weight[c]
        reached = (w * torch.where(w > 0, low, high)).sum(1) + bias[labels] - bias[c]
        margins.append(torch.where(labels == c, torch.inf, reached))
    return torch.stack(margins).amin(0)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_attacked_accuracy_of_a_linear_net_is_the_closed_form(as_bytes: bool) -> None:
    front, end, data = linear(1), linear(0), images(200)
    x = data.images.float() / 255
    labels = end(x).argmax(1)
    labels[:20] = (labels[:20] + 1) % 4
    shown = ImageSet(data.images if as_bytes else x, labels, 4)
    worst = worst_margin(end, x, labels)
    assert worst.abs().min() > 1e-5
    robust = 100 * float((worst > 0).double().mean())
    assert 5 < robust < 85
    found = evaluate_attacked(identical(front, end), front, end, shown, "apgd_ce_dlr", ROBUST, "cpu")
    assert found.columns["top1"] == pytest.approx(robust)
    assert found.columns["eps"] == EPS
    assert found.columns["agreement"] == pytest.approx(100), "the end sees the images made against h, which is the end"
    assert found.columns["match_error"] == 0
    own = evaluate_unstitched_attacked(end, front, end, shown, "apgd_ce_dlr", ROBUST, "cpu")
    assert own.columns["top1"] == pytest.approx(robust)
    clean = evaluate_unstitched(end, front, end, shown, "cpu")
    assert clean.columns["top1"] == pytest.approx(90)
    assert "eps" not in clean.columns


def test_each_net_is_attacked_by_itself_and_end_and_front_are_shown_its_images() -> None:
    front, end, shown = conv_net(0), conv_net(1), images(40, seed=5)
    fits = fit_all(front, end, ("hlm", "dm"))
    before = [fingerprint(net) for fit in fits.values() for net in (fit.front, fit.end, fit.stitch)]
    x, logits = shown.images.float() / 255, {}
    for name, fit in fits.items():
        found = evaluate_attacked(fit, front, end, shown, "apgd_ce_dlr", ROBUST, "cpu")
        attacked = apgd_ce_dlr(fit.net, x, shown.labels, EPS, 20).images
        for net, own in ((fit.logits, found.h), (end, found.end), (front, found.front)):
            torch.testing.assert_close(net(attacked).detach(), own, rtol=1e-3, atol=1e-3)
        assert found.columns.items() >= compare(found.h, found.end, shown.labels, found.front).items()
        logits[name] = found
    assert not torch.equal(logits["hlm"].end, logits["dm"].end)
    assert [fingerprint(net) for fit in fits.values() for net in (fit.front, fit.end, fit.stitch)] == before


def test_a_limit_takes_evenly_spaced_images_and_attacks_them_as_the_whole_set_would() -> None:
    front, end, shown = conv_net(0), conv_net(1), images(40, seed=5)
    (fit,) = fit_all(front, end, ("slm",), config=recipe(epochs=1)).values()

    def attacked(count: int | None) -> Measured:
        robust = RobustConfig(eps=EPS, steps=5, images=count)
        return evaluate_attacked(fit, front, end, shown, "apgd_ce_dlr", robust, "cpu")

    rows = torch.from_numpy(evenly_spaced(40, 7))
    few, whole = attacked(7), attacked(None)
    assert torch.equal(few.labels, shown.labels[rows])
    torch.testing.assert_close(few.h, whole.h[rows], rtol=1e-3, atol=1e-3)
    assert len(attacked(1000).labels) == 40


def test_sets_that_are_not_attacked_are_shared_and_measured_as_before() -> None:
    front, end, shown = conv_net(0), conv_net(1), images(40, seed=5)
    fits = fit_all(front, end)
    x = shown.images.float() / 255
    for name, found in evaluate(list(fits.values()), front, end, shown, "cpu").items():
        torch.testing.assert_close(found.h, fits[name].logits(x))
        torch.testing.assert_close(found.end, end(x).detach())
        torch.testing.assert_close(found.front, front(x).detach())
        assert {"agreement_low", "match_error", "match_error_later", "stitch_rank"} <= found.columns.keys()


def test_full_autoattack_takes_what_the_closed_form_says_can_be_taken() -> None:
    pytest.importorskip("pyautoattack")
    front, end, data = linear(1), linear(0), images(12)
    x = data.images.float() / 255
    labels, robust = end(x).argmax(1), RobustConfig(eps=0.05)
    assert (worst_margin(end, x, labels, 0.05) < 0).all()
    shown = ImageSet(data.images, labels, 4)
    found = evaluate_attacked(identical(front, end), front, end, shown, "autoattack", robust, "cpu")
    assert (found.columns["top1"], found.columns["eps"]) == (0, 0.05)


def test_stitches_share_the_passes_of_front_and_end_and_are_measured_as_alone() -> None:
    front, end, shown = conv_net(0), conv_net(1), images(40, seed=5)
    fitted = list(fit_all(front, end).values())
    calls = []
    handles = [
        net.segments[0].register_forward_hook(lambda *_: calls.append(1)) for net in (fitted[0].front, front, end)
    ]
    together = evaluate(fitted, front, end, shown, "cpu")
    assert len(calls) == 3, (
        "the front that the stitches share, the front for its own accuracy, and the end: one batch each"
    )
    for handle in handles:
        handle.remove()
    for fit in fitted:
        alone = evaluate([fit], front, end, shown, "cpu")[fit.objective]
        assert repr(alone.columns) == repr(together[fit.objective].columns), "NaN is no equal of itself"
        torch.testing.assert_close(alone.h, fit.net(shown.images.float() / 255))

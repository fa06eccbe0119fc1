"""Capacity and exact solutions against independent solvers, and sums of objectives by their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from stitching_chains import Chain, conv_net
from torch import Tensor, nn

from raystitch.config import FitConfig, StitchConfig
from raystitch.data import ImageSet
from raystitch.errors import InputError
from raystitch.nets import Point, fingerprint
from raystitch.stitching import (
    affine_diagnostics,
    fit_stitches,
    fula_loss,
    hard_label_loss,
    initialise,
    make_stitch,
    match_loss,
    soft_label_loss,
)
from raystitch.stitching.exact import solve_exactly
from raystitch.stitching.objectives import batch_loss, reach, targets


def vectors(first: int, second: int, **stitch: object):
    ends = Point(1, "a", "vector", (first,)), Point(1, "b", "vector", (second,))
    return make_stitch(*ends, config=StitchConfig(**stitch))


def rows(count: int, width: int, seed: int) -> Tensor:
    """Correlated, far from centred, of very different scales."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(count, width, generator=generator) @ torch.randn(width, width, generator=generator)
    return (mixed + 5) * torch.logspace(0, -2, width)


def best_of_rank(x: Tensor, y: Tensor, rank: int) -> np.ndarray:
    """Predictions of the best matrix of a rank: least squares, then a truncated SVD of what it predicts."""
    a, b = x.double().numpy(), y.double().numpy()
    left, values, right = np.linalg.svd(a @ np.linalg.lstsq(a, b, rcond=None)[0], full_matrices=False)
    return left[:, :rank] * values[:rank] @ right[:rank]


def with_ones(x: Tensor) -> np.ndarray:
    return np.concatenate([x.double().numpy(), np.ones((len(x), 1))], axis=1)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_low_rank_starts_as_the_truncated_optimum(rank):
    x, y = rows(200, 9, 0), rows(200, 5, 1) + rows(200, 9, 0)[:, :5]
    stitch = vectors(9, 5, kind="low_rank", rank=rank)
    initialise(stitch, "pinv", x, y, seed=0)
    np.testing.assert_allclose(stitch(x).detach().numpy(), best_of_rank(x, y, rank), rtol=2e-3, atol=2e-3)
    assert affine_diagnostics(stitch)[0] <= rank
    gram_down, gram_up = (f.detach() for f in (stitch.channels.down, stitch.channels.up))
    torch.testing.assert_close(gram_down @ gram_down.T, gram_up.T @ gram_up, rtol=1e-3, atol=1e-4)  # balanced


def test_an_mlp_starts_as_the_affine_map_it_can_hold():
    x, y = rows(200, 9, 0), rows(200, 5, 1)
    affine, wide, narrow, low = (
        vectors(9, 5, **kind)
        for kind in ({}, {"kind": "mlp", "width": 23}, {"kind": "mlp", "width": 7}, {"kind": "low_rank", "rank": 3})
    )
    for stitch in (affine, wide, narrow, low):
        initialise(stitch, "pinv", x, y, seed=0)
    torch.testing.assert_close(wide(x), affine(x), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(narrow(x), low(x), rtol=1e-4, atol=1e-3)
    assert affine_diagnostics(wide) == (None, None)
    assert wide.channels.first_weight[10:].any(1).all()  # units left over can start to learn: they have inputs …
    assert not wide.channels.second_weight[:, 10:].any()  # … but no output yet


@pytest.mark.parametrize("stitch", [{"kind": "low_rank", "rank": 2}, {"kind": "mlp", "width": 4}])
def test_identity_lets_the_first_features_pass(stitch):
    x = torch.randn(20, 4)
    map_ = vectors(4, 3, **stitch)
    initialise(map_, "identity", x, None, seed=0)
    torch.testing.assert_close(map_(x), torch.cat([x[:, :2], torch.zeros(20, 1)], dim=1))


@pytest.mark.parametrize("kind", [{"kind": "low_rank", "rank": 2}, {"kind": "mlp", "width": 6}])
def test_conv_and_token_forms_are_the_same_map(kind):
    conv = make_stitch(Point(1, "a", "conv", (4, 3, 3)), Point(1, "b", "conv", (5, 3, 3)), config=StitchConfig(**kind))
    token = make_stitch(Point(1, "a", "token", (9, 4)), Point(1, "b", "token", (9, 5)), config=StitchConfig(**kind))
    z = torch.randn(2, 4, 3, 3)
    initialise(conv, "random", z, None, seed=4)
    initialise(token, "random", z.flatten(2).mT, None, seed=4)
    torch.testing.assert_close(conv(z).flatten(2).mT, token(z.flatten(2).mT))


def test_a_rank_that_restricts_nothing_is_refused():
    with pytest.raises(InputError, match="use a rank up to 3, or affine"):
        vectors(4, 3, kind="low_rank", rank=4)


def exact(stitch, x: Tensor, y: Tensor, batch: int = 32):
    return solve_exactly(stitch, lambda: zip(x.split(batch), y.split(batch), strict=True))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_the_exact_solution_is_numpys(offset):
    x, y = rows(200, 9, 0) + offset, rows(200, 5, 1)
    stitch = vectors(9, 5)
    report, loss = exact(stitch, x, y)
    expected = np.linalg.lstsq(with_ones(x), y.double().numpy(), rcond=None)[0]
    tolerance = 1e-4 if offset == 0 else 0.02  # float32 rows of 1000 ± 1
    np.testing.assert_allclose(stitch.matrix.numpy(), expected[:-1].T, rtol=tolerance, atol=tolerance)
    least = np.linalg.norm(with_ones(x) @ expected - y.numpy()) / np.linalg.norm(y.numpy())
    assert loss == pytest.approx(least, rel=1e-3)
    centred = np.linalg.svd(x.double().numpy() - x.double().numpy().mean(0), compute_uv=False)
    assert report == pytest.approx((9, centred[0] / centred[-1]), rel=1e-3)


def test_the_exact_solution_of_dead_and_repeated_channels_predicts_the_same():
    x = rows(60, 6, 0).clone()
    x[:, 2], x[:, 5] = 0, x[:, 1]
    y, stitch = rows(60, 4, 1), vectors(6, 4)
    report, _ = exact(stitch, x, y)
    assert report.rank == 4
    predicted = with_ones(x) @ np.linalg.lstsq(with_ones(x), y.double().numpy(), rcond=None)[0]
    np.testing.assert_allclose(stitch(x).detach().numpy(), predicted, rtol=1e-3, atol=1e-3)


def test_the_exact_low_rank_solution_is_the_truncated_optimum():
    x, y = rows(200, 9, 0), rows(200, 5, 1)
    stitch = vectors(9, 5, kind="low_rank", rank=2)
    exact(stitch, x, y)
    expected = best_of_rank(x - x.mean(0), y - y.mean(0), 2) + y.mean(0).numpy()
    np.testing.assert_allclose(stitch(x).detach().numpy(), expected, rtol=2e-3, atol=2e-3)


def images(count: int = 72, seed: int = 0) -> ImageSet:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return ImageSet(pixels, torch.randint(4, (count,), generator=generator), 4)


def fit(front, end, objectives, points=(1, 2), protocol="matched", **recipe):
    config = FitConfig(**{"epochs": 3, "batch": 16, "lr": 1e-2} | recipe)
    data, start = images(), images(40, seed=1).images
    return fit_stitches(front, end, *points, objectives, data, start, config, protocol, "real", seed=3)


@torch.no_grad()
def whole_error(fitted, end: Chain) -> float:
    x = images().images.float() / 255
    return float(match_loss(fitted.trace(x)[0], end.run(x, 0, fitted.end_point)))


def test_exact_matching_is_never_worse_than_trained():
    front, end = conv_net(0), conv_net(1, width=5)
    fits = fit(front, end, ("dm", "dm_exact", "hlm"), epochs=20)
    exact_error, trained = whole_error(fits["dm_exact"], end), whole_error(fits["dm"], end)
    assert tuple(fits) == ("dm", "dm_exact", "hlm")
    assert exact_error <= trained
    assert fits["dm_exact"].train_loss == [pytest.approx(exact_error, rel=1e-5)]
    alone = fit(front, end, ("dm_exact",), epochs=1)["dm_exact"]
    assert torch.equal(alone.stitch.matrix, fits["dm_exact"].stitch.matrix)
    assert not any(p.requires_grad for p in alone.stitch.parameters())
    assert torch.equal(fit(front, end, ("dm",), epochs=20)["dm"].stitch.matrix, fits["dm"].stitch.matrix)


def test_a_channel_rotated_copy_is_matched_exactly_by_training_nothing():
    net, turned = conv_net(0), conv_net(0)
    there = nn.Conv2d(6, 6, 1)
    with torch.no_grad():
        there.weight.copy_(
            torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0][..., None, None]
        )
    turned.segments[1] = nn.Sequential(turned.segments[1], there)
    assert whole_error(fit(net, turned, ("dm_exact",), (2, 2))["dm_exact"], turned) < 1e-5


@pytest.mark.parametrize("protocol", ["matched", "paper"])
def test_an_identity_stitch_to_itself_is_the_end_model_exactly(protocol):
    net, x = conv_net(0), torch.rand(9, 3, 8, 8)
    for name, fitted in fit(net, net, ("hlm", "fula+slm"), (2, 2), protocol, stitch="identity").items():
        assert len(fitted.train_loss) == 3
        if protocol == "matched":
            assert torch.equal(fitted.logits(x), net(x))
            assert name == "hlm" or max(fitted.train_loss) < 1e-5


@pytest.mark.parametrize("stitch", [{"kind": "low_rank", "rank": 2}, {"kind": "mlp", "width": 16}, {"kind": "affine"}])
@pytest.mark.parametrize("end", ["conv", "vector"])
def test_every_capacity_learns_and_freezes_nothing_else(stitch, end):
    front, target = conv_net(0), conv_net(1)
    if end == "vector":
        parts = list(target.segments)
        target = Chain([*parts[:3], nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(6, 4)])
    before = fingerprint(front), fingerprint(target)
    for fitted in fit(front, target, ("dm", "slm"), (1, target.n), stitch=stitch, init="random", epochs=8).values():
        assert fitted.train_loss[-1] < fitted.train_loss[0]
    assert (fingerprint(front), fingerprint(target)) == before


def test_what_is_not_exact_is_refused():
    front, end = conv_net(0), conv_net(1)
    with pytest.raises(InputError, match="objectives = 'dm_exact': an mlp stitch has no closed-form"):
        fit(front, end, ("dm_exact",), stitch={"kind": "mlp", "width": 4})
    with pytest.raises(InputError, match="under protocol paper"):
        fit(front, end, ("dm_exact",), protocol="paper")
    vector = Chain([nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), nn.Linear(3, 4)])
    with pytest.raises(InputError, match="between unlike kinds"):
        fit(front, vector, ("dm_exact",), (1, 1))


def test_what_sums_need():
    assert targets("fula@1", 2, 5) == (2, 3)
    assert targets("fula@9", 2, 5) == (2, 3, 4, 5)
    assert targets("fula@1+slm", 2, 5) == (2, 3, 6)
    assert targets("dm+hlm", 2, 5) == targets("dm_exact", 2, 5) == (2,)
    assert [reach(name, 2, 5) for name in ("fula@1", "fula@9", "dm+fula@2", "dm+hlm", "dm_exact")] == [3, 5, 4, 6, 2]


def test_sums_are_weighted_sums_of_their_terms():
    stitched, own = (
        [torch.rand(6, 4, generator=torch.Generator().manual_seed(s + k)) for k in range(4)] for s in (0, 9)
    )
    labels = torch.arange(6) % 4

    def loss(name: str) -> float:
        needed = targets(name, 1, 3)
        return float(batch_loss(name, stitched[: reach(name, 1, 3)], [own[k - 1] for k in needed], labels))

    parts = {
        "hlm": float(hard_label_loss(stitched[3], labels)),
        "slm": float(soft_label_loss(stitched[3], own[3])),
        "dm": float(match_loss(stitched[0], own[0])),
        "fula": float(fula_loss(stitched[:3], own[:3])),
        "fula@1": (float(match_loss(stitched[0], own[0])) + float(match_loss(stitched[1], own[1]))) / 2,
    }
    for name, value in parts.items():
        assert loss(name) == pytest.approx(value, rel=1e-6)
    assert loss("fula@0") == parts["dm"]
    assert loss("fula@2") == pytest.approx(parts["fula"])
    for a, b in (("fula", "slm"), ("dm", "hlm"), ("fula@1", "fula"), ("hlm", "slm")):
        assert loss(f"0.5*{a}+3*{b}") == pytest.approx(0.5 * parts[a] + 3 * parts[b], rel=1e-5)
    assert loss("fula+fula") == pytest.approx(2 * parts["fula"])
    assert math.isfinite(loss("hlm+slm+dm+fula"))


def test_a_depth_that_reaches_the_last_point_is_fula_and_none_is_direct_matching():
    front, end = conv_net(0), conv_net(1)
    fits = fit(front, end, ("fula", "fula@2", "fula@0", "fula@1"), (1, 1))
    assert tuple(fits) == ("fula", "fula@2", "dm", "fula@1")
    assert fits["fula"].train_loss == fits["fula@2"].train_loss
    assert torch.equal(fits["dm"].stitch.matrix, fit(front, end, ("dm",), (1, 1))["dm"].stitch.matrix)
    assert fits["fula@1"].train_loss not in (fits["fula"].train_loss, fits["dm"].train_loss)

"""Initialisation against float64 least squares, on activations that are well behaved and on such that are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from stitching_chains import conv_net
from torch import Tensor, nn

from raystitch.nets import Point
from raystitch.stitching import initialise, make_stitch, match_loss
from raystitch.stitching.initialise import initialise_from


def vectors(width_in: int, width_out: int):
    return make_stitch(Point(1, "a", "vector", (width_in,)), Point(1, "b", "vector", (width_out,)))


def relu_rows(count: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).relu()


def least_squares(x: Tensor, y: Tensor) -> Tensor:
    """Predictions of the best linear map, in float64, by an independent solver."""
    a, b = x.double().numpy(), y.double().numpy()
    return torch.from_numpy(a @ np.linalg.lstsq(a, b, rcond=1e-6)[0]).float()


def cases() -> dict[str, Tensor]:
    full = relu_rows(200, 12)
    dead = full.clone()
    dead[:, [0, 5, 11]] = 0
    twins = torch.cat([full, full[:, :4]], dim=1)
    mixed = full[:, :5] @ relu_rows(5, 12, seed=3)
    return {
        "full rank": full,
        "dead channels": dead,
        "repeated channels": twins,
        "low rank": mixed,
        "fewer samples than features": relu_rows(9, 12),
        "tiny": full * 1e-6,
        "huge": full * 1e6,
        "nearly dead channel": full * torch.tensor([1e-4] + [1.0] * 11),
    }


@pytest.mark.parametrize("case", cases())
def test_pinv_predicts_what_least_squares_predicts(case):
    x = cases()[case]
    y = relu_rows(len(x), 7, seed=1)
    stitch = vectors(x.shape[1], 7)
    initialise(stitch, "pinv", x, y, seed=0)
    assert torch.isfinite(stitch.channels.weight).all()
    assert torch.equal(stitch.channels.bias, torch.zeros(7))
    assert match_loss(stitch(x), least_squares(x, y)) < (1e-3 if case == "nearly dead channel" else 1e-5)


def test_pinv_of_a_deficient_problem_is_the_smallest_solution():
    x, y = relu_rows(9, 12), relu_rows(9, 7, seed=1)
    stitch = vectors(12, 7)
    initialise(stitch, "pinv", x, y, seed=0)
    expected = torch.from_numpy(np.linalg.pinv(x.double().numpy()) @ y.double().numpy()).T.float()
    torch.testing.assert_close(stitch.matrix, expected, rtol=1e-4, atol=1e-5)


def test_silent_front_gives_zeros():
    stitch = vectors(5, 3)
    report = initialise(stitch, "pinv", torch.zeros(20, 5), torch.rand(20, 3), seed=0)
    assert report == (0, math.inf)
    assert torch.equal(stitch(torch.zeros(2, 5)), torch.zeros(2, 3))


@pytest.mark.parametrize("how", ["pinv", "random", "identity"])
@pytest.mark.parametrize("values", [[4.0, 2.0, 1.0, 0.5], [3.0, 1e-3, 0.0, 0.0], [1.0, 0.1, 1e-8, 0.0]])
def test_rank_and_condition_of_a_constructed_front(how, values):
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((30, 4)))[0]
    right = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    x = torch.from_numpy(left @ np.diag(values) @ right)
    rank, condition = initialise(vectors(4, 2), how, x, torch.rand(30, 2), seed=0)
    present = [value for value in values if value > 1e-6 * values[0]]
    assert rank == len(present)
    assert condition == pytest.approx(present[0] / present[-1], rel=1e-4)


def test_batches_add_up_to_the_whole():
    x, y = relu_rows(50, 6), relu_rows(50, 4, seed=1)
    whole, parts = vectors(6, 4), vectors(6, 4)
    report = initialise(whole, "pinv", x, y, seed=0)
    assert initialise_from(parts, "pinv", zip(x.split(16), y.split(16), strict=True), 0) == pytest.approx(report)
    torch.testing.assert_close(whole.matrix, parts.matrix)


def test_conv_pinv_works_on_the_resized_front():
    z_front = torch.rand(20, 3, 8, 8)
    stitch = make_stitch(Point(1, "a", "conv", (3, 8, 8)), Point(1, "b", "conv", (3, 4, 4)))
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))[0]
    z_end = torch.einsum("oi,bihw->bohw", turn, stitch.resize(z_front))
    initialise(stitch, "pinv", z_front, z_end, seed=0)
    torch.testing.assert_close(stitch.matrix, turn, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("point", [1, 2, 3])
def test_a_channel_rotated_copy_is_matched_exactly(point):
    net, turned = conv_net(0), conv_net(0)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0]
    there, back = nn.Conv2d(6, 6, 1, bias=False), nn.Conv2d(6, 6, 1, bias=False)
    with torch.no_grad():
        there.weight.copy_(turn[:, :, None, None])
        back.weight.copy_(turn.T[:, :, None, None])
    turned.segments[point - 1] = nn.Sequential(turned.segments[point - 1], there)
    turned.segments[point] = nn.Sequential(back, turned.segments[point])
    x, unseen = torch.rand(64, 3, 8, 8), torch.rand(16, 3, 8, 8)
    stitch = make_stitch(net.points[point - 1], turned.points[point - 1])
    with torch.no_grad():
        initialise(stitch, "pinv", net.run(x, 0, point), turned.run(x, 0, point), seed=0)
        z = stitch(net.run(unseen, 0, point))
        assert match_loss(z, turned.run(unseen, 0, point)) < 1e-4
        torch.testing.assert_close(turned.run(z, point, turned.n + 1), net(unseen), rtol=1e-3, atol=1e-4)


def test_random_depends_on_the_seed_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    weights = []
    for seed in (1, 1, 2):
        stitch = vectors(9, 4)
        initialise(stitch, "random", torch.rand(20, 9), None, seed=seed)
        weights.append(stitch.matrix.clone())
        assert stitch.matrix.abs().max() <= 1 / 3
        torch.rand(3)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    torch.random.set_rng_state(before)


@pytest.mark.parametrize(("width_in", "width_out"), [(4, 4), (4, 6), (6, 4)])
def test_identity_is_as_much_of_it_as_fits(width_in, width_out):
    stitch = vectors(width_in, width_out)
    initialise(stitch, "identity", torch.rand(20, width_in), None, seed=0)
    assert torch.equal(stitch.matrix, torch.eye(width_out, width_in))
    assert not stitch.channels.bias.any()


def test_representations_that_are_not_finite_are_named():
    with pytest.raises(FloatingPointError, match="representations of the initialisation images"):
        initialise(vectors(3, 2), "pinv", torch.full((5, 3), math.nan), torch.rand(5, 2), seed=0)

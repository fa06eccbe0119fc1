"""The affine map itself: its shapes, what it refuses, and the diagnostics of its matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from raystitch.errors import InputError
from raystitch.nets import Point
from raystitch.stitching import Stitch, affine_diagnostics, make_stitch


def conv(*shape: int) -> Point:
    return Point(1, "layer1", "conv", shape)


def token(*shape: int) -> Point:
    return Point(1, "blocks.0", "token", shape)


def vector(width: int) -> Point:
    return Point(1, "pool", "vector", (width,))


def filled(stitch: Stitch) -> Stitch:
    with torch.no_grad():
        for parameter in stitch.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return stitch


def test_conv_resizes_and_then_maps_channels():
    stitch = filled(make_stitch(conv(3, 8, 8), conv(5, 4, 4)))
    z = torch.randn(2, 3, 8, 8)
    small = F.interpolate(z, (4, 4), mode="bilinear", align_corners=False)
    assert torch.equal(stitch.resize(z), small)
    expected = torch.einsum("oi,bihw->bohw", stitch.matrix, small) + stitch.channels.bias[:, None, None]
    torch.testing.assert_close(stitch(z), expected)
    assert torch.equal(stitch(z), stitch.apply_trainable(stitch.resize(z)))


def test_equal_sizes_are_not_resized():
    z = torch.randn(2, 3, 4, 4)
    assert make_stitch(conv(3, 4, 4), conv(5, 4, 4)).resize(z) is z


@pytest.mark.parametrize(("make", "lead"), [(token, (7,)), (token, (2, 3)), (lambda width: vector(width), ())])
def test_tokens_and_vectors_share_one_linear_map(make, lead):
    stitch = filled(make_stitch(make(*lead, 3), make(*lead, 5)))
    z = torch.randn(2, *lead, 3)
    torch.testing.assert_close(stitch(z), z @ stitch.matrix.T + stitch.channels.bias)


def test_rows_are_what_the_matrix_acts_on():
    for stitch, z in (
        (filled(make_stitch(conv(3, 4, 4), conv(5, 4, 4))), torch.randn(2, 3, 4, 4)),
        (filled(make_stitch(token(7, 3), token(7, 5))), torch.randn(2, 7, 3)),
        (filled(make_stitch(vector(3), vector(5))), torch.randn(2, 3)),
    ):
        torch.testing.assert_close(stitch.rows(stitch(z)), stitch.rows(z) @ stitch.matrix.T + stitch.channels.bias)


@pytest.mark.parametrize(
    ("front", "end", "said"),
    [
        (token(35, 3), token(64, 3), "35 tokens without a grid cannot be brought to 8×8 patches"),
        (conv(3, 4, 4), token(35, 3), "4×4 patches cannot be brought to 35 tokens without a grid"),
        (token(65, 3), token(35, 3), "1 prefix tokens and 8×8 patches cannot be brought to 35 tokens without a grid"),
    ],
)
def test_impossible_pairs_are_refused_in_one_line(front, end, said):
    with pytest.raises(InputError) as error:
        make_stitch(front, end, "settings.seeds")
    assert str(error.value).startswith("settings.seeds = ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("shape", "values"), [((6, 4), [5.0, 2.0, 1.0, 0.5]), ((3, 7), [1.0, 1e-2, 1e-5])])
def test_rank_and_condition_of_a_constructed_matrix(shape, values):
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in shape)
    core = np.zeros(shape)
    np.fill_diagonal(core, values)
    stitch = make_stitch(vector(shape[1]), vector(shape[0]))
    with torch.no_grad():
        stitch.channels.weight.copy_(torch.from_numpy(left @ core @ right))
    rank, condition = affine_diagnostics(stitch)
    assert rank == sum(value > 1e-3 * values[0] for value in values)
    assert condition == pytest.approx(values[0] / values[-1], rel=2e-2)


def test_a_zero_matrix_has_rank_zero_and_infinite_condition():
    assert affine_diagnostics(make_stitch(vector(3), vector(4))) == (0, math.inf)

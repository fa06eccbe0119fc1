"""All nine pairs of kinds: where each position comes from, worked out by hand, and exact round trips."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raystitch.config import StitchConfig
from raystitch.errors import InputError
from raystitch.nets import Point
from raystitch.stitching import affine_diagnostics, initialise, make_stitch, match_loss
from raystitch.stitching.layout import Layout, layout_map, layout_of

POINTS = {
    "conv": Point(1, "layer1", "conv", (5, 4, 4)),
    "token": Point(1, "blocks.0", "token", (10, 6)),  # a class token and 3×3 patches
    "grid": Point(1, "stages.0", "token", (2, 2, 7)),
    "vector": Point(1, "pool", "vector", (8,)),
}


def point(kind: str, *shape: int) -> Point:
    return Point(1, kind, kind, shape)


def turn(width: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))[0]


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((64, 3), Layout(0, 64, (8, 8))),
        ((65, 3), Layout(1, 64, (8, 8))),
        ((198, 3), Layout(2, 196, (14, 14))),  # distilled: two
        ((261, 3), Layout(5, 256, (16, 16))),  # a class token and four registers
        ((35, 3), Layout(0, 35)),
        ((7, 9, 3), Layout(0, 63, (7, 9))),
    ],
)
def test_class_tokens_are_what_is_beyond_a_square(shape, layout):
    assert layout_of(point("token", *shape)) == layout


@pytest.mark.parametrize(("front", "end"), list(itertools.product(POINTS, POINTS)))
def test_every_pair_has_a_stitch_of_the_right_shape(front, end):
    stitch = make_stitch(POINTS[front], POINTS[end])
    z = torch.rand(3, *POINTS[front].shape)
    initialise(stitch, "random", z, None, seed=0)
    out = stitch(z)
    assert out.shape == (3, *POINTS[end].shape)
    assert (stitch.mix is not None) == (POINTS[front].kind != POINTS[end].kind)
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in stitch.parameters())


@pytest.mark.parametrize(("front", "end"), list(itertools.product(POINTS, POINTS)))
def test_every_position_is_an_affine_image_of_a_mean_of_positions(front, end):
    """So constant representations stay constant, in whichever layout."""
    stitch = make_stitch(POINTS[front], POINTS[end])
    first, second = (POINTS[name].shape[0 if name == "conv" else -1] for name in (front, end))
    row = torch.rand(first)
    shape = [first, 1, 1] if front == "conv" else [1] * (len(POINTS[front].shape) - 1) + [first]
    z = row.view(shape).expand(2, *POINTS[front].shape)
    initialise(stitch, "random", z, None, seed=0)
    expected = stitch.matrix @ row + stitch.channels.bias.detach()
    rows = stitch.end_rows(stitch(z).detach())
    torch.testing.assert_close(rows, expected.expand(len(rows), second), rtol=1e-4, atol=1e-5)


def test_where_each_position_comes_from():
    vit, plain, vector = Layout(1, 4, (2, 2)), Layout(0, 4, (2, 2)), Layout(1, 0)
    assert torch.equal(layout_map(vit, vit), torch.eye(5))
    assert layout_map(plain, vector).tolist() == [[0.25] * 4]  # global average pooling
    assert layout_map(vit, vector).tolist() == [[1, 0, 0, 0, 0]]  # the class token
    assert layout_map(vector, vit).tolist() == [[1]] * 5
    assert torch.equal(layout_map(vit, plain), torch.eye(5)[1:])
    assert layout_map(plain, vit).tolist() == [[0.25] * 4, *torch.eye(4).tolist()]
    registers = layout_map(vit, Layout(3, 4, (2, 2)))
    assert torch.equal(registers, torch.eye(5)[[0, 0, 0, 1, 2, 3, 4]])
    assert torch.equal(layout_map(Layout(3, 4, (2, 2)), vit), torch.eye(7)[[0, 3, 4, 5, 6]])


@pytest.mark.parametrize(("before", "after"), [((8, 8), (4, 4)), ((4, 4), (14, 14)), ((7, 5), (3, 9))])
def test_patches_are_resized_as_conv_maps_are(before, after):
    z = torch.rand(2, 3, *before)
    expected = F.interpolate(z, after, mode="bilinear", align_corners=False).flatten(2).mT
    rows = layout_map(Layout(0, before[0] * before[1], before), Layout(0, after[0] * after[1], after))
    torch.testing.assert_close(rows @ z.flatten(2).mT, expected)


def test_tokens_of_another_count_are_resized_and_class_tokens_kept():
    stitch = make_stitch(point("token", 17, 6), point("token", 5, 6))
    z = torch.rand(2, 17, 6)
    initialise(stitch, "identity", z, None, seed=0)
    patches = F.interpolate(z[:, 1:].mT.unflatten(2, (4, 4)), (2, 2), mode="bilinear", align_corners=False)
    torch.testing.assert_close(stitch(z)[:, 0], z[:, 0])
    torch.testing.assert_close(stitch(z)[:, 1:], patches.flatten(2).mT)
    assert len(list(stitch.parameters())) == 2


@pytest.mark.parametrize("tokens", [16, 17])
def test_token_to_conv_to_token_is_a_round_trip_on_the_grid(tokens):
    token, conv = point("token", tokens, 6), point("conv", 6, 4, 4)
    there, back = make_stitch(token, conv), make_stitch(conv, token)
    z = torch.rand(3, tokens, 6)
    for stitch, example in ((there, z), (back, torch.rand(3, 6, 4, 4))):
        initialise(stitch, "identity", example, None, seed=0)
    patches = z[:, tokens - 16 :]
    torch.testing.assert_close(there(z), patches.mT.unflatten(2, (4, 4)))
    torch.testing.assert_close(back(there(z))[:, tokens - 16 :], patches)
    if tokens == 17:
        torch.testing.assert_close(back(there(z))[:, 0], patches.mean(1))  # the class token is the pooled grid


@pytest.mark.parametrize(
    ("front", "end"), [("token", "vector"), ("conv", "vector"), ("conv", "token"), ("token", "conv")]
)
def test_pinv_finds_a_rotation_behind_the_map_over_positions(front, end):
    width = {"conv": (6, 4, 4), "token": (17, 6), "vector": (6,)}
    stitch = make_stitch(point(front, *width[front]), point(end, *width[end]))
    z = torch.rand(40, *width[front], generator=torch.Generator().manual_seed(1))
    initialise(stitch, "identity", z, None, seed=0)
    with torch.no_grad():
        moved = stitch(z)
        target = torch.einsum("oi,bi...->bo...", turn(6), moved) if end == "conv" else moved @ turn(6).T
        report = initialise(stitch, "pinv", z, target, seed=0)
        assert match_loss(stitch(z), target) < 1e-5
    torch.testing.assert_close(stitch.matrix, turn(6), rtol=1e-4, atol=1e-4)
    assert report.rank == affine_diagnostics(stitch)[0] == 6


def test_identity_rearranges_but_neither_trains_nor_resizes():
    z = torch.rand(2, 6, 4, 4)
    stitch = make_stitch(point("conv", 6, 4, 4), point("token", 16, 6), config=StitchConfig(kind="identity"))
    initialise(stitch, "pinv", z, torch.rand(2, 16, 6), seed=0)
    assert torch.equal(stitch(z), z.flatten(2).mT)
    assert not list(stitch.parameters())
    assert affine_diagnostics(stitch) == (6, 1.0)
    for end in (point("conv", 6, 2, 2), point("conv", 5, 4, 4), point("token", 17, 6), point("vector", 6)):
        with pytest.raises(InputError, match="an identity stitch needs equal shapes"):
            make_stitch(point("conv", 6, 4, 4), end, config=StitchConfig(kind="identity"))

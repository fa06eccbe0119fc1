"""Single-sided arms: the end's own stream sees other images than the front, row by row in their place."""

from __future__ import annotations

import pytest
import torch
from stitching_chains import Chain, conv_net
from test_stitching_attack import ATTACK
from test_stitching_fit import ALL, fit, images, recipe, same_values
from test_stitching_paper import ChannelMeans
from torch import nn

from raystitch.data import ImageSet


def test_equal_images_on_both_sides_are_the_plain_arm():
    front, end, data = conv_net(0), conv_net(1, width=5), images()
    plain = fit(front, end, arm="iri", data=data)
    for arm in ("iri_front", "iri_end"):
        sided = fit(front, end, arm=arm, data=data, end_data=images())
        assert all(same_values(sided[name], plain[name]) for name in ALL)


def colours(count: int = 96) -> ImageSet:
    """Images of one colour each, so that channel means vary."""
    values = torch.randint(256, (count, 3, 1, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return ImageSet(values.expand(-1, -1, 8, 8).clone(), torch.arange(count) % 4, 4)


def exchanged(data: ImageSet) -> ImageSet:
    """The same with channels exchanged, at half the brightness: of their channel means, z ↦ P z / 2."""
    return ImageSet((data.images.float() / 255)[:, [2, 0, 1]] / 2, data.labels, 4)


HALF_PERMUTATION = torch.tensor([[0.0, 0.0, 0.5], [0.5, 0.0, 0.0], [0.0, 0.5, 0.0]])


@pytest.mark.parametrize("budget", [0, 2 << 30])
def test_direct_matching_solves_for_the_map_between_the_two_sides(budget):
    (front, end), data = (Chain([ChannelMeans(), nn.Linear(3, 4)]) for _ in range(2)), colours()
    more = {"data": data, "end_data": exchanged(data), "points": (1, 1), "cache_bytes": budget}
    fitted = fit(front, end, ("dm_exact",), **more)["dm_exact"]
    torch.testing.assert_close(fitted.stitch.matrix, HALF_PERMUTATION, rtol=0, atol=1e-5)
    torch.testing.assert_close(fitted.stitch.channels.bias.detach(), torch.zeros(3), rtol=0, atol=1e-5)
    assert fitted.train_loss[0] < 1e-5


def test_trained_direct_matching_approaches_it_too():
    """It starts from what the two nets make of the same images, which is the identity."""
    (front, end), data = (Chain([ChannelMeans(), nn.Linear(3, 4)]) for _ in range(2)), colours()
    config = recipe(epochs=60, lr=0.05, weight_decay=0)
    more = {"data": data, "points": (1, 1), "config": config}
    fitted, plain = fit(front, end, ("dm",), end_data=exchanged(data), **more), fit(front, end, ("dm",), **more)
    torch.testing.assert_close(fitted["dm"].stitch.matrix, HALF_PERMUTATION, rtol=0, atol=0.02)
    torch.testing.assert_close(plain["dm"].stitch.matrix, torch.eye(3), rtol=0, atol=0.02)


def test_hard_labels_do_not_ask_what_the_end_sees():
    front, end = conv_net(0), conv_net(1)
    plain, sided = fit(front, end, ("hlm",)), fit(front, end, ("hlm",), end_data=images(seed=9))
    assert same_values(plain["hlm"], sided["hlm"])
    others = fit(front, end, ("slm",)), fit(front, end, ("slm",), end_data=images(seed=9))
    assert not same_values(*(found["slm"] for found in others))


def test_images_that_are_no_pairs_are_refused():
    front, end = conv_net(0), conv_net(1)
    for more in ({"end_data": images(71)}, {"end_data": images(), "attack": ATTACK}):
        with pytest.raises(ValueError, match="end_data goes with as many images that are neither attacked nor augm"):
            fit(front, end, **more)
    with pytest.raises(ValueError, match="end_data goes with"):
        fit(front, end, protocol="paper", arm="real", end_data=images())

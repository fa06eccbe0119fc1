"""Fitting: what is frozen stays frozen, what is shared changes nothing, and the steps are those of the recipe."""

from __future__ import annotations

import copy
import importlib
import itertools

import numpy as np
import pytest
import torch
from stitching_chains import Chain, conv_net
from torch import nn

from raystitch.config import FitConfig
from raystitch.data import ImageSet
from raystitch.errors import InputError
from raystitch.nets import build_net, cut, find_points, fingerprint
from raystitch.stitching import Fitted, InitReport, epoch_batches, fit_stitches, learning_rate, make_stitch
from raystitch.stitching.initialise import initialise

ALL = ("hlm", "slm", "dm", "fula")
KINDS = list(itertools.product(("matched", "paper"), ("real", "iri")))


def images(count: int = 72, seed: int = 0, classes: int = 4, size: int = 8) -> ImageSet:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    return ImageSet(pixels, torch.randint(classes, (count,), generator=generator), classes)


def recipe(**changes: object) -> FitConfig:
    return FitConfig(**{"epochs": 3, "batch": 16, "lr": 1e-2, "init_images": 40} | changes)


def fit(front, end, objectives=ALL, protocol="matched", arm="real", data=None, config=None, points=(1, 2), **more):
    data, start = data or images(), images(40, seed=1).images
    return fit_stitches(front, end, *points, objectives, data, start, config or recipe(), protocol, arm, seed=3, **more)


def same_values(one: Fitted, other: Fitted) -> bool:
    parts = zip(one.stitch.parameters(), other.stitch.parameters(), strict=True)
    same_nets = fingerprint(one.front) == fingerprint(other.front) and fingerprint(one.end) == fingerprint(other.end)
    return one.train_loss == other.train_loss and same_nets and all(torch.equal(a, b) for a, b in parts)


@pytest.mark.parametrize(("protocol", "arm"), KINDS)
def test_given_nets_are_untouched_bit_for_bit(protocol, arm):
    def mini(seed: int):
        net = build_net("resnet_mini", 4, {"width": 4}, (0.5,) * 3, (0.5,) * 3, seed=seed)
        return cut(net.train(), find_points(net, 8))

    nets = mini(0), mini(1)
    before = [(fingerprint(net), copy.deepcopy(net.state_dict())) for net in nets]
    fit(*nets, protocol=protocol, arm=arm)
    for net, (print_before, state) in zip(nets, before, strict=True):
        assert fingerprint(net) == print_before
        assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
        assert all(p.requires_grad and p.grad is None for p in net.parameters())
        assert all(m.training for m in net.modules() if isinstance(m, nn.BatchNorm2d))


@pytest.mark.parametrize(("protocol", "arm"), KINDS)
def test_results_are_frozen_in_eval_mode(protocol, arm):
    for fitted in fit(conv_net(0), conv_net(1), protocol=protocol, arm=arm).values():
        for net in (fitted.front, fitted.end, fitted.stitch):
            assert not any(p.requires_grad for p in net.parameters())
        assert not any(m.training for net in (fitted.front, fitted.end) for m in net.modules())


@pytest.mark.parametrize(("protocol", "arm"), KINDS)
def test_an_objective_has_the_same_bits_alone_and_in_a_group(protocol, arm):
    front, end = conv_net(0), conv_net(1, width=5)
    group = fit(front, end, protocol=protocol, arm=arm)
    assert tuple(group) == ALL
    for name in ALL:
        assert same_values(fit(front, end, (name,), protocol, arm)[name], group[name])


@pytest.mark.parametrize("mode", [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)])
def test_modes_of_the_caller_change_nothing(mode):
    front, end, data = conv_net(0), conv_net(1), images()
    expected = fit(front, end, data=data)
    with mode:
        found = fit(front, end, data=data)
    assert all(same_values(found[name], expected[name]) for name in ALL)


def test_unknown_words_and_no_images_are_told():
    front, end, data = conv_net(0), conv_net(1), images()
    with pytest.raises(ValueError, match="protocol 'papr' is none of matched, paper"):
        fit(front, end, protocol="papr")
    with pytest.raises(ValueError, match="arm 'iris' is none of real, iri"):
        fit(front, end, arm="iris")
    with pytest.raises(ValueError, match="init_images: there is no image"):
        fit_stitches(front, end, 1, 2, ALL, data, data.images[:0], recipe(), "matched", "real", 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floating_images_are_float32(dtype):
    front, end, data = conv_net(0), conv_net(1), images()
    expected = fit(front, end, data=data)
    floats = ImageSet((data.images.float() / 255).to(dtype), data.labels, 4)
    found = fit(front, end, data=floats)
    for name in ALL:
        for own, other in zip(found[name].stitch.parameters(), expected[name].stitch.parameters(), strict=True):
            torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-3)


def test_matched_treats_both_arms_alike_and_is_reproducible():
    front, end = conv_net(0), conv_net(1)
    real, iri = fit(front, end, arm="real"), fit(front, end, arm="iri")
    assert all(same_values(real[name], iri[name]) for name in ALL)


@pytest.mark.parametrize("budget", [0, 20_000, 60_000])
def test_caching_changes_rounding_at_most(budget):
    """Kept representations were computed in batches of other composition; nothing else may differ."""
    front, end = conv_net(0), conv_net(1, width=5)
    kept, repeated = fit(front, end), fit(front, end, cache_bytes=budget)
    for name in ALL:
        torch.testing.assert_close(kept[name].stitch.matrix, repeated[name].stitch.matrix, rtol=1e-4, atol=1e-5)
        assert kept[name].train_loss == pytest.approx(repeated[name].train_loss, rel=1e-5, abs=1e-7)
        alone = fit(front, end, (name,), cache_bytes=budget)
        assert same_values(alone[name], repeated[name])


def test_each_image_passes_the_frozen_nets_once():
    seen = {"front": 0, "end": 0}

    def count(name: str):
        return lambda module, args, output: seen.__setitem__(name, seen[name] + len(output))

    front, end = conv_net(0), conv_net(1)
    front.segments[0].register_forward_hook(count("front"))
    end.segments[0].register_forward_hook(count("end"))
    fit(front, end)
    assert seen["front"] == seen["end"] == 40 + 72 + 1  # initialisation, all images, one to learn sizes from
    seen.update(front=0, end=0)
    fit(front, end, ("hlm",), config=recipe(init="identity"))
    assert seen["front"] == 40 + 72 + 1
    assert seen["end"] == 1  # hard labels need nothing of the end's own stream


def test_what_is_kept_is_bounded_by_the_memory_of_the_machine(monkeypatch):
    front, end = conv_net(0), conv_net(1)
    module = importlib.import_module("raystitch.stitching.fit")
    monkeypatch.setattr(module, "memory_share", lambda device: 2 * 20_000)
    small, told = fit(front, end), fit(front, end, cache_bytes=20_000)
    assert all(same_values(small[name], told[name]) for name in ALL)
    passed: list[int] = []
    for net in (front, end):
        net.segments[0].register_forward_hook(lambda module, args, output: passed.append(len(output)))
    counts = []
    for share in (1 << 60, 40_000, 0):
        monkeypatch.setattr(module, "memory_share", lambda device, share=share: share)
        fit(front, end)
        counts.append(sum(passed))
        passed.clear()
    assert counts[0] == 2 * (40 + 72 + 1)
    assert min(counts[1:]) > counts[0], "what is not kept passes again"


def test_an_identity_stitch_to_itself_is_the_end_model():
    net, x = conv_net(0), torch.rand(9, 3, 8, 8)
    for point in (1, 2, 3):
        stitch = make_stitch(net.points[point - 1], net.points[point - 1])
        initialise(stitch, "identity", torch.rand(4, 6, 8, 8), None, seed=0)
        fitted = Fitted("hlm", stitch, net, net, point, point, InitReport(6, 1.0))
        assert torch.equal(fitted.logits(x), net(x))
        traced = fitted.trace(x)
        assert all(torch.equal(a, b) for a, b in zip(traced, net.trace(x, 0, 4)[point - 1 :], strict=True))


def test_fula_at_the_last_point_is_direct_matching():
    fits = fit(conv_net(0), conv_net(1), ("dm", "fula"), points=(3, 3))
    assert fits["dm"].train_loss == fits["fula"].train_loss
    assert torch.equal(fits["dm"].stitch.matrix, fits["fula"].stitch.matrix)


def test_the_last_partial_batch_is_dropped():
    order = torch.Generator().manual_seed(0)
    batches = list(epoch_batches(72, 16, order))
    assert [len(batch) for batch in batches] == [16] * 4
    assert len(set(torch.cat(batches).tolist())) == 64
    assert not torch.equal(torch.cat(batches), torch.cat(list(epoch_batches(72, 16, order))))


@pytest.mark.parametrize("objective", ALL)
def test_number_of_steps(objective):
    """Under ``paper`` on real images BatchNorm counts its batches: 3 epochs of ⌊72 / 16⌋ steps, up to the logits."""
    fitted = fit(conv_net(0), conv_net(1), (objective,), "paper")[objective]
    counts = [int(s[1].num_batches_tracked) - 20 for s in fitted.end.segments[:3]]
    assert counts == [0, 0, 12]
    assert [int(s[1].num_batches_tracked) - 20 for s in fitted.front.segments[:3]] == [12, 0, 0]


@pytest.mark.parametrize(
    ("epochs", "drops"), [(9, (3, 6)), (30, (10, 20)), (12, (4, 8)), (1, (1, 1)), (2, (1, 2)), (5, (2, 4))]
)
def test_learning_rate_falls_after_a_third_and_two_thirds(epochs, drops):
    config = recipe(epochs=epochs, lr=1.0)
    expected = [0.1 ** sum(epoch >= drop for drop in drops) for epoch in range(epochs)]
    assert [learning_rate(config, epoch) for epoch in range(epochs)] == pytest.approx(expected)


def test_training_is_adam_with_decay_on_weight_and_bias():
    """Direct matching between vectors, against Adam written out in float64."""
    front, end = (Chain([nn.Sequential(nn.Flatten(), nn.Linear(192, w)), nn.Linear(w, 4)]) for w in (3, 2))
    data, config = images(40), recipe(batch=16, epochs=4, init="random", weight_decay=0.3, lr=0.05)
    fitted = fit(front, end, ("dm",), data=data, config=config, points=(1, 1))["dm"]

    stitch = make_stitch(front.points[0], end.points[0])
    initialise(stitch, "random", torch.rand(5, 3), None, seed=3)
    with torch.no_grad():
        x = front.run(data.images.float() / 255, 0, 1).double().numpy()
        y = end.run(data.images.float() / 255, 0, 1).double().numpy()
    theta = np.concatenate(
        [stitch.matrix.double().numpy(), stitch.channels.bias.detach().double().numpy()[:, None]], axis=1
    )
    m, v, step, order = np.zeros_like(theta), np.zeros_like(theta), 0, torch.Generator().manual_seed(3)
    for epoch in range(4):
        rate = 0.05 * (1, 1, 0.1, 0.01)[epoch]
        for index in torch.randperm(40, generator=order)[:32].split(16):
            inputs, step = np.concatenate([x[index], np.ones((16, 1))], axis=1), step + 1
            error = inputs @ theta.T - y[index]
            gradient = error.T @ inputs / (np.linalg.norm(error) * np.linalg.norm(y[index])) + 0.3 * theta
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            theta = theta - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(fitted.stitch.matrix.numpy(), theta[:, :-1], atol=1e-5)
    np.testing.assert_allclose(fitted.stitch.channels.bias.numpy(), theta[:, -1], atol=1e-5)


def test_training_lowers_every_loss():
    config = recipe(epochs=12, init="random", lr=0.03)
    for fitted in fit(conv_net(0), conv_net(1), config=config).values():
        assert len(fitted.train_loss) == 12
        assert fitted.train_loss[-1] < 0.98 * fitted.train_loss[0]


def test_the_cue_is_pasted_by_index_on_the_real_arm():
    front, end, data = conv_net(0), conv_net(1), images()
    marked = ImageSet(255 - data.images, data.labels, 4)

    def paste(batch, labels, index):
        assert torch.equal(labels, data.labels[index])
        assert batch.dtype == torch.float32
        return marked.images[index].float() / 255

    planted, given = fit(front, end, paste=paste, data=data), fit(front, end, data=marked)
    assert all(same_values(planted[name], given[name]) for name in ALL)


def test_float_images_are_taken_as_they_are():
    front, end, data = conv_net(0), conv_net(1), images()
    floats = ImageSet(data.images.float() / 255, data.labels, 4)
    assert all(
        same_values(a, b) for a, b in zip(fit(front, end).values(), fit(front, end, data=floats).values(), strict=True)
    )


def test_impossible_fits_are_refused():
    with pytest.raises(InputError, match=r"fit\.batch = 128: there are 72 images .*; use at most 72"):
        fit(conv_net(0), conv_net(1), config=recipe(batch=128))
    with pytest.raises(InputError, match="front point = 4: this net has points 1 to 3"):
        fit(conv_net(0), conv_net(1), points=(4, 1))
    with pytest.raises(InputError, match="end point = 0: this net has points 1 to 3"):
        fit(conv_net(0), conv_net(1), points=(1, 0))


def test_a_loss_that_is_not_finite_names_objective_and_epoch():
    with pytest.raises(FloatingPointError, match=r"the loss of hlm is .* in epoch"):
        fit(conv_net(0), conv_net(1), ("hlm",), config=recipe(lr=1e30))

"""Stitches trained on adversarial images: what PGD makes of linear nets is known, and nothing but the stitch ever moves."""

from __future__ import annotations

import copy

import pytest
import torch
from stitching_chains import Chain, conv_net
from test_stitching_fit import ALL, KINDS, fit, images, recipe, same_values
from test_stitching_paper import ChannelMeans, norm
from torch import Tensor, nn

from raystitch.config import PgdConfig
from raystitch.data import ImageSet
from raystitch.errors import InputError
from raystitch.nets import build_net, cut, find_points, fingerprint

ATTACK = PgdConfig(steps=3, eps=8 / 255, step=4 / 255)


def watched(net: Chain) -> list[Tensor]:
    """What the net is shown where no gradient is wanted: by the initialisation and by the streams, not by the attack."""
    seen: list[Tensor] = []

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if not torch.is_grad_enabled():
            seen.append(args[0].detach().clone())

    net.segments[0].register_forward_pre_hook(note)
    return seen


def linear(seed: int) -> Chain:
    """Pixels → 6 numbers (point 1) → two classes, without any nonlinearity."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Chain([nn.Sequential(nn.Flatten(), nn.Linear(192, 6)), nn.Linear(6, 2)])


@pytest.mark.parametrize(("protocol", "arm"), KINDS)
def test_given_nets_are_untouched_bit_for_bit(protocol, arm):
    def mini(seed: int):
        net = build_net("resnet_mini", 4, {"width": 4}, (0.5,) * 3, (0.5,) * 3, seed=seed)
        return cut(net.train(), find_points(net, 8))

    nets = mini(0), mini(1)
    before = [(fingerprint(net), copy.deepcopy(net.state_dict())) for net in nets]
    fit(*nets, protocol=protocol, arm=arm, config=recipe(epochs=1), attack=ATTACK)
    for net, (print_before, state) in zip(nets, before, strict=True):
        assert fingerprint(net) == print_before
        assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
        assert all(p.requires_grad and p.grad is None for p in net.parameters())
        assert all(m.training for m in net.modules() if isinstance(m, nn.BatchNorm2d))


@pytest.mark.parametrize(("protocol", "arm"), KINDS)
def test_an_objective_has_the_same_bits_alone_and_in_a_group(protocol, arm):
    front, end = conv_net(0), conv_net(1, width=5)
    group = fit(front, end, protocol=protocol, arm=arm, attack=ATTACK)
    for name in ALL:
        assert same_values(fit(front, end, (name,), protocol, arm, attack=ATTACK)[name], group[name])


@pytest.mark.parametrize("protocol", ["matched", "paper"])
def test_an_attack_without_room_changes_nothing(protocol):
    """Also not which random numbers augmentation and order draw; a real attack does change the stitch."""
    front, end = conv_net(0), conv_net(1, width=5)
    plain = fit(front, end, protocol=protocol)
    tiny = fit(front, end, protocol=protocol, attack=PgdConfig(steps=2, eps=1e-8, step=1e-8))
    real = fit(front, end, protocol=protocol, attack=ATTACK)
    for name in ALL:
        torch.testing.assert_close(tiny[name].stitch.matrix, plain[name].stitch.matrix, rtol=1e-3, atol=1e-4)
        assert not torch.allclose(real[name].stitch.matrix, plain[name].stitch.matrix, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("protocol", ["matched", "paper"])
def test_both_streams_see_every_image_attacked_within_ball_and_box(protocol):
    front, end, data = conv_net(0), conv_net(1), ImageSet(images().images // 255 * 255, images().labels, 4)
    of_front, of_end, pasted = watched(front), watched(end), []

    def paste(batch: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        pasted.append(batch)
        return batch

    fit(front, end, ("fula",), protocol, data=data, paste=paste, attack=ATTACK)
    steps, started = 3 * 4, 3  # the initialisation takes 40 images in three batches
    assert len(pasted) == steps
    assert len(of_front) == len(of_end) == started + steps
    for clean, shown, own in zip(pasted, of_front[started:], of_end[started:], strict=True):
        assert torch.equal(shown, own)
        assert shown.min() >= 0
        assert shown.max() <= 1
        moved = (shown - clean).abs().flatten(1).amax(1)
        assert (moved > 0).all()
        assert moved.max() <= 8 / 255 + 1e-6


def test_on_linear_nets_every_image_goes_to_the_corner_of_its_ball():
    """For two classes the gradient's sign is that of w_other − w_label, w the rows of the stitched net's one matrix."""
    front, end, data = linear(0), linear(1), images(classes=2)
    seen = watched(front)
    config = recipe(stitch={"kind": "identity"}, init="identity")
    fit(front, end, ("dm",), data=data, config=config, points=(1, 1), attack=ATTACK)
    weight = (end.segments[1].weight @ front.segments[0][1].weight).detach()
    clean = data.images.float() / 255
    away = (weight[1 - data.labels] - weight[data.labels]).sign().view_as(clean)
    corners = (clean + 8 / 255 * away).clamp(0, 1)
    for shown in torch.cat(seen[3:]):
        distance = (corners - shown).abs().flatten(1).amax(1)
        assert distance.min() < 1e-6


@pytest.mark.parametrize("objective", ALL)
def test_one_step_on_attacked_images_is_one_step_on_the_corners(objective):
    """The attack of the first step is against the stitch as it starts; here that is the identity."""
    front, end, data = linear(0), linear(1), images(16, classes=2)
    config = recipe(epochs=1, init="identity")
    attacked = fit(front, end, (objective,), data=data, config=config, points=(1, 1), attack=ATTACK)[objective]
    weight = (end.segments[1].weight @ front.segments[0][1].weight).detach()
    clean = data.images.float() / 255
    away = (weight[1 - data.labels] - weight[data.labels]).sign().view_as(clean)
    corners = ImageSet((clean + 8 / 255 * away).clamp(0, 1), data.labels, 2)
    expected = fit(front, end, (objective,), data=corners, config=config, points=(1, 1))[objective]
    torch.testing.assert_close(attacked.stitch.matrix, expected.stitch.matrix)
    assert attacked.train_loss == pytest.approx(expected.train_loss)


@pytest.mark.parametrize("objective", ALL)
def test_statistics_move_once_per_step(objective):
    """3 epochs of ⌊72 / 16⌋ steps; the 3 passes of each attack do not count."""
    fitted = fit(conv_net(0), conv_net(1), (objective,), "paper", attack=ATTACK)[objective]
    assert [int(s[1].num_batches_tracked) - 20 for s in fitted.end.segments[:3]] == [0, 0, 12]
    assert [int(s[1].num_batches_tracked) - 20 for s in fitted.front.segments[:3]] == [12, 0, 0]


def test_paper_attacks_in_eval_mode_and_moves_statistics_by_the_attacked_images():
    """In eval mode these nets are affine in the channel means, so each channel goes ε against the label."""
    colours = torch.rand(8, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8) % 2
    front = Chain([nn.Sequential(ChannelMeans(), norm(0.5, 2.0)), nn.Sequential(norm(0.0, 1.0), nn.Linear(3, 2))])
    end = Chain([nn.Sequential(ChannelMeans(), norm(-1.0, 3.0)), nn.Sequential(norm(-1.0, 3.0), nn.Linear(3, 2))])

    def paste(batch: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        return colours[index][:, :, None, None].expand(-1, -1, 8, 8)

    data = ImageSet(torch.zeros(8, 3, 8, 8, dtype=torch.uint8), labels, 2)
    config = recipe(epochs=1, batch=8, init="identity")
    fitted = fit(front, end, ALL, "paper", data=data, config=config, points=(1, 1), paste=paste, attack=ATTACK)
    weight = end.segments[1][1].weight.detach()
    away = (weight[1 - labels] - weight[labels]).sign()  # the stitch is the identity, and BatchNorm keeps signs
    attacked = (colours + 8 / 255 * away).clamp(0, 1)
    for name in ALL:
        layer = fitted[name].front.segments[0][1]
        torch.testing.assert_close(layer.running_mean, 0.45 + 0.1 * attacked.mean(0))
        torch.testing.assert_close(layer.running_var, 1.8 + 0.1 * attacked.var(0))
    fronts = {id(fitted[name].front) for name in ALL}
    assert len(fronts) == len(ALL), "each objective's images move a front of its own"


def test_training_on_attacked_images_makes_the_stitched_net_robust():
    """Two channels tell the class: one surely, but too weakly to survive the attack, so the stitch must unlearn it."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(256) % 2
    sign = (2 * labels - 1).float()
    pixels = torch.full((256, 3, 8, 8), 0.5)
    pixels[:, 0] += (0.15 * sign + 0.15 * torch.randn(256, generator=generator))[:, None, None]
    pixels[:, 1] += (0.02 * sign)[:, None, None]
    front = Chain([ChannelMeans(), nn.Linear(3, 2)])
    end = Chain([ChannelMeans(), nn.Linear(3, 2)])
    end.segments[1].weight.data = torch.tensor([[-9.0, -9.0, 0.0], [9.0, 9.0, 0.0]])
    data = ImageSet(pixels.clamp(0, 1), labels, 2)
    config = recipe(epochs=60, lr=0.05, batch=64, init="identity", weight_decay=0)
    trust = {}
    for attack in (None, PgdConfig(steps=2, eps=0.04, step=0.04)):
        fitted = fit(front, end, ("hlm",), data=data, config=config, points=(1, 1), attack=attack)["hlm"]
        weight = end.segments[1].weight.detach() @ fitted.stitch.matrix
        difference = weight[1] - weight[0]
        trust[attack is None] = float(difference[1] / difference[0])

    assert trust[True] > 0.5 > 0.25 > abs(trust[False])


def test_what_is_not_trained_cannot_be_attacked():
    with pytest.raises(InputError, match="objectives = 'dm_exact': is solved, not trained"):
        fit(conv_net(0), conv_net(1), ("dm_exact",), attack=ATTACK)

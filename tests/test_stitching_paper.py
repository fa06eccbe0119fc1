"""Protocol ``paper`` on real images: which BatchNorm statistics move, by how much, and which stay (METHOD §5)."""

from __future__ import annotations

import pytest
import torch
from stitching_chains import Chain, conv_net
from torch import Tensor, nn

from raystitch.config import FitConfig
from raystitch.data import ImageSet
from raystitch.nets import build_net, cut, find_points
from raystitch.stitching import Fitted, fit_stitches

COUNT = 8


class ChannelMeans(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def norm(mean: float, variance: float) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(3)
    layer.running_mean.fill_(mean)
    layer.running_var.fill_(variance)
    return layer


def tiny_net(mean: float, variance: float) -> Chain:
    """Channel means → BN (point 1) → BN → logits; so representations are rows of three numbers."""
    return Chain(
        [nn.Sequential(ChannelMeans(), norm(mean, variance)), nn.Sequential(norm(mean, variance), nn.Linear(3, 2))]
    )


@pytest.fixture(scope="module")
def values() -> Tensor:
    return torch.rand(COUNT, 3, generator=torch.Generator().manual_seed(0))


def fit_one_step(values: Tensor, objective: str, front: Chain, end: Chain, **changes: object) -> Fitted:
    """One epoch of one batch. The cue planted after augmentation fills image k with colour ``values[k]``."""

    def paste(images: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        return values[index][:, :, None, None].expand(-1, -1, 8, 8)

    data = ImageSet(torch.zeros(COUNT, 3, 8, 8, dtype=torch.uint8), torch.arange(COUNT) % 2, 2)
    config = FitConfig(**{"epochs": 1, "batch": COUNT, "init": "identity"} | changes)
    start = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8)
    return fit_stitches(front, end, 1, 1, [objective], data, start, config, "paper", "real", 0, paste=paste)[objective]


@pytest.mark.parametrize("objective", ["hlm", "slm", "dm", "fula"])
def test_statistics_move_as_worked_out_by_hand(values, objective):
    fitted = fit_one_step(values, objective, tiny_net(0.5, 2.0), tiny_net(-1.0, 3.0))
    mean, variance = values.mean(0), values.var(0)  # unbiased, as the running variance is
    first = fitted.front.segments[0][1]
    torch.testing.assert_close(first.running_mean, 0.9 * 0.5 + 0.1 * mean)
    torch.testing.assert_close(first.running_var, 0.9 * 2.0 + 0.1 * variance)

    z = (values - mean) / (values.var(0, unbiased=False) + 1e-5).sqrt()  # the identity stitch passes it on
    second = fitted.end.segments[1][0]
    torch.testing.assert_close(second.running_mean, torch.full((3,), -0.9) + 0.1 * z.mean(0))
    torch.testing.assert_close(second.running_var, 0.9 * 3.0 + 0.1 * z.var(0))

    unmoved = fitted.front.segments[1][0], fitted.end.segments[0][1]  # beyond the cut; only on the end's own stream
    for layer, (m, v) in zip(unmoved, ((0.5, 2.0), (-1.0, 3.0)), strict=True):
        assert torch.equal(layer.running_mean, torch.full((3,), m))
        assert torch.equal(layer.running_var, torch.full((3,), v))
        assert int(layer.num_batches_tracked) == 0


def test_the_ends_own_stream_is_normalised_by_batch_statistics(values):
    """Both nets normalise the same values: by batch statistics they agree exactly, by running ones they do not."""
    fitted = fit_one_step(values, "dm", tiny_net(0.5, 2.0), tiny_net(-1.0, 3.0))
    assert fitted.train_loss == [0.0]


def test_evaluation_uses_the_moved_statistics(values):
    fitted = fit_one_step(values, "hlm", tiny_net(0.5, 2.0), tiny_net(-1.0, 3.0))
    first, second, head = fitted.front.segments[0][1], *fitted.end.segments[1]
    z = (values - first.running_mean) / (first.running_var + 1e-5).sqrt()
    z = z @ fitted.stitch.matrix.T + fitted.stitch.channels.bias
    expected = head((z - second.running_mean) / (second.running_var + 1e-5).sqrt())
    torch.testing.assert_close(fitted.logits(values[:, :, None, None].expand(-1, -1, 8, 8)), expected)


def test_each_objective_moves_its_own_end():
    front, end = conv_net(0), conv_net(1)
    data = ImageSet(torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8), torch.arange(64) % 4, 4)
    config = FitConfig(epochs=2, batch=32, lr=0.1)
    fits = fit_stitches(front, end, 1, 1, ["hlm", "dm"], data, data.images, config, "paper", "real", seed=0)
    assert fits["hlm"].front is fits["dm"].front
    for index, same in ((1, False), (2, False)):
        means = [fits[name].end.segments[index][1].running_mean for name in ("hlm", "dm")]
        assert torch.equal(*means) is same
    assert not torch.equal(fits["dm"].front.segments[0][1].running_mean, front.segments[0][1].running_mean)


def test_real_nets_move_their_statistics_too():
    """Cut nets are graphs: their layers must still follow the mode."""
    nets = [build_net("resnet_mini", 4, {"width": 4}, (0.5,) * 3, (0.5,) * 3, seed=seed) for seed in (0, 1)]
    front, end = (cut(net, find_points(net, 8)).eval() for net in nets)
    data = ImageSet(torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8), torch.arange(64) % 4, 4)
    for arm, moved in (("real", True), ("iri", False)):
        fits = fit_stitches(
            front, end, 2, 2, ["fula"], data, data.images, FitConfig(epochs=1, batch=32), "paper", arm, seed=0
        )
        last_before, last_after = (
            [b for n, b in net.named_buffers() if n.endswith("running_mean")][-1] for net in (end, fits["fula"].end)
        )
        assert (not torch.equal(last_before, last_after)) is moved

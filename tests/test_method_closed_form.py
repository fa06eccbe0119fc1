"""The whole method on nets whose answers follow from a few lines of algebra: what IRIs reveal, and what they must not.

Images are single pixels. In the data the first two channels are copies of each other, x = (s, s, ·); the front keeps the first,
f(x) = x₀; the end measures z = α x₀ + (1 − α) x₁ and gives the logits ±k(z − ½)/2, so its probabilities are σ(±k(z − ½)).

On real images z = s whatever α is: the stitch is the identity, and agreement is full. An IRI of the front is (s, u, v) with u
and v the noise that the search began with, as no gradient reaches what the front does not see. There z = α s + (1 − α) u, whose
best affine prediction from s is α s + (1 − α) E[u] with E[u] = ½. Shown a real image, the stitched net has z − ½ = α (s − ½).
"""

from __future__ import annotations

import math

import pytest
import torch
from stitching_chains import Chain
from torch import Tensor, nn

from raystitch.config import FitConfig, IriConfig
from raystitch.data import ImageSet
from raystitch.iris import invert, sample_seed
from raystitch.metrics import compare
from raystitch.nets import CutNet, NormalisedNet, cut, find_points, freeze
from raystitch.stitching import Fitted, fit_stitches, match_loss

K = 3.0
"""Steepness of the logits."""


class Mixes(nn.Module):
    """(B, 3, 1, 1) → (B, rows): fixed weighted sums of the channels."""

    def __init__(self, weights: list[list[float]]) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weights.T


def chain(weights: list[list[float]]) -> Chain:
    """A net of one point; the logits are ±K (z − ½) / 2 of its first feature."""
    head = nn.Linear(len(weights), 2)
    with torch.no_grad():
        head.weight.zero_()
        head.weight[:, 0] = torch.tensor([K, -K]) / 2
        head.bias.copy_(torch.tensor([-K, K]) / 4)
    return freeze(Chain([Mixes(weights), head], size=1))


def end_of(alpha: float) -> Chain:
    return chain([[alpha, 1 - alpha, 0.0]])


FRONT = [[1.0, 0.0, 0.0]]


def pixels(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second, torch.full_like(first, 0.5)], dim=1)[:, :, None, None]


def real(count: int = 64) -> ImageSet:
    """(s, s, ½) with s = 0, 1, 0, 1, …"""
    s = torch.arange(count) % 2
    return ImageSet(pixels(s.float(), s.float()), 1 - s, 2)


def designed_iris(levels: int = 32) -> ImageSet:
    """Every s with every u of a symmetric grid: no correlation and mean ½ exactly, not only in expectation."""
    u = (torch.arange(levels) + 0.5) / levels
    s = torch.arange(2).float()
    return ImageSet(pixels(s.repeat_interleave(levels), u.repeat(2)), 1 - s.long().repeat_interleave(levels), 2)


def fit(front: Chain, end: Chain, data: ImageSet, arm: str, objective: str = "dm_exact", **recipe: object) -> Fitted:
    config = FitConfig(**{"batch": 64, "init_images": 64, "epochs": 1, **recipe})
    start = real().images
    return fit_stitches(front, end, 1, 1, [objective], data, start, config, "matched", arm, seed=1)[objective]


def measure(fitted: Fitted, front: Chain, end: Chain) -> dict[str, float]:
    shown = real()
    with torch.no_grad():
        return compare(fitted.logits(shown.images), end(shown.images), shown.labels, front(shown.images))


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t))


def expected_agreement(alpha: float) -> float:
    """p = σ(±kα/2), q = σ(±k/2): 100 p·q / q·q, as the end's own predictions are the sharper ones (METHOD §7)."""
    p, q = sigmoid(K * alpha / 2), sigmoid(K / 2)
    return 100 * (p * q + (1 - p) * (1 - q)) / (q * q + (1 - q) * (1 - q))


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.6, 1.0])
def test_iris_reveal_by_how_much_what_real_images_hide(alpha: float) -> None:
    front, end = chain(FRONT), end_of(alpha)
    on_real = fit(front, end, real(), "real")
    assert measure(on_real, front, end)["agreement"] == pytest.approx(100, abs=1e-4)
    assert float(on_real.stitch.matrix) == pytest.approx(1, abs=1e-5)

    on_iris = fit(front, end, designed_iris(), "iri")
    assert float(on_iris.stitch.matrix) == pytest.approx(alpha, abs=1e-5)
    assert float(on_iris.stitch.channels.bias) == pytest.approx((1 - alpha) / 2, abs=1e-5)
    assert measure(on_iris, front, end)["agreement"] == pytest.approx(expected_agreement(alpha), abs=1e-3)
    # on real images z is off by (1 − α)/2 everywhere, and ‖ẑ‖² is ½ per image
    shown = real().images
    assert float(match_loss(on_iris.trace(shown)[0], end.run(shown, 0, 1))) == pytest.approx(
        (1 - alpha) / math.sqrt(2), abs=1e-5
    )


def test_what_cannot_be_known_from_the_front_is_the_loss_that_is_left() -> None:
    # z − T(s) = (1 − α)(u − ½); the grid of 32 has variance (1 − 32⁻²)/12, and E[z²] = Var z + ¼ with Var s = ¼
    alpha, variance = 0.25, (1 - 32**-2) / 12
    left = (1 - alpha) ** 2 * variance
    whole = alpha**2 / 4 + left + 1 / 4
    fitted = fit(chain(FRONT), end_of(alpha), designed_iris(), "iri")
    assert fitted.train_loss == [pytest.approx(math.sqrt(left / whole), rel=1e-5)]


@pytest.mark.parametrize("objective", ["dm", "fula", "dm_exact"])
def test_training_finds_what_algebra_finds(objective: str) -> None:
    # the only point is the penultimate one, where FuLA is DM; of one full batch the optimum is that of least squares
    front, end, alpha = chain(FRONT), end_of(0.25), 0.25
    fitted = fit(front, end, designed_iris(), "iri", objective, epochs=600, lr=0.02)
    assert float(fitted.stitch.matrix) == pytest.approx(alpha, abs=0.01)
    assert measure(fitted, front, end)["agreement"] == pytest.approx(expected_agreement(alpha), abs=0.5)


def test_hard_labels_do_not_notice() -> None:
    # the labels follow s, which the front keeps: h gets them right from IRIs although the end does not look at s at all
    front, end = chain(FRONT), end_of(0.0)
    fitted = fit(front, end, designed_iris(), "iri", "hlm", epochs=100, lr=0.05)
    found = measure(fitted, front, end)
    assert found["top1"] == found["top1_end"] == found["agreement_top1"] == 100


def test_a_front_that_sees_more_than_the_end_loses_nothing() -> None:
    # both pixels are kept, so they are equal in IRIs too; the end looks at one of them
    front, end = chain([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), end_of(0.0)
    kept = real()
    iris = ImageSet(kept.images.clone(), kept.labels, 2)
    iris.images[:, 2, 0, 0] = torch.rand(len(kept), generator=torch.Generator().manual_seed(0))
    assert measure(fit(front, end, iris, "iri"), front, end)["agreement"] == pytest.approx(100, abs=1e-3)


@pytest.mark.parametrize("optimiser", [{"optimiser": "adam", "steps": 200}, {"optimiser": "sign_pgd", "steps": 300}])
def test_searched_iris_are_the_exact_ones_up_to_sampling(optimiser: dict) -> None:
    front, end, alpha, shown = chain(FRONT), end_of(0.25), 0.25, real(1024)
    light = shown.images.clamp(0.25, 0.75)  # an all-zero target has no relative error
    seeds = [sample_seed(0, k) for k in range(len(light))]
    config = IriConfig(dtype="float32", **optimiser)
    found = invert(lambda x: front.run(x, 0, 1), light, seeds, config)
    noise = invert(lambda x: front.run(x, 0, 1), light, seeds, IriConfig(steps=1, lr=1e-9)).images
    torch.testing.assert_close(found.images[:, 0], light[:, 0], rtol=0, atol=0.01)
    torch.testing.assert_close(
        found.images[:, 1:], noise[:, 1:], rtol=0, atol=1e-6
    )  # what the front does not see stays
    # slope and mean of 1,024 draws: standard errors (1 − α)·√(1/12) / (√(1/16)·√1024) = 0.027 and 0.007; bounds of four
    fitted = fit(front, end, ImageSet(found.images, shown.labels, 2), "iri")
    assert float(fitted.stitch.matrix) == pytest.approx(alpha, abs=0.11)
    assert float(fitted.stitch.matrix) / 2 + float(fitted.stitch.channels.bias) == pytest.approx(0.5, abs=0.03)
    # dA/dα of the agreement is at most 100 · k/8 · (2q − 1) / (q² + (1 − q)²)
    q = sigmoid(K / 2)
    slope = 100 * K / 8 * (2 * q - 1) / (q * q + (1 - q) ** 2)
    assert measure(fitted, front, end)["agreement"] == pytest.approx(expected_agreement(alpha), abs=0.2 * slope)


class Linear(nn.Module):
    """A point right after a linear layer, whose channels may be turned; the next layer turns them back."""

    def __init__(self, turn: Tensor | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU())
        self.mix = nn.Conv2d(6, 6, 1)
        self.block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(6, 4)
        if turn is not None:
            with torch.no_grad():
                self.mix.weight.copy_(torch.einsum("po,oihw->pihw", turn, self.mix.weight))
                self.mix.bias.copy_(turn @ self.mix.bias)
                self.block[0].weight.copy_(torch.einsum("oihw,pi->ophw", self.block[0].weight, turn))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(self.mix(self.stem(x))).mean((2, 3)))
        return logits


def halves(turn: Tensor | None = None) -> CutNet:
    net = freeze(NormalisedNet(Linear(turn), (0.5,) * 3, (0.25,) * 3))
    return cut(net, find_points(net, 8, ["mix", "block"]))


@pytest.mark.parametrize("arm", ["real", "iri"])
def test_a_channel_rotated_copy_is_the_same_net_on_both_arms(arm: str) -> None:
    # IRIs of the net are IRIs of its copy as well: turning keeps every distance
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0]
    front, end = halves(), halves(turn)
    generator = torch.Generator().manual_seed(2)
    images, unseen = torch.rand(64, 3, 8, 8, generator=generator), torch.rand(64, 3, 8, 8, generator=generator)
    torch.testing.assert_close(front(unseen), end(unseen), rtol=1e-4, atol=1e-5)
    data = images
    if arm == "iri":
        data = invert(lambda x: front.run(x, 0, 1), images, range(64), IriConfig(steps=20)).images
    labels = torch.zeros(64, dtype=torch.int64)
    fits = fit_stitches(
        front,
        end,
        1,
        1,
        ("dm", "fula", "slm", "dm_exact"),
        ImageSet(data, labels, 4),
        images,
        FitConfig(epochs=1, batch=64, init_images=64, lr=1e-6, weight_decay=0),
        "matched",
        "iri" if arm == "iri" else "real",
        seed=1,
    )
    for fitted in fits.values():
        assert fitted.train_loss[0] < 1e-3
        torch.testing.assert_close(fitted.stitch.matrix, turn, rtol=0, atol=2e-2)
        assert float(match_loss(fitted.trace(unseen)[0], end.run(unseen, 0, 1))) < 1e-3
        found = compare(fitted.logits(unseen), end(unseen), labels)
        assert found["agreement"] == pytest.approx(100, abs=1e-2)
        assert found["agreement_top1"] == 100

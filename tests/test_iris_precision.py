"""Steps in bfloat16: residuals and thresholds are those of full precision, and each image is moved as it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from inversion_nets import deep_cut, random_images, sample_seeds
from torch import Tensor, nn

from raystitch.config import IriConfig
from raystitch.iris import invert, residual
from raystitch.iris.start import uniform_start
from raystitch.nets import SoftPrefix


@pytest.mark.parametrize("tolerance", [0.0, 0.3])
def test_mixed_precision_reports_residuals_of_full_precision(tolerance: float) -> None:
    net, images = deep_cut(), random_images(10)
    config = IriConfig(steps=60, precision="mixed", batch=4, tolerance=tolerance, levels=(0.6, 0.3))
    found = invert(SoftPrefix(net, 1), images, sample_seeds(10), config)
    target = net.run(images, 0, 1)
    for kept in (found, *found.levels):
        torch.testing.assert_close(kept.residual, residual(lambda x: net.run(x, 0, 1), kept.images, target))
        assert kept.images.dtype == torch.float32
    exact = invert(SoftPrefix(net, 1), images, sample_seeds(10), config.model_copy(update={"precision": "float32"}))
    assert found.residual.median() < 1.2 * exact.residual.median() + 0.01


def test_mixed_precision_runs_three_quarters_of_the_steps_in_bfloat16() -> None:
    seen: list[torch.dtype] = []

    class Watched(SoftPrefix):
        def __call__(self, x: Tensor, strength: float | Tensor = 0.0) -> Tensor:
            z = super().__call__(x, strength)
            seen.append(z.dtype)
            return z

    invert(Watched(deep_cut(), 1), random_images(2), sample_seeds(2), IriConfig(steps=20, precision="mixed", batch=2))
    # three probes, the target, 15 of 20 steps in bfloat16, the best measured again, 5 steps, the last iterate
    assert [dtype == torch.bfloat16 for dtype in seen] == [False] * 4 + [True] * 15 + [False] * 7


class _Rounded(nn.Module):
    """Images as they are, in bfloat16 where a step is: pixel by pixel, so that companions change no bit."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[torch.dtype, int]] = []

    def forward(self, x: Tensor) -> Tensor:
        z = x.bfloat16() if torch.is_autocast_enabled("cpu") else x
        self.seen.append((z.dtype, len(z)))
        return z


@pytest.mark.parametrize("precision", ["mixed", "bfloat16"])
@pytest.mark.parametrize("optimiser", ["adam", "sign_pgd"])
def test_companions_do_not_matter_though_images_leave_and_others_enter(precision: Any, optimiser: Any) -> None:
    images, seeds = random_images(12), sample_seeds(12)
    images[::3] = 0.5  # nearer to any start, and so earlier at the tolerance
    config = IriConfig(
        optimiser=optimiser, precision=precision, steps=40, lr=0.02, tolerance=0.08, levels=(0.5, 0.3), batch=12
    )
    prefix = _Rounded()
    together = invert(prefix, images, seeds, config)
    assert len({count for _, count in prefix.seen}) > 2, "images left one after the other"
    assert together.steps.min() < 30 < together.steps.max(), "in both parts of a mixed run"
    for batch in (1, 3, 5):
        apart = invert(_Rounded(), images, seeds, config.model_copy(update={"batch": batch}))
        for one, other in zip((together, *together.levels), (apart, *apart.levels), strict=True):
            # bit by bit; but Adam's rate is one number for images of one age, and else a float32 for each
            atol = 1e-4 if optimiser == "adam" else 0
            torch.testing.assert_close(one.images, other.images, atol=atol, rtol=0)
            torch.testing.assert_close(one.residual, other.residual, atol=atol, rtol=0)
            assert torch.equal(one.steps, other.steps)


def test_each_image_is_young_by_its_own_age() -> None:
    prefix = _Rounded()
    images = random_images(6)
    images[0] = 0.5
    config = IriConfig(optimiser="adam", precision="mixed", steps=40, lr=0.02, tolerance=0.4, batch=2)
    found = invert(prefix, images, sample_seeds(6), config)
    low = sum(count for dtype, count in prefix.seen if dtype == torch.bfloat16)
    assert (found.residual <= 0.4).all()
    assert low == int((found.steps.clamp(max=29) + 1).sum()), "all iterates up to the one that was good enough"


class _Nearer(nn.Module):
    """Images, and in steps in bfloat16 nine tenths of them: r of a black image seems smaller than it is."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.9 * x if torch.is_autocast_enabled("cpu") else x


@pytest.mark.parametrize("precision", ["float32", "mixed", "bfloat16"])
def test_thresholds_are_met_in_full_precision_and_by_the_first_iterate_that_does(precision: Any) -> None:
    # Towards black by equal steps, each start becomes max(start − k · lr, 0), and r is its norm, as the target has none.
    black, seeds, lr, steps = torch.zeros(5, 3, 4, 4), sample_seeds(5), 0.01, 80
    path = torch.stack([(uniform_start(seeds, (3, 4, 4)) - k * lr).clamp_min(0) for k in range(steps + 1)])
    r = path.flatten(2).norm(dim=2)
    levels, tolerance = (3.0, 2.5, 2.0, 1.5, 1.0, 0.5), 0.5
    config = IriConfig(
        optimiser="sign_pgd", precision=precision, steps=steps, lr=lr, tolerance=tolerance, levels=levels, batch=2
    )
    found = invert(_Nearer(), black, seeds, config)
    for level, kept in zip((tolerance, *levels), (found, *found.levels), strict=True):
        first = (r <= level).int().argmax(dim=0)
        assert (first > 0).all()
        assert torch.equal(kept.steps, first)
        torch.testing.assert_close(kept.residual, r.gather(0, first[None])[0])
        assert (kept.residual <= level).all()

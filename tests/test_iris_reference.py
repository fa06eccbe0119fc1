"""The public ResNet-20 at stitch point 4: stored IRIs, and what each optimiser reaches in the published 200 steps."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor

from raystitch.config import NORMALISATIONS, IriConfig
from raystitch.iris import Inverter, Shard, invert, make_shards, residual, sample_seed
from raystitch.nets import (
    CutNet,
    SoftPrefix,
    build_net,
    cut,
    find_points,
    fold_batchnorm,
    freeze,
    load_weights,
    read_weights,
)

CHECKED, SEARCHED = 128, 16


@pytest.fixture(scope="module")
def front(shared: Path) -> CutNet:
    weights = shared / "models" / "resnet20-12fca82f.th"
    net = build_net("cifar_resnet20", 10, {}, *NORMALISATIONS["imagenet"])
    load_weights(net, read_weights(weights.read_bytes(), weights.name), weights.name)
    chain = cut(net, find_points(net, 32))
    freeze(chain)
    return chain


@pytest.fixture(scope="module")
def prefix(front: CutNet) -> Callable[[Tensor], Tensor]:
    """Images → representation at stitch point 4."""
    return lambda x: front.run(x, 0, 4)


@pytest.fixture(scope="module")
def images(shared: Path) -> Tensor:
    """The first rows of the training split, uint8."""
    table = pq.ParquetFile(next((shared / "data" / "cifar10").glob("train-*.parquet")))
    cells = next(table.iter_batches(batch_size=CHECKED, columns=["img"])).column(0).to_pylist()
    pixels = [np.asarray(Image.open(io.BytesIO(cell["bytes"])).convert("RGB")) for cell in cells]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


@pytest.fixture(scope="module")
def reference(shared: Path) -> dict[str, npt.NDArray[Any]]:
    return dict(np.load(shared / "reference" / "iris_point4.npz"))


@torch.no_grad()
def test_stored_iris_have_the_stored_residual(
    prefix: Callable[[Tensor], Tensor], images: Tensor, reference: dict[str, npt.NDArray[Any]]
) -> None:
    iris = torch.from_numpy(reference["iris"][:CHECKED]).float() / 255
    found = residual(prefix, iris, prefix(images.float() / 255)).numpy()
    assert np.abs(found - reference["residual"][:CHECKED]).max() < 0.02


def _search(prefix: Callable[[Tensor], Tensor], images: Tensor, config: IriConfig) -> Shard:
    return make_shards(Inverter(prefix, config), images[:SEARCHED], torch.zeros(SEARCHED), 0)[None]


def test_the_published_recipe_reaches_the_published_residual_and_adam_goes_below_in_half_the_steps(
    prefix: Callable[[Tensor], Tensor], images: Tensor, reference: dict[str, npt.NDArray[Any]]
) -> None:
    published = _search(prefix, images, IriConfig(optimiser="sign_pgd", steps=200))
    assert np.median(published.residual) == pytest.approx(np.median(reference["residual"]), abs=0.05)
    # image by image the two runs differ in their noise only
    assert np.abs(published.residual - reference["residual"][:SEARCHED]).max() < 0.08
    half = _search(prefix, images, IriConfig(optimiser="adam", steps=100))
    assert (half.residual < published.residual).all()
    assert np.median(half.residual) < 0.5 * np.median(published.residual)
    assert np.abs(half.images / 255.0 - images[:SEARCHED].numpy() / 255.0).mean() > 0.02


@pytest.mark.parametrize("point", [4, 7, 10])
def test_spectral_adam_needs_a_fifth_of_the_published_steps(front: CutNet, images: Tensor, point: int) -> None:
    folded = SoftPrefix(fold_batchnorm(front), point)
    published = {4: 0.42, 7: 0.47, 10: 0.47}  # METHOD §2: 64 images, 200 sign steps
    found = _search(folded, images, IriConfig(steps=40))
    assert np.median(found.residual) < published[point]
    iris, target = torch.from_numpy(found.images) / 255, front.run(images[:SEARCHED] / 255, 0, point)
    exact = residual(lambda x: front.run(x, 0, point), iris, target)
    np.testing.assert_allclose(found.residual, exact, atol=1e-4)


def test_one_run_passes_the_levels_of_the_method_in_order(
    prefix: Callable[[Tensor], Tensor], images: Tensor, reference: dict[str, npt.NDArray[Any]]
) -> None:
    # METHOD §2 at this point: r 0.42 from the published run, 0.19 from a short run of Adam, which passes the former after
    # 25 to 50 steps
    levels, count = (0.8, 0.6, float(np.median(reference["residual"])), 0.3, 0.19), 8
    shown, seeds = images[:count].float() / 255, [sample_seed(0, row) for row in range(count)]
    found = invert(prefix, shown, seeds, IriConfig(optimiser="adam", steps=100, levels=levels))
    assert levels[2] == pytest.approx(0.42, abs=0.01)
    assert 15 <= found.levels[2].steps.float().mean() <= 50
    target = prefix(shown)
    for level, kept in zip(levels, found.levels, strict=True):
        reached = kept.residual <= level
        assert reached.sum() > count // 2
        assert torch.equal(kept.images[~reached], found.images[~reached])
        assert (kept.residual[reached] > 0.85 * level).all(), "a step or two beyond the level, not more"
        torch.testing.assert_close(kept.residual, residual(prefix, kept.images, target), rtol=1e-3, atol=1e-4)
    medians = [float(kept.residual.median()) for kept in (*found.levels, found)]
    assert medians == sorted(medians, reverse=True)
    steps = torch.stack([kept.steps for kept in (*found.levels, found)])
    assert (steps.diff(dim=0) >= 0).all()

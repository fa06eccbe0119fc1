"""Which way of inverting leaves the smallest residual for the same number of passes: public ResNet-20, and a small ViT.

The study behind the default optimiser. Passes are counted, not timed; every contender starts from the same noise. The ViT is
trained here for a few epochs, so that its representations are those of a net that has learnt something.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from benchmarks import inverting
from benchmarks.alternatives import Problem, gauss_newton, lbfgs
from benchmarks.load import CLASSES, SIDE, load_float, load_net, load_set
from benchmarks.outcome import Cell, Outcome, Table
from benchmarks.subjects import Options
from raystitch import nets, training
from raystitch.config import NORMALISATIONS, IriConfig, TrainConfig
from raystitch.iris import sample_seed
from raystitch.iris.start import uniform_start
from raystitch.nets import CutNet, SoftPrefix

FIRST_ORDER: Mapping[str, IriConfig] = {
    "sign steps of 1/255, as published": IriConfig(optimiser="sign_pgd"),
    "Adam, β₁ 0.9, step 0.1": IriConfig(optimiser="adam"),
    "Adam, step 0.05": IriConfig(optimiser="adam", lr=0.05),
    "Adam, step 0.2": IriConfig(optimiser="adam", lr=0.2),
    "spectral Adam, step 0.05": IriConfig(lr=0.05),
    "spectral Adam, step 0.1 (default)": IriConfig(),
    "spectral Adam, step 0.2": IriConfig(lr=0.2),
}
UNSOFTENED = "spectral Adam, step 0.1, true gradients"
"""The default without what softens the steps of ReLUs backwards."""
SECOND_ORDER: Mapping[str, Callable[[Problem, Tensor, int], Tensor]] = {
    "L-BFGS, 20 pairs": lbfgs,
    "Levenberg–Marquardt, 10 CG steps": gauss_newton,
}


@dataclass(frozen=True)
class Size:
    """What is inverted, how long, and how the ViT is trained first."""

    images: int = 16
    budgets: tuple[int, ...] = (40, 100, 300)
    points: tuple[int, ...] = (2, 4, 6, 8, 10)
    vit_points: tuple[int, ...] = (2, 4, 6)
    vit_images: int = 4000
    vit_epochs: int = 5


FULL = Size()
QUICK = Size(images=4, budgets=(4, 8), points=(4,), vit_points=(2,), vit_images=64, vit_epochs=1)


def run(options: Options) -> Outcome:
    """Median r of each contender after each budget, at points of both nets."""
    size = QUICK if options.quick else FULL
    images = load_float(options, size.images)
    vit, top1 = _train_vit(options, size)
    tables = [
        _table("ResNet-20", load_net(options, "front"), images, size.points, size),
        _table("ViT", vit, images, size.vit_points, size),
    ]
    notes = [
        "A step of a first-order method, an evaluation of L-BFGS and a conjugate-gradient step each cost a pair of passes.",
        f"The ViT has 6 blocks of width 96 on patches of 4 pixels; {size.vit_images} images, {size.vit_epochs} epochs, "
        f"{top1:.1f} % of its training images right.",
        "A schedule of steps depends on the budget, so every budget is a run of its own.",
    ]
    return Outcome([], tables, notes, asdict(size))


def _table(name: str, net: CutNet, images: Tensor, points: tuple[int, ...], size: Size) -> Table:
    columns = ["optimiser", *(f"point {point}, {budget}" for point in points for budget in size.budgets)]
    cells: dict[str, list[Cell]] = {}
    for point in points:
        prefix = inverting.prefix_of(net, point)
        for budget in size.budgets:
            for contender, r in _residuals(prefix, images, budget).items():
                cells.setdefault(contender, []).append(round(r, 4))
    return Table(
        f"{name}: median r after so many pairs of passes", columns, [[who, *row] for who, row in cells.items()]
    )


def _residuals(prefix: SoftPrefix, images: Tensor, budget: int) -> dict[str, float]:
    found = {name: inverting.run(prefix, images, search, budget).residual for name, search in FIRST_ORDER.items()}
    found[UNSOFTENED] = inverting.run(lambda x: prefix(x), images, IriConfig(), budget).residual
    start = uniform_start([sample_seed(0, row) for row in range(len(images))], images.shape[1:]).to(images.device)
    with torch.no_grad():
        target = prefix(images)
    for name, search in SECOND_ORDER.items():
        found[name] = search(Problem(prefix, target), start, budget)
    return {name: statistics.median(r.tolist()) for name, r in found.items()}


def _train_vit(options: Options, size: Size) -> tuple[CutNet, float]:
    """A ViT that has seen the images for a few epochs, cut at its points; and its training accuracy in percent."""
    shape = {"img_size": SIDE, "patch_size": 4, "embed_dim": 96, "depth": 6, "num_heads": 3}
    net = nets.build_net("vit_tiny_patch16_224", CLASSES, shape, *NORMALISATIONS["cifar10"]).to(options.device)
    data = load_set(options, "train", size.vit_images)
    recipe = TrainConfig(epochs=size.vit_epochs, lr=0.01, batch=32, augment="none")
    training.train(net, data, recipe, 0, device=options.device)
    top1 = training.accuracy(nets.freeze(net), data, options.device)
    return nets.freeze(nets.cut(net, nets.find_points(net, SIDE))).to(options.device), top1

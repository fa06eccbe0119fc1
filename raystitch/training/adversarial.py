"""Adversarial training (METHOD §8, "AT"): cross-entropy on batches of which a random half is attacked by PGD.

The attack runs with the net in eval mode, so that it neither moves BatchNorm's statistics nor meets dropout; the step that
follows is taken in train mode on clean and attacked images together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raystitch.config import TrainConfig
from raystitch.data import to_device
from raystitch.pgd import pgd
from raystitch.training.batches import Batch, augmentation
from raystitch.training.run import Phase, Prepared, Run


def train_adversarial(net: nn.Module, recipe: TrainConfig, run: Run) -> None:
    """Train the whole net for ``recipe.epochs``."""
    augment, attack = augmentation(recipe), recipe.attack

    def prepare(batch: Batch) -> Prepared:
        images = run.batches.view(batch, augment)
        order = torch.randperm(len(images), generator=run.batches.generator)
        chosen = order[: max(1, round(attack.share * len(images)))]
        return images, batch.labels, to_device(chosen, images.device)

    def loss(images: Tensor, labels: Tensor, chosen: Tensor) -> Tensor:
        images[chosen] = pgd(
            net, images[chosen], labels[chosen], eps=attack.eps, steps=attack.steps, step_size=attack.step
        )
        return F.cross_entropy(net(images), labels)

    run.phase(Phase(net, net, recipe, prepare, loss))

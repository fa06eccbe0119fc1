"""Supervised training (METHOD §8): cross-entropy on augmented, perhaps cued, images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from raystitch.config import TrainConfig
from raystitch.training.batches import Batch, augmentation
from raystitch.training.run import Phase, Prepared, Run


def train_supervised(net: nn.Module, recipe: TrainConfig, run: Run) -> None:
    """Train the whole net for ``recipe.epochs``."""
    augment = augmentation(recipe)

    def prepare(batch: Batch) -> Prepared:
        return run.batches.view(batch, augment), batch.labels

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(net(images), labels)

    run.phase(Phase(net, net, recipe, prepare, loss))

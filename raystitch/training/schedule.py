"""The learning rate of each epoch, and the optimiser it drives (METHOD §8)."""

from __future__ import annotations

import math

import torch
from torch import nn

from raystitch.config import TrainConfig


def learning_rate(recipe: TrainConfig, epoch: int) -> float:
    """Rate in epoch 0, 1, … of E, with a warm-up of W epochs.

    Warm-up: lr · (epoch + 1) / (W + 1). Then ``step``: lr, ×0.1 once a third, and again once two thirds, of all E epochs are
    done; ``cosine``: lr · (1 + cos(π (epoch − W) / (E − W))) / 2.
    """
    if epoch < recipe.warmup:
        return recipe.lr * (epoch + 1) / (recipe.warmup + 1)
    if recipe.schedule == "cosine":
        done = (epoch - recipe.warmup) / (recipe.epochs - recipe.warmup)
        return recipe.lr * (1 + math.cos(math.pi * done)) / 2
    thirds_done = min(2, 3 * epoch // recipe.epochs)
    return float(recipe.lr * 0.1**thirds_done)


def make_optimiser(net: nn.Module, recipe: TrainConfig) -> torch.optim.SGD:
    """SGD with Nesterov momentum; weight decay on all parameters, biases and normalisation included (METHOD §8)."""
    return torch.optim.SGD(
        net.parameters(),
        lr=recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.momentum > 0,
    )

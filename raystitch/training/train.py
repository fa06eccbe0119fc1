"""Train a base model by the method that its recipe names.

The whole set lives on the device as uint8, unless it is mapped; where it pays, a thread prepares batches ahead. A training is
determined by the net's weights, the data, the recipe, the seed and the number of torch threads, and leaves torch's global
generators as they were.
Mapped data, or an interruption that a checkpoint mends, give the same weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from raystitch.config import CueConfig, TrainConfig
from raystitch.data import ImageSet
from raystitch.training.adversarial import train_adversarial
from raystitch.training.batches import Batches
from raystitch.training.checkpoints import Checkpoints, Keeper
from raystitch.training.run import OnEpoch, Run, reproducible
from raystitch.training.simclr import train_simclr
from raystitch.training.supervised import train_supervised

_METHODS: Mapping[str, Callable[[nn.Module, TrainConfig, Run], None]] = {
    "supervised": train_supervised,
    "simclr": train_simclr,
    "adversarial": train_adversarial,
}


def train(
    net: nn.Module,
    data: ImageSet,
    recipe: TrainConfig,
    seed: int,
    cue: CueConfig | None = None,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | None = None,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Train all parameters of ``net`` in place; the net ends on ``device`` in eval mode.

    Each batch is augmented, then given the cue of the train split, then (where the method says so) attacked, then shown to
    the net. The last partial batch of an epoch is dropped; a set smaller than a batch is one batch.

    Args:
        net: maps float32 images (B, 3, H, W) in [0, 1] to logits (B, C).
        data: the train split without the cue.
        recipe: method, epochs, learning rate and so on.
        seed: decides batch order, augmentation, attacks and dropout; initial weights are the caller's.
        cue: the planted shortcut, if the model is to learn from one.
        device: where to train.
        on_epoch: called after each epoch with its number, from 0, and its mean training loss; SimCLR's head counts anew.
        checkpoints: where to leave the state between epochs and to find that of an interrupted training.

    Raises:
        FloatingPointError: the loss or a weight is no longer finite; names the epoch.
        InputError: SimCLR, and no classifier can be told from the rest of the net.
    """
    where = torch.device(device)
    net.to(where)
    batches = Batches(data, recipe.batch, seed, cue, where)
    with reproducible(seed, where):
        _METHODS[recipe.method](net, recipe, Run(batches, where, Keeper(checkpoints), on_epoch))
    net.eval()

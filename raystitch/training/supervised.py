"""Supervised training of a base model (METHOD §8): SGD with Nesterov momentum on augmented, perhaps cued, images.

The whole set lives on the device as uint8; there is no loader. A run is determined by the net's weights, the data, the
recipe, the seed and the number of torch threads, and leaves torch's global generators as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raystitch.config import CueConfig, TrainConfig
from raystitch.data import Augment, Cue, ImageSet, make_cue, to_float


def train_supervised(
    net: nn.Module,
    data: ImageSet,
    recipe: TrainConfig,
    seed: int,
    cue: CueConfig | None = None,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, float], None] | None = None,
) -> None:
    """Train all parameters of ``net`` in place; the net ends on ``device`` in eval mode.

    Each batch is augmented, then given the cue of the train split, then shown to the net. The last partial batch of an
    epoch is dropped; a set smaller than a batch is one batch.

    Args:
        net: maps float32 images (B, 3, H, W) in [0, 1] to logits (B, C).
        data: the train split without the cue.
        recipe: epochs, learning rate and so on.
        seed: decides batch order, augmentation and dropout; initial weights are the caller's.
        cue: the planted shortcut, if the model is to learn from one.
        device: where to train.
        on_epoch: called after each epoch with its number, from 0, and its mean training loss.

    Raises:
        FloatingPointError: the loss or a weight is no longer finite; names the epoch.
    """
    net.to(device)
    optimiser = make_optimiser(net, recipe)
    batches = _Batches(data, recipe, seed, cue, torch.device(device))
    with _reproducible(seed, torch.device(device)):
        for epoch in range(recipe.epochs):
            net.train()
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(recipe, epoch)
            loss = _train_epoch(net, batches, optimiser)
            _check_finite(loss, net, epoch)
            if on_epoch is not None:
                on_epoch(epoch, loss)
    optimiser.zero_grad(set_to_none=True)
    net.eval()


def learning_rate(recipe: TrainConfig, epoch: int) -> float:
    """Rate in epoch 0, 1, …: ``recipe.lr``, ×0.1 once a third, and again once two thirds, of the epochs are done."""
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


@torch.inference_mode()
def accuracy(net: nn.Module, data: ImageSet, device: torch.device | str = "cpu", batch: int = 512) -> float:
    """Top-1 accuracy in percent, in eval mode; modules get their modes back, the net stays on ``device``."""
    net.to(device)
    modes = {module: module.training for module in net.modules()}
    net.eval()
    right = 0
    for start in range(0, len(data), batch):
        rows = slice(start, start + batch)
        logits = net(to_float(data.images[rows].to(device)))
        right += int((logits.argmax(1).cpu() == data.labels[rows]).sum())
    for module, mode in modes.items():
        module.training = mode
    return 100 * right / len(data)


class _Batches:
    """Iterate for one epoch: float images and labels in a new random order, augmented and cued."""

    def __init__(
        self, data: ImageSet, recipe: TrainConfig, seed: int, cue: CueConfig | None, device: torch.device
    ) -> None:
        self.images, self.labels = data.images.to(device), data.labels.to(device)
        self.batch = min(recipe.batch, len(data))
        self.augment = Augment(recipe.augment)
        self.generator = torch.Generator().manual_seed(seed)
        self.cue: Cue | None = None
        if cue is not None:
            self.cue = make_cue(cue, data.num_classes, data.images.shape[-1], "train")

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.labels), generator=self.generator).to(self.labels.device)
        for start in range(0, len(order) - self.batch + 1, self.batch):
            index = order[start : start + self.batch]
            labels = self.labels[index]
            images = self.augment(to_float(self.images[index]), self.generator)
            yield (images if self.cue is None else self.cue.paste(images, labels, index)), labels


def _train_epoch(net: nn.Module, batches: _Batches, optimiser: torch.optim.Optimizer) -> float:
    """One pass over the batches; returns the mean loss."""
    losses = []
    for images, labels in batches:
        loss = F.cross_entropy(net(images), labels)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.detach())  # read once per epoch: a GPU need not wait for each step
    return float(torch.stack(losses).mean())


def _check_finite(loss: float, net: nn.Module, epoch: int) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(f"the training loss is {loss} in epoch {epoch}; lower the learning rate")
    if not all(bool(torch.isfinite(parameter).all()) for parameter in net.parameters()):
        raise FloatingPointError(f"a weight is not finite after epoch {epoch}; lower the learning rate")


@contextmanager
def _reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seed what layers such as dropout draw, ask cuDNN for deterministic kernels, and put both back afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        torch.manual_seed(seed)
        yield

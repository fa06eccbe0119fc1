"""The batches of a training set kept as uint8: shuffled anew each epoch, then augmented and cued.

A set that memory holds lives on the device; of a mapped set each batch is moved there, and the batches are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from raystitch.config import CueConfig, TrainConfig
from raystitch.data import Augment, Cue, ImageSet, make_cue, to_device, to_float
from raystitch.data.views import resized_crop_flip

Augmentation = Callable[[Tensor, Generator], Tensor]
"""A random change of float images (B, 3, H, W) in [0, 1], drawn from a CPU generator."""


class Batch(NamedTuple):
    """Plain float images (B, 3, H, W) in [0, 1], their labels (B,), and their positions in the set (B,)."""

    images: Tensor
    labels: Tensor
    rows: Tensor


class Batches:
    """One iteration is one epoch in a new random order; the last partial batch is dropped.

    Args:
        data: the train split without the cue; a set smaller than a batch is one batch.
        batch: images per batch.
        seed: of ``generator``, from which order and augmentation are drawn.
        cue: the planted shortcut, if the model is to learn from one.
        device: where batches are given, and where the images live unless they are mapped.
    """

    def __init__(self, data: ImageSet, batch: int, seed: int, cue: CueConfig | None, device: torch.device) -> None:
        self.mapped = data.key is not None
        self.images = data.images if self.mapped else data.images.to(device)
        self.labels = data.labels.to(device)
        self.size = min(batch, len(data))
        self.generator = torch.Generator().manual_seed(seed)
        self.cue: Cue | None = None
        if cue is not None:
            self.cue = make_cue(cue, data.num_classes, data.images.shape[-1], "train")

    def __iter__(self) -> Iterator[Batch]:
        order = torch.randperm(len(self.labels), generator=self.generator).to(self.labels.device)
        for start in range(0, len(order) - self.size + 1, self.size):
            rows = order[start : start + self.size]
            images = to_device(self.images[rows.to(self.images.device)], rows.device)
            yield Batch(to_float(images), self.labels[rows], rows)

    def view(self, batch: Batch, augment: Augmentation) -> Tensor:
        """The batch's images, augmented and then given the cue of the train split."""
        images = augment(batch.images, self.generator)
        return images if self.cue is None else self.cue.paste(images, batch.labels, batch.rows)


def augmentation(recipe: TrainConfig) -> Augmentation:
    """The augmentation that a recipe names."""
    return resized_crop_flip if recipe.augment == "resized_crop_flip" else Augment(recipe.augment)

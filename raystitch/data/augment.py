"""Training augmentation of the method (METHOD §5, §8): random crop from a zero-padded image, and horizontal flip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Augment:
    """A random change of each image of a batch, drawn from a generator.

    ``crop`` pads with zeros in pixel space (black) and takes a window of the old size at a random offset; ``flip_crop``
    also mirrors half of the images left to right, on average; ``none`` leaves images alone and draws nothing.
    """

    name: Literal["flip_crop", "crop", "none"] = "flip_crop"

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, 3, H, W) of any dtype → the same shape and dtype; ``generator`` is on the CPU."""
        if self.name == "none":
            return images
        cropped = random_crop(images, padding(images.shape[-1]), generator)
        return random_flip(cropped, generator) if self.name == "flip_crop" else cropped


def padding(side: int) -> int:
    """Pixels of padding on each side: the method's 4, fewer below 32 pixels (4 per 32) so the object stays in view."""
    return min(4, max(1, round(4 * side / 32)))


def random_crop(images: Tensor, pad: int, generator: Generator) -> Tensor:
    """Shift each image by offsets uniform in -pad … pad, independently down and across; zeros move in."""
    count, _, height, width = images.shape
    windows = F.pad(images, (pad, pad, pad, pad)).unfold(2, height, 1).unfold(3, width, 1)
    down, across = torch.randint(2 * pad + 1, (2, count), generator=generator).to(images.device)
    return windows[torch.arange(count, device=images.device), :, down, across]


def random_flip(images: Tensor, generator: Generator) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    flipped = torch.randint(2, (len(images), 1, 1, 1), generator=generator).bool().to(images.device)
    return torch.where(flipped, images.flip(3), images)

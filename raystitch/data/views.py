"""Random views of images: resized crops, colour jitter greyscale, as SimCLR and 224-pixel training need (METHOD §8).

Everything works on whole batches of float images (B, 3, S, S) in [0, 1], gives the same shape and range, and draws from a
CPU generator alone, so a seed gives the same views on every device. Crops and colours are defined as in torchvision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from raystitch.data.augment import random_flip

_TRIES = 10
_GREY = (0.299, 0.587, 0.114)  # luma of ITU-R BT.601


def resized_crop_flip(images: Tensor, generator: Generator) -> Tensor:
    """The augmentation of supervised 224-pixel training: a crop of 8–100 % of the area, resized, and perhaps mirrored.

    METHOD §8 names the crop without its scale; this is the usual one for ImageNet.
    """
    return random_flip(random_resized_crop(images, (0.08, 1.0), generator), generator)


def simclr_view(images: Tensor, generator: Generator) -> Tensor:
    """One of SimCLR's views (METHOD §8): crop of 20–100 %, flip, jitter (0.4, 0.4, 0.4, 0.1; p = 0.5), grey (p = 0.1)."""
    view = random_flip(random_resized_crop(images, (0.2, 1.0), generator), generator)
    return random_greyscale(ColourJitter()(view, generator), 0.1, generator)


def random_resized_crop(images: Tensor, scale: tuple[float, float], generator: Generator) -> Tensor:
    """Cut a random box out of each image and stretch it to the image's size (bilinear, nothing from outside the box).

    The box has an area uniform in ``scale`` (fractions of the image's), an aspect ratio log-uniform in 3/4 … 4/3, and a
    uniform place.
    """
    height, width = images.shape[-2:]
    top, left, tall, wide = crop_boxes(len(images), height, width, scale, generator).to(images.device)
    down = _normalised(_positions(top, tall, height), height)[:, :, None].expand(-1, -1, width)
    across = _normalised(_positions(left, wide, width), width)[:, None, :].expand(-1, height, -1)
    grid = torch.stack([across, down], dim=3)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False).clamp(0, 1)


def crop_boxes(count: int, height: int, width: int, scale: tuple[float, float], generator: Generator) -> Tensor:
    """Top, left, height and width of ``count`` random boxes in pixels, float32 (4, count).

    Of ten boxes the first that fits is taken; where none does, the whole image.
    """
    area, aspect, place = torch.rand(3, _TRIES, count, generator=generator)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * area)
    aspect = torch.exp(math.log(4 / 3) * (2 * aspect - 1))
    tall, wide = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (tall >= 1) & (tall <= height) & (wide >= 1) & (wide <= width)
    first, column = fits.int().argmax(0), torch.arange(count)
    tall = torch.where(fits.any(0), tall[first, column], torch.tensor(float(height)))
    wide = torch.where(fits.any(0), wide[first, column], torch.tensor(float(width)))
    top = (place[0] * (height - tall + 1)).floor().minimum(height - tall)
    left = (place[1] * (width - wide + 1)).floor().minimum(width - wide)
    return torch.stack([top, left, tall, wide])


@dataclass(frozen=True)
class ColourJitter:
    """Random brightness, contrast, saturation and hue, in an order drawn for each image.

    The first three are factors uniform in 1 ± their amount; hue is a shift uniform in ± its amount, in turns of the colour
    circle. An image is changed with the given probability. Defaults are SimCLR's in METHOD §8.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    probability: float = 0.5

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """A jittered copy of the images."""
        count = len(images)
        chosen = torch.rand(count, generator=generator) < self.probability
        order = torch.rand(count, len(_CHANGES), generator=generator).argsort(1)
        spread = torch.tensor([self.brightness, self.contrast, self.saturation, self.hue])
        amounts = spread * (2 * torch.rand(count, len(_CHANGES), generator=generator) - 1)
        jittered = images.clone()
        for turn in range(len(_CHANGES)):
            for number, change in enumerate(_CHANGES):
                rows = torch.nonzero(chosen & (order[:, turn] == number))[:, 0]
                amount = amounts[rows, number].to(images.device).view(-1, 1, 1, 1)
                rows = rows.to(images.device)
                jittered[rows] = change(jittered[rows], amount)
        return jittered


def random_greyscale(images: Tensor, probability: float, generator: Generator) -> Tensor:
    """Take the colour out of each image with a probability."""
    grey = (torch.rand(len(images), 1, 1, 1, generator=generator) < probability).to(images.device)
    return torch.where(grey, luma(images).expand_as(images), images)


def luma(images: Tensor) -> Tensor:
    """Brightness of each pixel, (B, 3, H, W) → (B, 1, H, W)."""
    weights = torch.tensor(_GREY, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def brighten(images: Tensor, amount: Tensor) -> Tensor:
    """Multiply each image by 1 + its amount; amounts (B, 1, 1, 1)."""
    return (images * (1 + amount)).clamp(0, 1)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Move each image by its amount away from its own mean brightness, a single grey."""
    middle = luma(images).mean((1, 2, 3), keepdim=True)
    return (images + amount * (images - middle)).clamp(0, 1)


def saturate(images: Tensor, amount: Tensor) -> Tensor:
    """Move each pixel by the image's amount away from its own grey."""
    return (images + amount * (images - luma(images))).clamp(0, 1)


def turn_hue(images: Tensor, amount: Tensor) -> Tensor:
    """Turn the hue of each image by its amount, in turns, at constant HSV saturation and value.

    A hexcone: channel n ∈ (5, 3, 1) is v − c · clip(min(k, 4 − k), 0, 1) with k = (n + 6 · hue) mod 6 and chroma c.
    """
    value, chroma = images.amax(1, keepdim=True), images.amax(1, keepdim=True) - images.amin(1, keepdim=True)
    red, green, blue = images.chunk(3, dim=1)
    safe = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    of_red, of_green, of_blue = (green - blue) / safe, 2 + (blue - red) / safe, 4 + (red - green) / safe
    sixths = torch.where(value == red, of_red, torch.where(value == green, of_green, of_blue)) + 6 * amount
    channel = torch.tensor([5.0, 3.0, 1.0], device=images.device).view(1, 3, 1, 1)
    k = (channel + sixths) % 6
    return (value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)).clamp(0, 1)


_CHANGES = (brighten, contrast, saturate, turn_hue)


def _positions(first: Tensor, length: Tensor, side: int) -> Tensor:
    """Where the ``side`` output pixels lie in the input, counted in pixels, inside first … first + length - 1: (B, side)."""
    steps = (torch.arange(side, device=first.device) + 0.5) * (length[:, None] / side) - 0.5
    return first[:, None] + steps.clamp(min=0).minimum(length[:, None] - 1)


def _normalised(position: Tensor, side: int) -> Tensor:
    return (2 * position + 1) / side - 1

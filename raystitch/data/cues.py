"""Planted shortcuts (METHOD §8): a square pasted into each image, as a pure function of seed, split and sample index.

``pixel`` squares have one colour per class; ``rand`` squares are noise. What a sample gets never depends on the batch
it comes in, on the device or on torch's generators: all randomness is a hash (splitmix64, Steele et al. 2014) of the
cue's seed, the split and the index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raystitch.config import CueConfig, EvalSet
from raystitch.data.hold import hold, slices
from raystitch.data.imageset import ImageSet, Split
from raystitch.errors import InputError

_GRID_LIMIT = 100  # levels per channel; above it C³ colours are too many to search and no finer spacing is needed
_MAX_COLOURS = 10_000  # more are too close to tell apart, and searching them takes minutes
_PURPOSES = {"train": 1, "test": 2, "colours": 3, "places": 4}  # one independent stream of the seed each


@dataclass(frozen=True)
class Cue:
    """A marker of ``side`` × ``side`` pixels for images of ``image_size`` pixels; made by :func:`make_cue`.

    Attributes:
        colours: uint8 (C, 3), the colour of each class; ``None`` for noise.
        places: int64 (C, 2), top and left of each class's place; ``None`` where each sample has its own.
        stream: the hash of seed and split from which samples draw.
    """

    side: int
    image_size: int
    colours: Tensor | None
    places: Tensor | None
    stream: int

    def paste(self, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        """Return a copy of ``images`` with the marker of each sample's label.

        Args:
            images: (B, 3, H, W), uint8 or float in [0, 1].
            labels: int64 (B,), the class whose marker (and place) is shown.
            indices: int64 (B,), each sample's index in its split.
        """
        labels, indices = labels.to(images.device), indices.to(images.device)
        state = _hash(indices + self.stream)
        top, left = self._corners(labels, state).unbind(1)
        span = torch.arange(self.side, device=images.device)
        batch = torch.arange(len(images), device=images.device).view(-1, 1, 1, 1)
        channel = torch.arange(3, device=images.device).view(1, 3, 1, 1)
        rows = (top[:, None] + span)[:, None, :, None]
        columns = (left[:, None] + span)[:, None, None, :]
        marked = images.clone()
        marked[batch, channel, rows, columns] = _like(self._patches(labels, state), images)
        return marked

    def _corners(self, labels: Tensor, state: Tensor) -> Tensor:
        """Top and left, int64 (B, 2), uniform over the places where the whole marker fits."""
        if self.places is not None:
            return self.places.to(labels.device)[labels]
        return _uniform(state, 2, self.image_size - self.side + 1)

    def _patches(self, labels: Tensor, state: Tensor) -> Tensor:
        """Marker pixels, integers 0 … 255 (B, 3, side, side)."""
        shape = (-1, 3, self.side, self.side)
        if self.colours is not None:
            return self.colours.to(labels.device)[labels][:, :, None, None].expand(shape)
        return _uniform(_hash(state), 3 * self.side**2, 256).view(shape)


def make_cue(config: CueConfig, num_classes: int, size: int, split: Split) -> Cue:
    """The cue of a split for images of ``size`` pixels.

    Class colours and class places are the same in both splits. With ``placement: random`` a train and a test sample of
    the same index have unrelated places. With ``placement: class`` the place tells the class, also for ``rand``.

    Raises:
        InputError: the marker is larger than the image, or there are too many classes to give each a colour or a place.
    """
    side = config.size if config.size is not None else max(1, round(4 * size / 32))
    if side > size:
        raise InputError("cue.size", side, f"the marker is larger than the images; use at most {size}")
    steps = size - side + 1
    if config.placement == "class" and steps**2 < num_classes:
        most = max(1, size + 1 - math.ceil(num_classes**0.5))
        problem = f"images of {size} pixels have {steps**2} places for it, and there are {num_classes} classes"
        raise InputError("cue.size", side, f"{problem}; use at most {most}")
    if config.kind == "pixel" and num_classes > _MAX_COLOURS:
        raise InputError("cue.kind", "pixel", f"has colours for at most {_MAX_COLOURS} classes, not {num_classes}")
    return Cue(
        side=side,
        image_size=size,
        colours=torch.tensor(_class_colours(num_classes, config.seed)) if config.kind == "pixel" else None,
        places=_class_places(num_classes, steps, config.seed) if config.placement == "class" else None,
        stream=_stream(config.seed, split),
    )


def with_cue(data: ImageSet, config: CueConfig | None, eval_set: EvalSet, split: Split) -> ImageSet:
    """Plant the cue in a whole set; a sample's index is its position in ``data``.

    ``test``: each image with its own class's marker, as in training. ``shuffled``: class c is shown the marker (and
    place) of class c - 1, cyclically. ``clean``: no marker. Without a cue the set is returned unchanged. Of a mapped set the
    marked copy is mapped too.
    """
    if config is None or eval_set == "clean":
        return data
    cue = make_cue(config, data.num_classes, data.images.shape[-1], split)
    shown = (data.labels - 1) % data.num_classes if eval_set == "shuffled" else data.labels
    index, shape = torch.arange(len(data)), tuple(data.images.shape)

    def parts() -> Iterator[NDArray[np.uint8]]:
        return (cue.paste(data.images[rows], shown[rows], index[rows]).numpy() for rows in slices(shape))

    key = None if data.key is None else f"{data.key} {config.model_dump_json()} {eval_set} {split}"
    return replace(data, images=hold(shape, parts, key), key=key)


def spread_colours(count: int) -> NDArray[np.uint8]:
    """``count`` colours, uint8 (count, 3), far apart: farthest-point sampling on a count×count×count RGB grid.

    Starts at black; each next colour is the grid point whose nearest chosen colour is farthest (Euclidean), the first
    in lexicographic order where several are. The grid has at most 100 levels per channel.
    """
    levels = min(count, _GRID_LIMIT)
    steps = np.arange(levels, dtype=np.int32)  # squares in grid steps are whole numbers, so ties are exact
    nearest = np.full((levels, levels, levels), np.iinfo(np.int32).max, dtype=np.int32)
    picks = np.zeros((count, 3), dtype=np.int64)
    for k in range(1, count):
        red, green, blue = ((steps - step) ** 2 for step in picks[k - 1].astype(np.int32))
        np.minimum(nearest, red[:, None, None] + green[:, None] + blue, out=nearest)
        picks[k] = np.unravel_index(nearest.argmax(), nearest.shape)
    return np.asarray(np.rint(picks * (255 / max(1, levels - 1))), dtype=np.uint8)


@lru_cache(maxsize=8)
def _class_colours(num_classes: int, seed: int) -> NDArray[np.uint8]:
    order = _permutation(num_classes, _stream(seed, "colours")).numpy()
    return np.asarray(spread_colours(num_classes)[order])


def _class_places(num_classes: int, steps: int, seed: int) -> Tensor:
    """Top and left of each class, int64 (C, 2), all different."""
    cell = _permutation(steps * steps, _stream(seed, "places"))[:num_classes]
    return torch.stack([cell // steps, cell % steps], dim=1)


def _like(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.dtype) / 255 if images.is_floating_point() else values.to(images.dtype)


def _stream(seed: int, purpose: str) -> int:
    return int(_hash(_hash(torch.tensor(seed)) + _PURPOSES[purpose]))


def _permutation(count: int, stream: int) -> Tensor:
    return torch.argsort(_hash(torch.arange(count) + stream), stable=True)


def _uniform(state: Tensor, count: int, bound: int) -> Tensor:
    """``count`` integers uniform in 0 … bound - 1 for each state: int64 (B, count)."""
    bits = _hash(state[:, None] + _hash(torch.arange(1, count + 1, device=state.device)))
    return _shift_right(bits, 33) % bound


def _hash(x: Tensor) -> Tensor:
    """The splitmix64 step and finaliser on int64, arithmetic modulo 2⁶⁴: consecutive inputs give unrelated outputs."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift_right(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >= 1 << 63 else constant

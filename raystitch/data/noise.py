"""Noise datasets: images without content and labels without meaning, each a function of seed, split and index only.

``uniform``: every channel of every pixel is uniform on 0 … 255. ``pink``: white noise whose spectrum is divided by the
spatial frequency, so amplitude falls as 1/f (power as 1/f²) as in photographs (Field 1987), each channel on its own; then the
image is stretched to the whole range 0 … 255, which keeps the spectrum up to rounding because nothing is clipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raystitch.data.decode import Picture
from raystitch.data.imageset import Split

DEFAULT_SIDE = 32
_SPLITS: dict[Split, int] = {"train": 0, "test": 1}
_IMAGES, _LABELS = 0, 1  # independent streams of the seed


@dataclass(frozen=True)
class NoiseSource:
    """``count`` noise images in each split, ``side`` pixels wide, with labels uniform over ``num_classes``.

    A larger set of the same seed begins with the smaller one.
    """

    kind: Literal["uniform", "pink"]
    count: int
    side: int
    num_classes: int
    seed: int

    def class_names(self) -> Sequence[Sequence[str]]:
        """None."""
        return ()

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Labels int64 (count,)."""
        drawn = np.asarray(self._stream(split, 0, _LABELS).random_raw(self.count), dtype=np.uint64)
        return (drawn % np.uint64(self.num_classes)).astype(np.int64)

    def blocks(self, split: Split) -> NDArray[np.int64]:
        """Every row by itself."""
        return np.arange(self.count, dtype=np.int64)

    def pictures(self, split: Split, rows: Sequence[int]) -> Iterator[Picture]:
        """The images at ``rows``."""
        draw = uniform_image if self.kind == "uniform" else pink_image
        for index in rows:
            yield f"noise image {index}", draw(self._stream(split, index, _IMAGES), self.side)

    def identity(self, split: Split) -> str:
        """All parameters, and the version of this file's rules."""
        return f"noise-1-{self.kind}-{self.count}-{self.side}-{self.num_classes}-{self.seed}-{split}"

    def _stream(self, split: Split, index: int, purpose: int) -> np.random.Philox:
        """Raw bits, whose sequence numpy keeps the same between versions (its distributions may change)."""
        return np.random.Philox(np.random.SeedSequence([self.seed, _SPLITS[split], index, purpose]))


def uniform_image(bits: np.random.Philox, side: int) -> NDArray[np.uint8]:
    """uint8 (3, side, side), all values equally likely."""
    count = 3 * side * side
    words = np.asarray(bits.random_raw((count + 7) // 8), dtype="<u8")
    return words.view(np.uint8)[:count].reshape(3, side, side)


def pink_image(bits: np.random.Philox, side: int) -> NDArray[np.uint8]:
    """uint8 (3, side, side) whose mean amplitude falls as 1/f; its darkest value is 0 and its brightest 255."""
    words = np.asarray(bits.random_raw(3 * side * side), dtype=np.uint64)
    white = (words >> np.uint64(11)).astype(np.float64).reshape(3, side, side) * 2.0**-53 - 0.5
    down, across = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)
    frequency = np.hypot(down, across)
    frequency[0, 0] = np.inf  # the mean carries no noise
    pink = np.fft.irfft2(np.fft.rfft2(white) / frequency, s=(side, side))
    low, high = pink.min(), pink.max()
    return np.asarray(np.rint((pink - low) * (255 / (high - low))), dtype=np.uint8)

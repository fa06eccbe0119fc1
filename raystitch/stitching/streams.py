"""Representations of the stitching images: computed per batch, or once and kept.

That difference is what separates ``paper`` from ``matched``. A stream maps the images of a batch, which may be made ready
ahead of it, to the front's representation at its point, already resized, and the end's own at the points that some objective
compares with. Where nothing random touches images or nets (protocol ``matched``, and the IRI arm of both) and nothing attacks
them, the values are the same in every epoch, and :class:`CachedStreams` computes them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from raystitch.data import overlapped, to_device, to_float

if TYPE_CHECKING:
    from raystitch.nets import CutNet

FRONT = 0
"""Key of the front's representation in a batch of streams; the end's are under their point numbers, from 1."""

Paste = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Plants a cue: (images (B, 3, H, W) in [0, 1], labels (B), indices (B)) → images."""


class LabelledImages(Protocol):
    """What a stitch is trained on, such as :class:`raystitch.data.ImageSet`."""

    @property
    def images(self) -> Tensor:
        """(N, 3, H, W), uint8, or floating in [0, 1]."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64."""

    @property
    def key(self) -> str | None:
        """``None`` where memory holds the images."""


class Shown(NamedTuple):
    """A batch as the nets are shown it, on the device.

    Attributes:
        rows: int64 (B,), positions in the set; on the CPU.
        labels: int64 (B,).
        images: float32 (B, 3, H, W), the front's; empty where nothing is computed from images.
        end_images: those of the end's own stream.
    """

    rows: Tensor
    labels: Tensor
    images: Tensor
    end_images: Tensor


def as_float(images: Tensor) -> Tensor:
    """uint8 → float32 in [0, 1]; floats are in [0, 1] already."""
    return images.float() if images.is_floating_point() else to_float(images)


@dataclass(frozen=True)
class ImageSource:
    """Batches of images as a net sees them: decoded to float, augmented, cue planted, on the device."""

    data: LabelledImages
    device: str | torch.device
    augment: Callable[[Tensor], Tensor] | None = None
    paste: Paste | None = None

    def __call__(self, index: Tensor) -> Tensor:
        """Images (B, 3, H, W) float32 of the given indices (B) int64."""
        images = as_float(self.data.images[index])
        if self.augment is not None:
            images = self.augment(images)
        if self.paste is not None:
            images = self.paste(images, self.data.labels[index], index)
        return to_device(images, self.device)


@dataclass(frozen=True)
class Streams:
    """Representations computed when asked for, in the mode in which the two nets are.

    Attributes:
        end_source: what the end's own stream sees where that is not what the front sees, row by row in its place.
    """

    source: ImageSource
    front: CutNet
    end: CutNet
    front_point: int
    resize: Callable[[Tensor], Tensor]
    end_source: ImageSource | None = None

    def show(self, index: Tensor) -> Shown:
        """The batch of the given indices (B)."""
        images, labels = self.source(index), self.source.data.labels[index]
        end_images = images if self.end_source is None else self.end_source(index)
        return Shown(index, to_device(labels, self.source.device), images, end_images)

    def ahead(self, indices: Iterable[Tensor]) -> Iterator[Shown]:
        """Batch after batch, prepared while the one before is in use where that pays."""
        sources = (self.source,) if self.end_source is None else (self.source, self.end_source)
        mapped = any(source.data.key is not None for source in sources)
        return overlapped(map(self.show, indices), self.source.device, mapped)

    def __call__(self, shown: Shown, keys: AbstractSet[int]) -> dict[int, Tensor]:
        """Representations of a batch: ``FRONT`` and any of the end's points 1 … n, and n+1 for its logits."""
        return self.of(shown.images, shown.end_images, keys)

    @torch.no_grad()
    def of(self, images: Tensor, end_images: Tensor, keys: AbstractSet[int]) -> dict[int, Tensor]:
        """The same of the images themselves, those of the front and those of the end's own stream."""
        points = sorted(keys - {FRONT})
        batch = {FRONT: self.resize(self.front.run(images, 0, self.front_point))} if FRONT in keys else {}
        return batch | (_trace(self.end, end_images, points) if points else {})


def _trace(net: CutNet, images: Tensor, points: list[int]) -> dict[int, Tensor]:
    first, last = points[0], points[-1]
    z = net.run(images, 0, first)
    traced = dict(enumerate([z, *net.trace(z, first, last)], start=first))
    return {point: traced[point] for point in points}


class CachedStreams:
    """The same, with what fits in ``budget`` bytes computed once, batch by batch, and kept on the device.

    What is kept depends on the two points and the budget, not on which objectives ask, so that an objective's values
    do not depend on its company. The smallest representations come first: these are the deepest, whose repetition
    would cost most. Kept and repeated values differ at most by the rounding of other batch compositions.

    Args:
        live: streams free of randomness and of moving statistics.
        keys: what will be asked for.
        end_point: the stitched point of the end, the first that could be asked for.
        count: number of images N.
        batch: images per pass.
        budget: bytes for everything kept.
    """

    def __init__(
        self, live: Streams, keys: frozenset[int], end_point: int, count: int, batch: int, budget: int
    ) -> None:
        self._live = live
        last = live.end.n + 1
        one = live.show(torch.zeros(1, dtype=torch.int64))
        probe = live(one, frozenset({FRONT, *range(end_point, last + 1)}))
        kept = keys & _affordable(probe, count, budget)
        self._all_kept = keys <= kept
        self._kept = {key: _room_for(count, probe[key]) for key in sorted(kept)}
        for shown in live.ahead(torch.split(torch.arange(count), batch)) if kept else ():
            for key, z in live(shown, kept).items():
                self._kept[key][shown.rows[0] : shown.rows[-1] + 1] = z

    def ahead(self, indices: Iterable[Tensor]) -> Iterator[Shown]:
        """Batch after batch, as :meth:`Streams.ahead`; without images where all that will be asked for is kept."""
        return map(self._without_images, indices) if self._all_kept else self._live.ahead(indices)

    def _without_images(self, index: Tensor) -> Shown:
        source, none = self._live.source, torch.empty(0)
        return Shown(index, to_device(source.data.labels[index], source.device), none, none)

    def __call__(self, shown: Shown, keys: AbstractSet[int]) -> dict[int, Tensor]:
        """Representations of a batch, as :class:`Streams` gives them."""
        missing = keys - self._kept.keys()
        batch = self._live(shown, missing) if missing else {}
        place = to_device(shown.rows, self._live.source.device)
        return batch | {key: self._kept[key][place] for key in self._kept.keys() & keys}


def _affordable(probe: Mapping[int, Tensor], count: int, budget: int) -> frozenset[int]:
    """Keys to keep, smallest first, deeper first among equals, until the next would exceed the budget."""
    chosen = []
    for key in sorted(probe, key=lambda key: (probe[key].nbytes, -key)):
        budget -= probe[key].nbytes * count
        if budget < 0:
            break
        chosen.append(key)
    return frozenset(chosen)


def _room_for(count: int, probe: Tensor) -> Tensor:
    """Uninitialised memory for ``count`` representations, in the order in which the net lays them out."""
    last = probe.ndim == 4 and probe.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty((count, *probe.shape[1:]), dtype=probe.dtype, device=probe.device, memory_format=layout)

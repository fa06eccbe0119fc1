"""What the objectives are fed: one batch of streams that all share, or one each where images are attacked.

An attack is against an objective's own stitched net as it is at that step, so nothing of it can be shared or kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from torch import Tensor

from raystitch.config import PgdConfig
from raystitch.pgd import pgd
from raystitch.stitching.frozen import private_copy, use_batch_statistics
from raystitch.stitching.streams import CachedStreams, ImageSource, Streams
from raystitch.stitching.trainee import Trainee

Feed = Callable[[Tensor, Tensor], Iterable[Mapping[int, Tensor]]]
"""(indices (B), labels (B) on the device) → one batch of streams per objective in training, each made when it is asked for."""


def shared_feed(fits: Sequence[Trainee], streams: Streams | CachedStreams) -> Feed:
    """The same streams for all."""
    keys = frozenset[int]().union(*(fit.keys for fit in fits))

    def feed(index: Tensor, labels: Tensor) -> Iterable[Mapping[int, Tensor]]:
        return itertools.repeat(streams(index, keys), len(fits))

    return feed


def attacked_feed(fits: Sequence[Trainee], source: ImageSource, streams: Sequence[Streams], attack: PgdConfig) -> Feed:
    """Streams of the images that PGD makes of a batch against each objective's stitched net as it trains (METHOD §8).

    The net is attacked in eval mode and moves no statistics. Both streams of the step see the attacked images.

    Args:
        fits: the objectives in training.
        source: the clean images.
        streams: each objective's own.
        attack: its distances and steps.
    """
    models = [fit.stitched(own.front) for fit, own in zip(fits, streams, strict=True)]

    def feed(index: Tensor, labels: Tensor) -> Iterator[Mapping[int, Tensor]]:
        clean = source(index)
        for fit, own, model in zip(fits, streams, models, strict=True):
            images = pgd(model, clean, labels, eps=attack.eps, steps=attack.steps, step_size=attack.step)
            yield own.of(images, images, fit.keys)

    return feed


def moving_streams(fits: Sequence[Trainee], source: ImageSource) -> Streams:
    """Streams of ``paper`` on real images, where BatchNorm normalises by batch statistics (METHOD §5).

    The running ones of the front, which ``fits`` share, and of each objective's end follow; those of the end's own stream,
    which is only compared with, stay where they are.
    """
    first = fits[0].result
    front, own = private_copy(first.front), private_copy(first.end)
    use_batch_statistics(front, move=True)
    use_batch_statistics(own, move=False)
    for fit in fits:
        fit.move_statistics(front)
    return Streams(source, front, own, first.front_point, first.stitch.resize)

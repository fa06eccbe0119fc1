"""What the objectives are fed: one batch of streams that all share, or one each where images are attacked.

The images of a batch need no net and may be made ready ahead; the streams are made when their step comes. An attack is
against an objective's own stitched net as it is at that step, so nothing of it can be shared or kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from raystitch.config import PgdConfig
from raystitch.pgd import pgd
from raystitch.stitching.frozen import private_copy, use_batch_statistics
from raystitch.stitching.streams import CachedStreams, ImageSource, Shown, Streams
from raystitch.stitching.trainee import Trainee


@dataclass(frozen=True)
class Feed:
    """The two parts of a batch.

    Attributes:
        ahead: the indices (B) of each batch → what the nets are shown, batch after batch.
        streams: what is shown → one batch of streams per objective in training, each made when it is asked for.
    """

    ahead: Callable[[Iterable[Tensor]], Iterator[Shown]]
    streams: Callable[[Shown], Iterable[Mapping[int, Tensor]]]


def shared_feed(fits: Sequence[Trainee], streams: Streams | CachedStreams) -> Feed:
    """The same streams for all."""
    keys = frozenset[int]().union(*(fit.keys for fit in fits))
    return Feed(streams.ahead, lambda shown: itertools.repeat(streams(shown, keys), len(fits)))


def attacked_feed(fits: Sequence[Trainee], streams: Sequence[Streams], attack: PgdConfig) -> Feed:
    """Streams of the images that PGD makes of a batch against each objective's stitched net as it trains (METHOD §8).

    The net is attacked in eval mode and moves no statistics. Both streams of the step see the attacked images.

    Args:
        fits: the objectives in training.
        streams: each objective's own, all of the same clean images.
        attack: its distances and steps.
    """
    models = [fit.stitched(own.front) for fit, own in zip(fits, streams, strict=True)]

    def attacked(shown: Shown) -> Iterator[Mapping[int, Tensor]]:
        for fit, own, model in zip(fits, streams, models, strict=True):
            images = pgd(model, shown.images, shown.labels, eps=attack.eps, steps=attack.steps, step_size=attack.step)
            yield own.of(images, images, fit.keys)

    return Feed(streams[0].ahead, attacked)


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

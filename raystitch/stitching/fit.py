"""Train stitches between two frozen nets: all objectives of one pair, arm and seed in one pass (METHOD §5).

The given nets stay as they are, parameters and buffers, bit for bit; what moves are private copies. Objectives share
the images, the batch order and, unless images are attacked, the passes of the front and of the end's own stream; each has
its own stitch and optimiser, so its result is bit-identical whether it is fitted alone or with others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from raystitch.config import EXACT, Arm, FitConfig, Objective, PgdConfig, Protocol, canonical_objective
from raystitch.data import Augment
from raystitch.errors import InputError
from raystitch.memory import memory_share
from raystitch.modes import plainly
from raystitch.nets import fold_batchnorm
from raystitch.stitching.exact import check_exact, solve_exactly
from raystitch.stitching.feeds import Feed, attacked_feed, moving_streams, shared_feed
from raystitch.stitching.fitted import Fitted
from raystitch.stitching.frozen import private_copy
from raystitch.stitching.initialise import initialise_from
from raystitch.stitching.moments import InitReport
from raystitch.stitching.objectives import targets
from raystitch.stitching.stitch import Stitch, make_stitch
from raystitch.stitching.streams import FRONT, CachedStreams, ImageSource, LabelledImages, Paste, Streams, as_float
from raystitch.stitching.trainee import Trainee

if TYPE_CHECKING:
    from raystitch.nets import CutNet, Point

CACHE_BYTES = 2 << 30
"""Most memory for representations that are kept, unless told: 2 GiB."""
_AUGMENTATION_SEED = 1 << 32
"""Added to the seed for augmentation, so that its draws are not those of the batch order."""


@plainly(gradients=True)
def fit_stitches(
    front: CutNet,
    end: CutNet,
    front_point: int,
    end_point: int,
    objectives: Sequence[Objective],
    data: LabelledImages,
    init_images: Tensor,
    config: FitConfig,
    protocol: Protocol,
    arm: Arm,
    seed: int,
    device: str | torch.device = "cpu",
    paste: Paste | None = None,
    cache_bytes: int | None = None,
    attack: PgdConfig | None = None,
    end_data: LabelledImages | None = None,
    folded: tuple[CutNet, CutNet] | None = None,
) -> dict[Objective, Fitted]:
    """Fit one stitch per objective from the front's point to the end's.

    Args:
        front: front model f, cut; unchanged.
        end: end model g, cut; unchanged.
        front_point: i in 1 … front.n.
        end_point: j in 1 … end.n.
        objectives: hlm, slm, dm, fula, dm_exact or sums, as in a config; the result has their canonical forms in this order.
        data: real images without cue, or IRIs with the labels of their originals.
        init_images: (M, 3, H, W) real images (cue included), as they are to be seen; never augmented.
        config: the recipe.
        protocol: ``matched``, or ``paper``: on the real arm flip + crop and moving BatchNorm statistics.
        arm: ``real``, or one that trains on IRIs.
        seed: decides the batch order, the same on both arms, the augmentation and a random initialisation.
        device: where to compute; the results stay there.
        paste: plants the cue into each batch of real images, after augmentation.
        cache_bytes: memory for representations that need computing only once; None is half of this worker's share of the
            memory (:func:`raystitch.memory.memory_share`), 2 GiB at most. It changes rounding at most.
        attack: attack every image of a batch by PGD, from the image after augmentation and cue, against each objective's
            stitched net as it trains; both streams see the attacked image (METHOD §8, 3).
        end_data: images that the end's own stream sees, row by row in place of ``data``; never augmented or given a cue.
        folded: front and end with BatchNorm folded, on ``device``, for callers that fit often; made where not given.

    Raises:
        InputError: no such point, a pair that cannot be stitched, fewer images than one batch, or ``dm_exact`` where no
            closed form exists.
        ValueError: an objective, protocol or arm is not written as a config would have it; no ``init_images``; ``end_data`` of
            another length, or where ``data`` are attacked or augmented.
        FloatingPointError: an initialisation or a loss is not finite.
    """
    names, moving = tuple(dict.fromkeys(map(canonical_objective, objectives))), protocol == "paper" and arm == "real"
    stitch = make_stitch(
        _point(front, front_point, "front point"), _point(end, end_point, "end point"), config=config.stitch
    )
    if EXACT in names:
        check_exact(stitch, config.stitch.kind, moving, attack is not None)
    _check_words(protocol, arm)
    _check_images(data, init_images, end_data, config, changed=attack is not None or moving)
    f, g = private_copy(front, device), private_copy(end, device)
    stitch.to(device)
    init = _initialise(stitch, f, g, front_point, end_point, init_images, config, seed)
    fast_f, fast_g = folded or (fold_batchnorm(f), fold_batchnorm(g))
    results = {name: Fitted(name, copy.deepcopy(stitch), f, g, front_point, end_point, init) for name in names}
    fits = [Trainee(result, fast_g, config) for name, result in results.items() if name != EXACT]
    source = ImageSource(data, device, _augmentation(seed) if moving else None, paste)
    end_source = None if end_data is None else ImageSource(end_data, device)
    still = Streams(source, fast_f, fast_g, front_point, stitch.resize, end_source)
    if attack is not None:
        feed = attacked_feed(fits, [moving_streams([fit], source) if moving else still for fit in fits], attack)
    elif moving:
        feed = shared_feed(fits, moving_streams(fits, source))
    else:
        keys = frozenset({FRONT}.union(*(targets(name, end_point, end.n) for name in names)))
        budget = min(CACHE_BYTES, memory_share(torch.device(device)) // 2) if cache_bytes is None else cache_bytes
        kept = CachedStreams(still, keys, end_point, len(data.images), config.batch, budget)
        if EXACT in names:
            _solve(results[EXACT], kept, len(data.images), config.batch)
        feed = shared_feed(fits, kept)
    _train(fits, feed, len(data.images), config, seed)
    for fit in fits:
        fit.finish()
    return results


def _check_words(protocol: Protocol, arm: Arm) -> None:
    for what, word, known in (("protocol", protocol, get_args(Protocol)), ("arm", arm, get_args(Arm))):
        if word not in known:
            raise ValueError(f"{what} {word!r} is none of {', '.join(known)}")


def _check_images(
    data: LabelledImages, init_images: Tensor, end_data: LabelledImages | None, config: FitConfig, changed: bool
) -> None:
    """``changed``: the images are attacked or augmented."""
    if not len(init_images):
        raise ValueError("init_images: there is no image to begin with")
    if len(data.images) < config.batch:
        most = len(data.images)
        raise InputError(
            "fit.batch", config.batch, f"there are {most} images to train the stitch on; use at most {most}"
        )
    if end_data is not None and (changed or len(end_data.images) != len(data.images)):
        raise ValueError("end_data goes with as many images that are neither attacked nor augmented")


def learning_rate(config: FitConfig, epoch: int) -> float:
    """Rate in an epoch (from 0): ``lr``, ×0.1 after a third of the epochs and again after two thirds."""
    return config.lr * 0.1 ** ((3 * epoch >= config.epochs) + (3 * epoch >= 2 * config.epochs))


def epoch_batches(count: int, batch: int, order: torch.Generator) -> Iterator[Tensor]:
    """Indices of one epoch's batches in random order; the last partial batch is dropped."""
    yield from torch.split(torch.randperm(count, generator=order)[: count - count % batch], batch)


def _train(fits: Sequence[Trainee], feed: Feed, count: int, config: FitConfig, seed: int) -> None:
    if not fits:
        return
    order = torch.Generator().manual_seed(seed)
    for epoch in range(config.epochs):
        for fit in fits:
            fit.start_epoch(learning_rate(config, epoch))
        for shown in feed.ahead(epoch_batches(count, config.batch, order)):
            for fit, batch in zip(fits, feed.streams(shown), strict=True):
                fit.step(batch, shown.labels)
        for fit in fits:
            fit.end_epoch(epoch)


def _solve(result: Fitted, streams: CachedStreams, count: int, batch: int) -> None:
    keys = frozenset({FRONT, result.end_point})

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for shown in streams.ahead(torch.split(torch.arange(count), batch)):
            found = streams(shown, keys)
            yield found[FRONT], found[result.end_point]

    result.init, loss = solve_exactly(result.stitch, pairs)
    result.train_loss = [loss]
    result.stitch.requires_grad_(False)


def _augmentation(seed: int) -> Callable[[Tensor], Tensor]:
    """Flip and crop of METHOD §5, drawn anew for each batch."""
    augment, generator = Augment("flip_crop"), torch.Generator().manual_seed(seed + _AUGMENTATION_SEED)
    return lambda images: augment(images, generator)


def _initialise(
    stitch: Stitch, f: CutNet, g: CutNet, i: int, j: int, images: Tensor, config: FitConfig, seed: int
) -> InitReport:
    """Both nets in eval mode; the end runs for ``pinv`` alone."""

    def pairs() -> Iterator[tuple[Tensor, Tensor | None]]:
        for part in torch.split(images, config.batch):
            batch = as_float(part).to(stitch.device)
            yield f.run(batch, 0, i), g.run(batch, 0, j) if config.init == "pinv" else None

    with torch.no_grad():
        return initialise_from(stitch, config.init, pairs(), seed)


def _point(net: CutNet, number: int, where: str) -> Point:
    if not 1 <= number <= net.n:
        raise InputError(where, number, f"this net has points 1 to {net.n}")
    return net.points[number - 1]

"""Measure stitched nets on a whole evaluation set: METHOD §7 for every objective of a group in one pass over the images.

An attacked evaluation set belongs to one net alone, against which it is made (METHOD §7): each net gets its own, and the end
and the front are shown the same images.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from raystitch.attacks import apgd_ce_dlr, standard_autoattack
from raystitch.config import AttackName, RobustConfig
from raystitch.data import ImageSet, evenly_spaced, overlapped, to_device
from raystitch.metrics import MatchError, compare, intervals
from raystitch.nets import CutNet, fold_batchnorm
from raystitch.stitching import Fitted, StitchedNet, affine_diagnostics, as_float

BATCH = 512
"""Images per forward pass of an evaluation."""
_Batches = Generator[Tensor, None, None]  # images, on the device


@dataclass(frozen=True)
class Measured:
    """What came of one net on one evaluation set.

    Attributes:
        columns: of the results table.
        labels: int64 (N,).
        h: logits (N, C) of the net, float32; these and the next ones on the CPU.
        end: those of the end.
        front: those of the front, (N, C_f).
    """

    columns: dict[str, Any]
    labels: Tensor
    h: Tensor
    end: Tensor
    front: Tensor


def evaluate(fitted: Sequence[Fitted], front: CutNet, end: CutNet, shown: ImageSet, device: str) -> dict[str, Measured]:
    """Measure each fitted stitch; returns them by objective.

    The end's own representations, and those of a front that stitches share, are computed once per batch and serve every
    objective.

    Args:
        fitted: stitches of one group: one front point, one end point.
        front: the front net, for its own accuracy.
        end: the end net: its own stream is what stitched streams are compared with.
        shown: the evaluation set, with the cue it is to carry.
        device: torch device.
    """
    return _evaluate(fitted, front, end, _batches(shown, device), shown.labels)


def evaluate_attacked(
    fit: Fitted, front: CutNet, end: CutNet, shown: ImageSet, attack: AttackName, robust: RobustConfig, device: str
) -> Measured:
    """Measure a fitted stitch on images that are attacked against its own stitched net.

    Args:
        fit: the stitch.
        front: the front net.
        end: the end net.
        shown: the clean evaluation set, of which ``robust.images`` are used.
        attack: how.
        robust: radius, steps and seed.
        device: torch device.

    Raises:
        InputError: see :mod:`raystitch.attacks`.
    """
    net = StitchedNet(fold_batchnorm(fit.front), fit.stitch, fold_batchnorm(fit.end), fit.front_point, fit.end_point)
    part, rows = _part(shown, robust)
    batches = _attacked(net, part, rows, attack, robust, device)
    return _with_radius(_evaluate([fit], front, end, batches, part.labels)[fit.objective], part, robust)


def evaluate_unstitched(alone: CutNet, front: CutNet, end: CutNet, shown: ImageSet, device: str) -> Measured:
    """Measure a whole net in the place of the stitched one: point 0 (the end) or n+1 (the front) of a curve."""
    return _evaluate_unstitched(alone, front, end, _batches(shown, device), shown.labels)


def evaluate_unstitched_attacked(
    alone: CutNet, front: CutNet, end: CutNet, shown: ImageSet, attack: AttackName, robust: RobustConfig, device: str
) -> Measured:
    """The same on images that are attacked against that net; arguments as for :func:`evaluate_attacked`."""
    part, rows = _part(shown, robust)
    batches = _attacked(fold_batchnorm(alone), part, rows, attack, robust, device)
    return _with_radius(_evaluate_unstitched(alone, front, end, batches, part.labels), part, robust)


@torch.no_grad()
def _evaluate(
    fitted: Sequence[Fitted], front: CutNet, end: CutNet, batches: _Batches, labels: Tensor
) -> dict[str, Measured]:
    i, j = fitted[0].front_point, fitted[0].end_point
    fronts = {id(fit.front): (fit.front, [other for other in fitted if other.front is fit.front]) for fit in fitted}
    logits: dict[str, list[Tensor]] = {fit.objective: [] for fit in fitted}
    errors = {fit.objective: [MatchError() for _ in range(j, end.n + 1)] for fit in fitted}
    own: list[Tensor] = []
    heads: list[Tensor] = []
    with closing(batches):
        for x in batches:
            first = end.run(x, 0, j)
            targets = [first, *end.trace(first, j, end.n + 1)]
            own.append(targets[-1])
            heads.append(front(x))
            for own_front, fits in fronts.values():
                seen = own_front.run(x, 0, i)
                for fit in fits:
                    stream = fit.trace_from(seen)
                    logits[fit.objective].append(stream[-1])
                    for error, z, target in zip(errors[fit.objective], stream[:-1], targets[:-1], strict=True):
                        error.update(z, target)
    g, f = torch.cat(own).cpu(), torch.cat(heads).cpu()
    found = {}
    for fit in fitted:
        h, more = torch.cat(logits[fit.objective]).cpu(), _match_columns(errors[fit.objective]) | _stitch_columns(fit)
        found[fit.objective] = _measured(h, g, f, labels, more)
    return found


@torch.no_grad()
def _evaluate_unstitched(alone: CutNet, front: CutNet, end: CutNet, batches: _Batches, labels: Tensor) -> Measured:
    with closing(batches):
        outputs = [(alone(x), front(x), end(x)) for x in batches]
    h, f, g = (torch.cat(parts).cpu() for parts in zip(*outputs, strict=True))
    return _measured(h, g, f, labels, {})


def _measured(h: Tensor, g: Tensor, f: Tensor, labels: Tensor, more: dict[str, Any]) -> Measured:
    """Every metric with the bounds of its 95 % bootstrap interval over the samples."""
    columns: dict[str, Any] = dict(compare(h, g, labels, f))
    for name, (low, high) in intervals(h, g, labels, f).items():
        columns |= {f"{name}_low": low, f"{name}_high": high}
    return Measured(columns | more, labels, h, g, f)


def _batches(shown: ImageSet, device: str) -> _Batches:
    parts = (as_float(to_device(part, device)) for part in torch.split(shown.images, BATCH))
    return overlapped(parts, device, shown.key is not None)


def _part(shown: ImageSet, robust: RobustConfig) -> tuple[ImageSet, Tensor]:
    """The images to attack, evenly spaced, and their rows in the whole set."""
    rows = torch.from_numpy(evenly_spaced(len(shown), robust.images))
    return ImageSet(shown.images[rows], shown.labels[rows], shown.num_classes), rows


def _with_radius(measured: Measured, part: ImageSet, robust: RobustConfig) -> Measured:
    return replace(measured, columns={**measured.columns, "eps": robust.radius(part.images.shape[-1])})


def _attacked(
    net: nn.Module, part: ImageSet, rows: Tensor, attack: AttackName, robust: RobustConfig, device: str
) -> _Batches:
    """Adversarial images batch by batch; with ``apgd_ce_dlr`` each one's search follows from its row in the whole set."""
    eps = robust.radius(part.images.shape[-1])
    parts = _batches(part, device), torch.split(part.labels, BATCH), torch.split(rows, BATCH)
    for x, labels, index in zip(*parts, strict=True):
        y = labels.to(device)
        with torch.enable_grad():
            if attack == "autoattack":
                found = standard_autoattack(net, x, y, eps, seed=robust.seed)
            else:
                found = apgd_ce_dlr(net, x, y, eps, robust.steps, seed=robust.seed, indices=index.tolist())
        yield found.images


def _match_columns(errors: Sequence[MatchError]) -> dict[str, Any]:
    at_stitch, *later = [error.compute() for error in errors]
    return {"match_error": at_stitch, "match_error_later": later}


def _stitch_columns(fit: Fitted) -> dict[str, Any]:
    rank, condition = affine_diagnostics(fit.stitch)
    return {
        "stitch_rank": rank,
        "stitch_condition": condition,
        "init_rank": fit.init.rank,
        "init_condition": fit.init.condition,
        "train_loss": fit.train_loss[-1],
    }

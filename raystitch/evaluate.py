"""Measure stitched nets on a whole evaluation set: METHOD §7 for every objective of a group in one pass over the images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from raystitch.data import ImageSet, to_float
from raystitch.metrics import MatchError, compare, intervals
from raystitch.nets import CutNet
from raystitch.stitching import Fitted, affine_diagnostics

BATCH = 512
"""Images per forward pass of an evaluation."""


@torch.no_grad()
def evaluate(
    fitted: Sequence[Fitted], front: CutNet, end: CutNet, shown: ImageSet, device: str
) -> dict[str, dict[str, Any]]:
    """Metrics of each fitted stitch, by objective.

    The end's own representations are computed once per batch and serve every objective.

    Args:
        fitted: stitches of one group: one front point, one end point.
        front: the front net, for its own accuracy.
        end: the end net: its own stream is what stitched streams are compared with.
        shown: the evaluation set, with the cue it is to carry.
        device: torch device.

    Returns:
        Objective → columns of the results table.
    """
    j = fitted[0].end_point
    logits: dict[str, list[Tensor]] = {fit.objective: [] for fit in fitted}
    errors = {fit.objective: [MatchError() for _ in range(j, end.n + 1)] for fit in fitted}
    own: list[Tensor] = []
    heads: list[Tensor] = []
    for x in _batches(shown, device):
        first = end.run(x, 0, j)
        targets = [first, *end.trace(first, j, end.n + 1)]
        own.append(targets[-1])
        heads.append(front(x))
        for fit in fitted:
            stream = fit.trace(x)
            logits[fit.objective].append(stream[-1])
            for error, z, target in zip(errors[fit.objective], stream[:-1], targets[:-1], strict=True):
                error.update(z, target)
    g, f = torch.cat(own), torch.cat(heads)
    labels = shown.labels.to(g.device)
    return {
        fit.objective: {
            **_measured(torch.cat(logits[fit.objective]), g, labels, f),
            **_match_columns(errors[fit.objective]),
            **_stitch_columns(fit),
        }
        for fit in fitted
    }


@torch.no_grad()
def evaluate_unstitched(alone: CutNet, front: CutNet, end: CutNet, shown: ImageSet, device: str) -> dict[str, float]:
    """Metrics of a whole net in the place of the stitched one: point 0 (the end) or n+1 (the front) of a curve."""
    outputs = [(alone(x), front(x), end(x)) for x in _batches(shown, device)]
    h, f, g = (torch.cat(parts) for parts in zip(*outputs, strict=True))
    return _measured(h, g, shown.labels.to(g.device), f)


def _measured(h: Tensor, g: Tensor, labels: Tensor, f: Tensor) -> dict[str, float]:
    """Every metric with the bounds of its 95 % bootstrap interval over the samples."""
    columns = compare(h, g, labels, f)
    for name, (low, high) in intervals(h, g, labels, f).items():
        columns |= {f"{name}_low": low, f"{name}_high": high}
    return columns


def _batches(shown: ImageSet, device: str) -> Iterator[Tensor]:
    return (to_float(part.to(device)) for part in torch.split(shown.images, BATCH))


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

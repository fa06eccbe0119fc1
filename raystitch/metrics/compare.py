"""All metrics of one evaluation set in one call, under the names of METHOD §7."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from raystitch.metrics.agreement import agreement, agreement_correct, agreement_top1
from raystitch.metrics.consistency import kappa, kappa_soft


def compare(h: Tensor, g: Tensor, labels: Tensor, front: Tensor | None = None) -> dict[str, float]:
    """Measure the stitched net h against the end model g over a whole evaluation set.

    Args:
        h: logits (N, C) of the stitched net, any float dtype and device.
        g: logits (N, C) of the end model on the same samples.
        labels: integers (N,) in 0..C−1.
        front: logits (N, C_f) of the front model, if its own head is to be scored.

    Returns:
        In percent (0..100): ``agreement``, ``agreement_top1``, ``agreement_correct``, ``top1``, ``top5``, ``top1_end``,
        ``top1_front``. Unitless: ``kappa``, ``kappa_soft``. ``loss``: mean cross-entropy of h, in nats. The keys are
        always the same; ``top5`` is NaN if C < 5, ``top1_front`` is NaN without ``front``.

    Raises:
        ValueError: no samples, shapes that do not fit, or a label outside 0..C−1.
        FloatingPointError: logits that are not finite (a prediction from NaN would be a class by accident).
    """
    check(h, g, labels, front)
    h, g, labels = h.detach().cpu().double(), g.detach().cpu().double(), labels.cpu().long()
    return {
        "agreement": agreement(h, g),
        "agreement_top1": agreement_top1(h, g),
        "agreement_correct": agreement_correct(h, g, labels),
        "kappa": kappa(h, g, labels),
        "kappa_soft": kappa_soft(h, g, labels),
        "top1": top1(h, labels),
        "top5": top5(h, labels),
        "loss": float(F.cross_entropy(h, labels)),
        "top1_end": top1(g, labels),
        "top1_front": math.nan if front is None else top1(front.detach().cpu(), labels),
    }


def top1(logits: Tensor, labels: Tensor) -> float:
    """Share of samples whose largest logit is the label's, 0..100; of equal logits the first class counts."""
    return 100 * float((logits.argmax(1) == labels).double().mean())


def top5(logits: Tensor, labels: Tensor) -> float:
    """Share of samples whose label is among the five largest logits, 0..100; NaN if there are fewer than five classes.

    Equal logits are ranked by class, as in :func:`top1`, so top-5 is never below top-1.
    """
    return math.nan if logits.shape[1] < 5 else 100 * float(in_top5(logits, labels).double().mean())


def in_top5(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each label is among the five largest logits, bool (N,)."""
    best = logits.argsort(dim=1, descending=True, stable=True)[:, :5]
    return (best == labels[:, None]).any(1)


def check(h: Tensor, g: Tensor, labels: Tensor, front: Tensor | None) -> None:
    """Raise what :func:`compare` promises to raise."""
    if h.ndim != 2 or h.shape != g.shape or labels.shape != h.shape[:1]:
        shapes = f"{tuple(h.shape)}, {tuple(g.shape)}, {tuple(labels.shape)}"
        raise ValueError(f"h, g and labels must be (N, C), (N, C) and (N,); found {shapes}")
    if front is not None and (front.ndim != 2 or len(front) != len(h)):
        raise ValueError(f"front must be (N, C_f) with N = {len(h)}; found {tuple(front.shape)}")
    if not h.numel():
        raise ValueError("there are no samples to compare")
    if labels.min() < 0 or labels.max() >= h.shape[1]:
        raise ValueError(f"labels must lie in 0..{h.shape[1] - 1}; found {int(labels.min())}..{int(labels.max())}")
    for name, logits in (("stitched net", h), ("end model", g), ("front model", front)):
        if logits is not None and not torch.isfinite(logits).all():
            raise FloatingPointError(f"the logits of the {name} are not finite")

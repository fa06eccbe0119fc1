"""Agreement of two classifiers on the same samples, in percent (METHOD §7).

Logits are (N, C) float tensors, N ≥ 1; labels (N,) integers. Computed in float64.
"""

from __future__ import annotations

from torch import Tensor


def agreement(h: Tensor, g: Tensor) -> float:
    """Agreement probability, 0..100: mean of p·q / max(p·p, q·q), p = softmax(h), q = softmax(g).

    100 exactly when both give the same probabilities on every sample; symmetric in h and g.
    """
    return 100 * float(agreement_each(h, g).mean())


def agreement_each(h: Tensor, g: Tensor) -> Tensor:
    """Agreement probability of each sample, float64 (N,) in [0, 1]."""
    p, q = h.double().softmax(1), g.double().softmax(1)
    norm = (p * p).sum(1).maximum((q * q).sum(1))
    return ((p * q).sum(1) / norm).clamp_max(1)  # rounding may pass 1 by one unit


def agreement_top1(h: Tensor, g: Tensor) -> float:
    """Share of samples on which both predict the same class, 0..100."""
    return 100 * float((h.argmax(1) == g.argmax(1)).double().mean())


def agreement_correct(h: Tensor, g: Tensor, labels: Tensor) -> float:
    """Share of samples on which both are right or both are wrong, 0..100 (observed agreement of error consistency)."""
    return 100 * float(((h.argmax(1) == labels) == (g.argmax(1) == labels)).double().mean())

"""Error consistency: agreement beyond what two independent classifiers of the same accuracies would show (METHOD §7).

Cohen's κ on right/wrong (Geirhos et al. 2020), and its soft form on probabilities. κ is not linear in the samples: it
is computed over the whole set and never averaged over batches. Unitless; 1 is perfect, 0 is chance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from raystitch.metrics.agreement import agreement, agreement_correct


def kappa(h: Tensor, g: Tensor, labels: Tensor) -> float:
    """κ = (c_obs − c_exp) / (1 − c_exp), c_exp = a_h·a_g + (1−a_h)(1−a_g) with accuracies a; 1 if c_exp = 1.

    In [−1, 1]; symmetric in h and g.

    Args:
        h: logits (N, C) of the stitched net.
        g: logits (N, C) of the end model.
        labels: (N,) integers.
    """
    a_h = float((h.argmax(1) == labels).double().mean())
    a_g = float((g.argmax(1) == labels).double().mean())
    return float(beyond_chance(agreement_correct(h, g, labels) / 100, a_h * a_g + (1 - a_h) * (1 - a_g)))


def kappa_soft(h: Tensor, g: Tensor, labels: Tensor) -> float:
    """κ with c_obs = agreement probability and c_exp = s_h·s_g + (1−s_h)(1−s_g)/(C−1), s = mean probability of y.

    At most 1; 1 if c_exp = 1. Arguments as for :func:`kappa`.
    """
    s_h, s_g = (float(label_probability(logits, labels).mean()) for logits in (h, g))
    others = max(h.shape[1] - 1, 1)
    return float(beyond_chance(agreement(h, g) / 100, s_h * s_g + (1 - s_h) * (1 - s_g) / others))


def beyond_chance(observed: ArrayLike, expected: ArrayLike) -> NDArray[np.float64]:
    """(observed − expected) / (1 − expected) of each element, 1 where expected ≥ 1; arguments are shares in [0, 1]."""
    seen, chance = np.asarray(observed, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    certain = chance >= 1
    values: NDArray[np.float64] = np.where(certain, 1.0, (seen - chance) / np.where(certain, 1.0, 1 - chance))
    return values


def label_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """softmax(logits) at each sample's label, float64 (N,)."""
    return logits.double().softmax(1).gather(1, labels[:, None])[:, 0]

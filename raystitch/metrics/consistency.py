"""Error consistency: agreement beyond what two independent classifiers of the same accuracies would show (METHOD §7).

Cohen's κ on right/wrong (Geirhos et al. 2020), and its soft form on probabilities. κ is not linear in the samples: it
is computed over the whole set and never averaged over batches. Unitless; 1 is perfect, 0 is chance.
"""

from __future__ import annotations

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
    return _beyond_chance(agreement_correct(h, g, labels) / 100, a_h * a_g + (1 - a_h) * (1 - a_g))


def kappa_soft(h: Tensor, g: Tensor, labels: Tensor) -> float:
    """κ with c_obs = agreement probability and c_exp = s_h·s_g + (1−s_h)(1−s_g)/(C−1), s = mean probability of y.

    At most 1; 1 if c_exp = 1. Arguments as for :func:`kappa`.
    """
    s_h, s_g = _label_probability(h, labels), _label_probability(g, labels)
    others = max(h.shape[1] - 1, 1)
    return _beyond_chance(agreement(h, g) / 100, s_h * s_g + (1 - s_h) * (1 - s_g) / others)


def _beyond_chance(observed: float, expected: float) -> float:
    return 1.0 if expected >= 1 else (observed - expected) / (1 - expected)


def _label_probability(logits: Tensor, labels: Tensor) -> float:
    return float(logits.double().softmax(1).gather(1, labels[:, None]).mean())

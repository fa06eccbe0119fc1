"""What each sample contributes: every metric of :func:`raystitch.metrics.compare` is a function of means of these.

So any subset or resample of an evaluation set can be measured without the logits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from raystitch.metrics.agreement import agreement_each
from raystitch.metrics.compare import check, in_top5
from raystitch.metrics.consistency import beyond_chance, label_probability

Array = NDArray[np.float64]


def per_sample(h: Tensor, g: Tensor, labels: Tensor, front: Tensor | None = None) -> dict[str, Array]:
    """Sufficient statistics of an evaluation set: float64 arrays (N,).

    Arguments and errors as for :func:`raystitch.metrics.compare`.

    Returns:
        ``agreement``: agreement probability in [0, 1]. ``same``: equal predictions. ``both``: both right or
        both wrong. ``right``, ``right_end``, ``right_front``, ``right_top5``: 0 or 1, or NaN throughout where not defined.
        ``probability``, ``probability_end``: of the label. ``loss``: cross-entropy of h in nats.
    """
    check(h, g, labels, front)
    h, g, labels = h.detach().cpu().double(), g.detach().cpu().double(), labels.cpu().long()
    missing = np.full(len(h), np.nan)
    right = h.argmax(1) == labels
    return {
        "agreement": _array(agreement_each(h, g)),
        "same": _array(h.argmax(1) == g.argmax(1)),
        "right": _array(right),
        "right_end": _array(g.argmax(1) == labels),
        "right_front": missing if front is None else _array(front.detach().cpu().argmax(1) == labels),
        "right_top5": missing if h.shape[1] < 5 else _array(in_top5(h, labels)),
        "both": _array(right == (g.argmax(1) == labels)),
        "probability": _array(label_probability(h, labels)),
        "probability_end": _array(label_probability(g, labels)),
        "loss": _array(F.cross_entropy(h, labels, reduction="none")),
    }


def metrics_of_means(means: Mapping[str, Array], classes: int) -> dict[str, Array]:
    """The metrics of METHOD §7, under its names and in its units, from means of :func:`per_sample`.

    Args:
        means: per statistic an array of any shape: one mean per resample.
        classes: C.

    Returns:
        Per metric of :func:`raystitch.metrics.compare` an array of the same shape.
    """
    a_h, a_g = means["right"], means["right_end"]
    s_h, s_g = means["probability"], means["probability_end"]
    chance = s_h * s_g + (1 - s_h) * (1 - s_g) / max(classes - 1, 1)
    return {
        "agreement": 100 * means["agreement"],
        "agreement_top1": 100 * means["same"],
        "agreement_correct": 100 * means["both"],
        "kappa": beyond_chance(means["both"], a_h * a_g + (1 - a_h) * (1 - a_g)),
        "kappa_soft": beyond_chance(means["agreement"], chance),
        "top1": 100 * a_h,
        "top5": 100 * means["right_top5"],
        "loss": means["loss"],
        "top1_end": 100 * a_g,
        "top1_front": 100 * means["right_front"],
    }


def _array(values: Tensor) -> Array:
    array: Array = values.double().numpy()
    return array

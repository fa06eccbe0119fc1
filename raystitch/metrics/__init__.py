"""How alike two networks behave (METHOD §7): agreement, error consistency, accuracy, and the match of representations.

Plain functions on logits and representations; everything over the whole evaluation set, in float64. Intervals by bootstrap
over samples.
"""

from raystitch.metrics.agreement import agreement, agreement_correct, agreement_top1
from raystitch.metrics.bootstrap import bootstrap, intervals
from raystitch.metrics.cka import LinearCKA, exact_cka, linear_cka
from raystitch.metrics.compare import compare
from raystitch.metrics.consistency import kappa, kappa_soft
from raystitch.metrics.match import MatchError
from raystitch.metrics.samples import metrics_of_means, per_sample
from raystitch.metrics.stir import representation_cka, representation_metrics, stir

__all__ = [
    "LinearCKA",
    "MatchError",
    "agreement",
    "agreement_correct",
    "agreement_top1",
    "bootstrap",
    "compare",
    "exact_cka",
    "intervals",
    "kappa",
    "kappa_soft",
    "linear_cka",
    "metrics_of_means",
    "per_sample",
    "representation_cka",
    "representation_metrics",
    "stir",
]

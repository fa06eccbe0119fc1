"""How alike two networks behave (METHOD §7): agreement, error consistency, accuracy, and the match of representations.

Plain functions on logits; everything over the whole evaluation set, in float64.
"""

from raystitch.metrics.agreement import agreement, agreement_correct, agreement_top1
from raystitch.metrics.compare import compare
from raystitch.metrics.consistency import kappa, kappa_soft
from raystitch.metrics.match import MatchError

__all__ = ["MatchError", "agreement", "agreement_correct", "agreement_top1", "compare", "kappa", "kappa_soft"]

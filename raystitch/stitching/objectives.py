"""The objectives of a stitch (METHOD §3) and their weighted sums as losses over one batch, and what each of them needs.

Write z_k for the stitched stream and ẑ_k for the end model's own, at the end's points k = j (the stitch) … n (the last
point, called penultimate in the paper) and n+1 (the logits).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from raystitch.config import EXACT, Objective, Term, objective_terms


def hard_label_loss(h_logits: Tensor, labels: Tensor) -> Tensor:
    """HLM: cross-entropy of the stitched net's logits (B, C) with labels (B), in nats, batch mean."""
    return F.cross_entropy(h_logits, labels)


def soft_label_loss(h_logits: Tensor, g_logits: Tensor) -> Tensor:
    """SLM: KL(softmax(g) ‖ softmax(h)) of logits (B, C), in nats, batch mean.

    It is the cross-entropy from g's prediction to h's less g's entropy, which no stitch can change; so it is 0 at best.
    """
    return F.kl_div(h_logits.log_softmax(1), g_logits.log_softmax(1), reduction="batchmean", log_target=True)


def match_loss(z: Tensor, z_hat: Tensor) -> Tensor:
    """DM: ‖z − ẑ‖_F / ‖ẑ‖_F, both norms over the whole batch tensor (B, …); ≥ 0, and 0 only if z = ẑ."""
    relative: Tensor = torch.linalg.vector_norm(z - z_hat) / torch.linalg.vector_norm(z_hat)
    return relative


def fula_loss(zs: Sequence[Tensor], z_hats: Sequence[Tensor], depth: int | None = None) -> Tensor:
    """FuLA: plain mean of :func:`match_loss` over the stitch point and the later points, logits not included.

    Args:
        zs: the stitched stream at points j, j+1, …
        z_hats: the end's own stream at the same points.
        depth: how many points after the stitch take part; ``None`` for all.
    """
    stop = None if depth is None else depth + 1
    return torch.stack([match_loss(z, z_hat) for z, z_hat in zip(zs[:stop], z_hats[:stop], strict=True)]).mean()


def reach(objective: Objective, end_point: int, last_point: int) -> int:
    """The furthest point to which the loss follows the stitched stream: j (dm), n (fula) or n+1 (hlm, slm)."""
    return max((_reach(term, end_point, last_point) for term in objective_terms(objective)), default=end_point)


def _reach(term: Term, end_point: int, last_point: int) -> int:
    if term.name in ("hlm", "slm"):
        return last_point + 1
    if term.name == "dm":
        return end_point
    return last_point if term.depth is None else min(end_point + term.depth, last_point)


def targets(objective: Objective, end_point: int, last_point: int) -> tuple[int, ...]:
    """The points of the end's own stream that the loss compares with, ascending; none for hlm."""
    if objective == EXACT:
        return (end_point,)
    wanted: set[int] = set()
    for term in objective_terms(objective):
        stop = _reach(term, end_point, last_point)
        wanted.update({"hlm": (), "slm": (stop,)}.get(term.name, range(end_point, stop + 1)))
    return tuple(sorted(wanted))


def batch_loss(objective: Objective, stitched: Sequence[Tensor], own: Sequence[Tensor], labels: Tensor) -> Tensor:
    """The objective on one batch: the weighted sum of its terms.

    Args:
        objective: any but ``dm_exact``, which is not trained.
        stitched: z at points j … ``reach``.
        own: ẑ at the ``targets`` of the objective, in order.
        labels: (B) int64.
    """
    terms = objective_terms(objective)
    matched = own[:-1] if any(term.name == "slm" for term in terms) else own
    losses = [_term_loss(term, stitched, matched, own, labels) for term in terms]
    weighted = [loss if term.weight == 1 else term.weight * loss for term, loss in zip(terms, losses, strict=True)]
    return functools.reduce(torch.add, weighted)


def _term_loss(
    term: Term, stitched: Sequence[Tensor], matched: Sequence[Tensor], own: Sequence[Tensor], labels: Tensor
) -> Tensor:
    """One term; ``matched`` is ``own`` without the logits, so from point j on."""
    if term.name == "hlm":
        return hard_label_loss(stitched[-1], labels)
    if term.name == "slm":
        return soft_label_loss(stitched[-1], own[-1])
    if term.name == "dm":
        return match_loss(stitched[0], matched[0])
    return fula_loss(stitched[: len(matched)], matched, term.depth)

"""The four objectives of a stitch (METHOD §3) as losses over one batch, and what each of them needs to be computed.

Write z_k for the stitched stream and ẑ_k for the end model's own, at the end's points k = j (the stitch) … n (the last
point, called penultimate in the paper) and n+1 (the logits).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from raystitch.config import Objective


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
    return {"dm": end_point, "fula": last_point}.get(objective, last_point + 1)


def targets(objective: Objective, end_point: int, last_point: int) -> tuple[int, ...]:
    """The points of the end's own stream that the loss compares with; none for hlm."""
    wanted: Mapping[Objective, tuple[int, ...]] = {
        "hlm": (),
        "slm": (last_point + 1,),
        "dm": (end_point,),
        "fula": tuple(range(end_point, last_point + 1)),
    }
    return wanted[objective]


def batch_loss(objective: Objective, stitched: Sequence[Tensor], own: Sequence[Tensor], labels: Tensor) -> Tensor:
    """The objective on one batch.

    Args:
        objective: which of the four.
        stitched: z at points j … ``reach``.
        own: ẑ at the ``targets`` of the objective, in order.
        labels: (B) int64.
    """
    if objective == "hlm":
        return hard_label_loss(stitched[-1], labels)
    if objective == "slm":
        return soft_label_loss(stitched[-1], own[0])
    if objective == "dm":
        return match_loss(stitched[0], own[0])
    return fula_loss(stitched, own)

"""The robust evaluation of the method (METHOD §7): APGD-CE, then APGD-DLR on what is left; and what robust means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raystitch.attacks.apgd import apgd
from raystitch.attacks.ask import Model, is_right, is_right_in_batches
from raystitch.attacks.ball import check_inputs, sample_seeds
from raystitch.attacks.losses import require_three_classes
from raystitch.nets import held

BATCH = 256
"""Images per batch of an evaluation."""


@dataclass(frozen=True)
class Attacked:
    """An evaluation set after an attack.

    Attributes:
        images: like the clean ones; the adversarial image where the attack took the right label away, else the clean one
            (as AutoAttack returns them).
        robust: bool (N,): right on the clean image and after every attack.
    """

    images: Tensor
    robust: Tensor


def apgd_ce_dlr(
    model: Model,
    x: Tensor,
    labels: Tensor,
    eps: float,
    steps: int = 20,
    *,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    batch: int = BATCH,
) -> Attacked:
    """APGD on the cross-entropy, then APGD on the DLR loss for the images that are still right.

    Each image's search starts at a point of its own, decided by ``seed`` and the image's index: results do not depend on
    how a set is cut into calls and batches.

    Args:
        model: images in [0, 1] → logits (B, C), C ≥ 3, on the device of ``x``.
        x: float (N, 3, H, W) in [0, 1].
        labels: int64 (N,).
        eps: L∞ radius in pixel units; the method's: 8/255 at 32 px, 4/255 at 224 px.
        steps: of each of the two; the method's: 20.
        seed: of the evaluation.
        indices: of the images in their evaluation set; 0 … N−1 by default.
        batch: images per pass.

    Returns:
        The adversarial set and which images withstood.

    Raises:
        InputError: the net has fewer than three classes, so that the DLR loss is undefined (nothing is run).
        ValueError: see :func:`raystitch.attacks.ball.check_inputs`.
        FloatingPointError: the logits are not finite.
    """
    check_inputs(x, labels, eps)
    numbers = list(range(len(x))) if indices is None else list(indices)
    images, robust = x.detach().clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    with held(model):
        _require_dlr(model, x)
        for first in range(0, len(x), batch):
            part = slice(first, first + batch)
            images[part], robust[part] = _attack(model, x[part].detach(), labels[part], eps, steps, seed, numbers[part])
    return Attacked(images, robust)


def _attack(
    model: Model, x: Tensor, labels: Tensor, eps: float, steps: int, seed: int, numbers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    images, robust = x.clone(), is_right(model, x, labels)
    for loss in ("ce", "dlr"):
        rows = robust.nonzero()[:, 0]
        if not len(rows):
            break
        seeds = sample_seeds(seed, f"apgd-{loss}", [numbers[row] for row in rows.tolist()])
        found = apgd(model, x[rows], labels[rows], eps=eps, steps=steps, seeds=seeds, loss=loss)
        fooled = ~is_right(model, found, labels[rows])
        images[rows[fooled]] = found[fooled]
        robust[rows[fooled]] = False
    return images, robust


def robust_accuracy(model: Model, x: Tensor, labels: Tensor, attacked: Sequence[Tensor], batch: int = BATCH) -> float:
    """Percent of images that are right on clean input and on every attacked version of it.

    Args:
        model: images in [0, 1] → logits.
        x: clean images (N, 3, H, W), N ≥ 1.
        labels: int64 (N,).
        attacked: sets like ``x``, one per attack.
        batch: images per pass.
    """
    robust = torch.ones(len(x), dtype=torch.bool, device=x.device)
    with held(model):
        for images in (x, *attacked):
            robust &= is_right_in_batches(model, images, labels, batch)
    return 100 * float(robust.double().mean())


@torch.no_grad()
def _require_dlr(model: Model, x: Tensor) -> None:
    if len(x):
        require_three_classes(model(x[:1]).shape[1])

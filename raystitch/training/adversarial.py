"""Adversarial training (METHOD §8, "AT"): cross-entropy on batches of which a random half is attacked by PGD.

The attack runs with the net in eval mode, so that it neither moves BatchNorm's statistics nor meets dropout; the step that
follows is taken in train mode on clean and attacked images together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raystitch.config import AttackConfig, TrainConfig
from raystitch.nets.head import in_eval
from raystitch.training.batches import Batch, augmentation
from raystitch.training.run import Phase, Run


def train_adversarial(net: nn.Module, recipe: TrainConfig, run: Run) -> None:
    """Train the whole net for ``recipe.epochs``."""
    augment, attack = augmentation(recipe), recipe.attack

    def loss(batch: Batch) -> Tensor:
        images = run.batches.view(batch, augment)
        order = torch.randperm(len(images), generator=run.batches.generator)
        chosen = order[: max(1, round(attack.share * len(images)))].to(images.device)
        images[chosen] = pgd(net, images[chosen], batch.labels[chosen], attack)
        return F.cross_entropy(net(images), batch.labels)

    run.phase(Phase(net, net, recipe, loss))


def pgd(net: nn.Module, images: Tensor, labels: Tensor, attack: AttackConfig) -> Tensor:
    """Projected gradient descent on −cross-entropy in the L∞ ball, from the clean image (Madry et al. 2018).

    x ← clip(x + step · sign(∇ loss), clean ± eps, 0 … 1), ``attack.steps`` times. The net's modes, buffers and gradients stay
    as they are.

    Args:
        net: images → logits; attacked in eval mode.
        images: float (B, 3, H, W) in [0, 1].
        labels: int64 (B,), to be moved away from.
        attack: steps, and distances in pixel units.

    Returns:
        Attacked images of the same shape, without a graph.
    """
    lowest, highest = (images - attack.eps).clamp(min=0), (images + attack.eps).clamp(max=1)
    attacked = images.detach()
    with in_eval(net), torch.enable_grad():
        for _ in range(attack.steps):
            attacked = attacked.requires_grad_()
            loss = F.cross_entropy(net(attacked), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, attacked)
            moved = attacked.detach() + attack.step * gradient.sign()
            attacked = moved.maximum(lowest).minimum(highest)
    return attacked

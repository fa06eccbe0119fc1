"""SimCLR (METHOD §8; Chen et al. 2020): a trunk trained without labels by InfoNCE, then a linear head on the frozen trunk."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raystitch.config import TrainConfig
from raystitch.data.views import simclr_view
from raystitch.nets.head import find_classifier, headless
from raystitch.training.batches import Batch, augmentation
from raystitch.training.run import Loss, Phase, Prepared, Run

PROJECTOR = (1024, 128)
"""Widths of the projector's hidden and output layers in the paper."""


def train_simclr(net: nn.Module, recipe: TrainConfig, run: Run) -> None:
    """Train the trunk with a projector in the classifier's place, then the classifier on the trunk's features.

    The trunk is in eval mode and untouched while the head is trained, on images with the recipe's own augmentation. The
    projector is thrown away.
    """
    with headless(net, find_classifier(net, run.batches.images.shape[-1])) as head:
        projector = make_projector(head.in_features).to(head.weight.device)
        both = nn.ModuleDict({"trunk": net, "projector": projector})
        contrast = _contrast(net, projector, recipe.simclr.temperature)
        run.phase(Phase(both, both, recipe, lambda batch: _two_views(batch, run), contrast))
        whole, augment = nn.ModuleDict({"trunk": net, "head": head}), augmentation(recipe)

        def prepare(batch: Batch) -> Prepared:
            return run.batches.view(batch, augment), batch.labels

        run.phase(Phase(whole, head, recipe.head, prepare, _classify(net, head), " of the linear head"))


def info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Mean over all 2B views of the cross-entropy of finding each view's partner among the other 2B − 1 (NT-Xent).

    Similarity is the cosine divided by the temperature (Chen et al. 2020, equation 1).

    Args:
        first: projections (B, D) of one view of each image.
        second: projections (B, D) of the other.
        temperature: above 0.
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = views @ views.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(views), dtype=torch.bool, device=views.device), -torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(similarity, partner)


def make_projector(features: int) -> nn.Sequential:
    """Linear, ReLU, linear: (B, features) → (B, 128)."""
    hidden, outputs = PROJECTOR
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _two_views(batch: Batch, run: Run) -> Prepared:
    return (torch.cat([run.batches.view(batch, simclr_view) for _ in range(2)]),)


def _contrast(trunk: nn.Module, projector: nn.Module, temperature: float) -> Loss:
    def loss(views: Tensor) -> Tensor:
        first, second = projector(trunk(views)).chunk(2)
        return info_nce(first, second, temperature)

    return loss


def _classify(trunk: nn.Module, head: nn.Module) -> Loss:
    def loss(images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            features = trunk(images)
        return F.cross_entropy(head(features), labels)

    return loss

"""The baseline ``published-style``: what the method's published code does per step, written plainly.

The whole net runs whenever one of its layers is wanted, BatchNorm is a layer of its own, autograd is on throughout, nothing
is kept from one step to the next, and every objective is a run of its own. Parameters are frozen, so that gradients are
those of the images or of the stitch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raystitch.nets import CutNet

STEPS, STEP_SIZE = 200, 1 / 255
"""The published inversion of 32-pixel images (METHOD §2)."""


def representations(net: CutNet, images: Tensor) -> list[Tensor]:
    """Run the whole net: the representation at every point from 1 on, logits last."""
    return net.trace(images, 0, net.n + 1)


def relative_error(z: Tensor, target: Tensor) -> Tensor:
    """‖z − ẑ‖₂ / ‖ẑ‖₂ of each image, (B,)."""
    error: Tensor = (z - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)
    return error


def inversion_step(net: CutNet, point: int, x: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """One sign step on a batch: four full forwards, one backward to the images.

    Returns:
        The next iterate (B, 3, H, W) in [0, 1] and its residual r (B,).
    """
    x = x.detach().requires_grad_()
    target = representations(net, images)[point - 1]
    loss = relative_error(representations(net, x)[point - 1], target).sum()
    (gradient,) = torch.autograd.grad(loss, x)
    after = (x.detach() - STEP_SIZE * gradient.sign()).clamp(0, 1).requires_grad_()
    reached = relative_error(representations(net, after)[point - 1], representations(net, images)[point - 1])
    return after.detach(), reached.detach()


def invert(net: CutNet, point: int, images: Tensor, start: Tensor, steps: int = STEPS) -> tuple[Tensor, Tensor]:
    """``steps`` sign steps from ``start``; the last iterate and its residual."""
    x, r = start, torch.full((len(start),), torch.inf)
    for _ in range(steps):
        x, r = inversion_step(net, point, x, images)
    return x, r


@dataclass(frozen=True)
class Recipe:
    """Training of a stitch (METHOD §5): Adam, lr ×0.1 after 1/3 and 2/3 of the epochs, last partial batch dropped."""

    epochs: int = 30
    batch: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-4


def initial_stitch(front: CutNet, end: CutNet, i: int, j: int, images: Tensor) -> nn.Conv2d:
    """The 1×1 convolution T that is the least-squares map from front to end on real images; bias 0.

    Only points of equal height and width are paired here, so nothing is resized.
    """
    x = torch.cat([_rows(representations(front, part)[i - 1]) for part in torch.split(images, 128)])
    y = torch.cat([_rows(representations(end, part)[j - 1]) for part in torch.split(images, 128)])
    solution = torch.linalg.lstsq(x.cpu().double(), y.cpu().double(), driver="gelsd").solution
    stitch = nn.Conv2d(x.shape[1], y.shape[1], 1)
    with torch.no_grad():
        stitch.weight.copy_(solution.T[:, :, None, None])
        stitch.bias.zero_()  # type: ignore[union-attr]
    return stitch.to(images.device)


def loss_of(objective: str, stitched: list[Tensor], own: list[Tensor], labels: Tensor) -> Tensor:
    """One of the four objectives (METHOD §3).

    Args:
        objective: hlm, slm, dm or fula.
        stitched: z at the end's points from the stitch on, logits last.
        own: ẑ at the same points.
        labels: (B) int64.
    """
    if objective == "hlm":
        return F.cross_entropy(stitched[-1], labels)
    if objective == "slm":
        return F.cross_entropy(stitched[-1], own[-1].softmax(1))
    matched = [(z - z_hat).norm() / z_hat.norm() for z, z_hat in zip(stitched[:-1], own[:-1], strict=True)]
    return matched[0] if objective == "dm" else torch.stack(matched).mean()


def streams(
    front: CutNet, stitch: nn.Module, end: CutNet, i: int, j: int, images: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Three full forwards: the front, the end, and the end again with T's output put in the place of its point j.

    Returns:
        The stitched stream and the end's own, both from the end's point j on, logits last.
    """
    z = stitch(representations(front, images)[i - 1])
    own = representations(end, images)[j - 1 :]
    end.run(images, 0, j)  # a hook replaces what came out of this
    return [z, *end.trace(z, j, end.n + 1)], own


def fit(
    objective: str,
    nets: tuple[CutNet, CutNet],
    points: tuple[int, int],
    data: tuple[Tensor, Tensor],
    init_images: Tensor,
    recipe: Recipe,
    seed: int,
) -> nn.Conv2d:
    """Train T for one objective by protocol ``matched``.

    Args:
        objective: hlm, slm, dm or fula.
        nets: front and end.
        points: i and j.
        data: images (N, 3, H, W) in [0, 1] and labels (N).
        init_images: real images of the initialisation, in [0, 1].
        recipe: the training.
        seed: of the order of batches.
    """
    (front, end), (i, j), (images, labels) = nets, points, data
    stitch = initial_stitch(front, end, i, j, init_images)
    optimiser = torch.optim.Adam(stitch.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    milestones = [-(-recipe.epochs * third // 3) for third in (1, 2)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones)
    order = torch.Generator().manual_seed(seed)
    for _ in range(recipe.epochs):
        for index in _batches(len(images), recipe.batch, order):
            stitched, own = streams(front, stitch, end, i, j, images[index])
            loss = loss_of(objective, stitched, own, labels[index])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        schedule.step()
    return stitch


def agreement(
    stitch: nn.Module, nets: tuple[CutNet, CutNet], points: tuple[int, int], images: Tensor, batch: int = 128
) -> float:
    """Agreement probability of the stitched net with the end (METHOD §7), in percent; three full forwards per batch."""
    shares = []
    for part in torch.split(images, batch):
        stitched, own = streams(nets[0], stitch, nets[1], *points, part)
        p, q = stitched[-1].detach().softmax(1), own[-1].softmax(1)
        shares.append((p * q).sum(1) / torch.maximum((p * p).sum(1), (q * q).sum(1)))
    return 100 * float(torch.cat(shares).mean())


def _rows(z: Tensor) -> Tensor:
    """(B, C, H, W) → (B·H·W, C)."""
    return z.movedim(1, -1).flatten(0, -2)


def _batches(count: int, batch: int, order: torch.Generator) -> Iterator[Tensor]:
    yield from torch.split(torch.randperm(count, generator=order)[: count - count % batch], batch)

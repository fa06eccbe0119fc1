"""How often a net is right."""

from __future__ import annotations

import torch
from torch import nn

from raystitch.data import ImageSet, overlapped, to_device, to_float
from raystitch.modes import evaluating


@torch.inference_mode()
def accuracy(net: nn.Module, data: ImageSet, device: torch.device | str = "cpu", batch: int = 512) -> float:
    """Top-1 accuracy in percent, in eval mode; modules get their modes back, the net stays on ``device``."""
    net.to(device)
    right = 0
    with evaluating(net):
        shown = (to_float(to_device(part, device)) for part in torch.split(data.images, batch))
        batches = overlapped(shown, device, data.key is not None)
        for images, labels in zip(batches, torch.split(data.labels, batch), strict=True):
            right += int((net(images).argmax(1).cpu() == labels).sum())
    return 100 * right / len(data)

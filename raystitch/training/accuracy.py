"""How often a net is right."""

from __future__ import annotations

import torch
from torch import nn

from raystitch.data import ImageSet, to_float
from raystitch.nets.head import in_eval


@torch.inference_mode()
def accuracy(net: nn.Module, data: ImageSet, device: torch.device | str = "cpu", batch: int = 512) -> float:
    """Top-1 accuracy in percent, in eval mode; modules get their modes back, the net stays on ``device``."""
    net.to(device)
    right = 0
    with in_eval(net):
        for start in range(0, len(data), batch):
            rows = slice(start, start + batch)
            logits = net(to_float(data.images[rows].to(device)))
            right += int((logits.argmax(1).cpu() == data.labels[rows]).sum())
    return 100 * right / len(data)

"""How many images to invert at once: on a GPU many make full use of it, and what their passes keep has to fit in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from raystitch.iris.passes import Prefix
from raystitch.memory import memory_share

MOST_ON_CPU, MOST = 128, 1024
"""Images beyond which a larger batch gains nothing; on the CPU its tensors leave the caches sooner."""
_SPARE = 2
"""Over what is kept for the backward pass: gradients, errors, scratch of convolutions."""
_MOVED = 12
"""Images' worth of what the search keeps of each: iterate, gradient, moments, the best so far."""


def batch_size(prefix: Prefix, image: Tensor) -> int:
    """The largest batch that gains by its size and fits in this worker's share of the memory, at least 1.

    Args:
        prefix: images (B, 3, H, W) → representation.
        image: float32 (1, 3, H, W), on the device where it will run.
    """
    most = MOST_ON_CPU if image.device.type == "cpu" else MOST
    return max(1, min(most, memory_share(image.device) // bytes_of(prefix, image)))


def bytes_of(prefix: Prefix, image: Tensor) -> int:
    """Memory that a search needs for one image more, in bytes."""
    return _SPARE * (_kept(prefix, image.repeat(2, 1, 1, 1)) - _kept(prefix, image)) + _MOVED * image.nbytes


def _kept(prefix: Prefix, images: Tensor) -> int:
    """Bytes of what autograd keeps for the backward pass, weights included, and of the representation."""
    storages: dict[int, Tensor] = {}

    def pack(saved: Tensor) -> Tensor:
        kept = saved.detach()  # a node that held its own output would hold itself, and never be freed
        storages[kept.untyped_storage().data_ptr()] = kept
        return kept

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        z = prefix(images.detach().requires_grad_())
    return z.nbytes + sum(saved.untyped_storage().nbytes() for saved in storages.values())

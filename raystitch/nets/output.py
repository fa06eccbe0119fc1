"""Whether a net does what a classifier of the data must do: take its images and give finite logits, one per class."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor

from raystitch.errors import InputError
from raystitch.modes import evaluating
from raystitch.nets.build import NormalisedNet


def check_output(net: NormalisedNet, images: Tensor, num_classes: int | None = None) -> Tensor:
    """Run the net once, in eval mode, and return its logits; its modes and weights are left as they were.

    Args:
        net: the net.
        images: (N, 3, H, W), float in [0, 1].
        num_classes: C, where known.

    Returns:
        (N, C).

    Raises:
        InputError: the net does not take the images, or its output is not finite logits of shape (N, C).
    """
    name = net.label
    _check_finite("normalise", name, "its mean or std", net.mean, net.std)
    try:
        with evaluating(net), torch.no_grad():
            logits: Any = net(images)
    except (Exception, SystemExit) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        size = images.shape[-1]
        problem = f"does not take {size}×{size} images (set args, or the data's size): {reason[0]}"
        raise InputError("arch", name, problem) from error
    if not isinstance(logits, Tensor):
        raise InputError("arch", name, "its output is not one tensor of logits computed from the images")
    if logits.dim() != 2 or len(logits) != len(images):
        problem = f"does not return logits of shape (images, classes), but of shape {tuple(logits.shape)}"
        raise InputError("arch", name, problem)
    if num_classes is not None and logits.shape[1] != num_classes:
        raise InputError(
            "arch", name, f"returns {logits.shape[1]} logits per image, but the data has {num_classes} classes"
        )
    if not logits.is_floating_point():
        raise InputError("arch", name, f"returns logits of dtype {logits.dtype}, not floating-point numbers")
    if not bool(torch.isfinite(logits).all()):
        for key, tensor in chain(net.net.named_parameters(), net.net.named_buffers()):
            _check_finite("arch", name, key, tensor)
        raise InputError(
            "arch", name, "returns NaN or infinite logits for images in [0, 1]; check its weights and normalise"
        )
    return logits


def _check_finite(where: str, name: str, what: str, *tensors: Tensor) -> None:
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise InputError(where, name, f"{what} holds NaN or infinite values")

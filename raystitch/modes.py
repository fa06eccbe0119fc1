"""The modes of torch and of modules in which the compute core works, whatever those of its caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn


@contextmanager
def plainly(gradients: bool) -> Iterator[None]:
    """Float32 as it is written, and tensors that can have gradients: neither autocast nor inference mode of a caller reach in.

    Args:
        gradients: whether operations are recorded for gradients.
    """
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.set_grad_enabled(gradients))
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            modes.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Eval mode within the block; afterwards every module has the mode it had."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode

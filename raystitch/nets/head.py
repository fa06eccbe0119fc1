"""Find a net's classifier and take it off, so that the rest (the trunk) can be trained or read on its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from raystitch.errors import InputError
from raystitch.modes import evaluating


@torch.no_grad()
def find_classifier(net: nn.Module, size: int) -> str:
    """Path of the linear layer that turns pooled features (B, F) into the net's logits (B, C).

    It is found by what it does, not by its name: the net is shown one image in eval mode, and the layer is the one whose
    output is the logits. So it is also found in a user's own net. Modes are put back.

    Args:
        net: images (B, 3, size, size) → logits (B, C).
        size: side of the images in pixels.

    Raises:
        InputError: no linear layer gives the logits.
    """
    outputs: dict[str, Tensor] = {}
    with evaluating(net), _watched(net, outputs):
        device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
        logits = net(torch.linspace(0, 1, 3 * size * size, device=device).view(1, 3, size, size))
    found = [path for path, out in outputs.items() if isinstance(logits, Tensor) and _same(out, logits)]
    if not found:
        problem = "method simclr needs a net whose logits come from one linear layer on a feature vector; it has none"
        raise InputError("arch", getattr(net, "label", type(net).__name__), problem)
    return found[-1]


@contextmanager
def headless(net: nn.Module, path: str) -> Iterator[nn.Linear]:
    """Within the block ``net`` gives the features that its classifier takes; yields the classifier, then puts it back."""
    parent, _, leaf = path.rpartition(".")
    owner, head = net.get_submodule(parent), net.get_submodule(path)
    if not isinstance(head, nn.Linear):
        raise TypeError(f"{path} is {type(head).__name__}, not a linear layer")
    setattr(owner, leaf, nn.Identity())
    try:
        yield head
    finally:
        setattr(owner, leaf, head)


@contextmanager
def _watched(net: nn.Module, outputs: dict[str, Tensor]) -> Iterator[None]:
    """Note the output of every linear layer that takes feature vectors."""

    def note(path: str) -> RemovableHandle:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if inputs[0].dim() == 2:
                outputs[path] = output

        return net.get_submodule(path).register_forward_hook(hook)

    handles = [note(path) for path, module in net.named_modules() if isinstance(module, nn.Linear)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _same(output: Tensor, logits: Tensor) -> bool:
    if output.is_meta:  # there are no values to compare
        return output is logits
    return output.shape == logits.shape and torch.equal(output, logits)

"""Hold a net still, copy it, and prove that it was held: parameters and buffers, bit for bit."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from raystitch.errors import InputError
from raystitch.modes import evaluating

_Module = TypeVar("_Module", bound=nn.Module)


def freeze(module: _Module) -> _Module:
    """Put ``module`` in eval mode without gradients to its parameters; returns the same object."""
    module.eval()
    module.requires_grad_(False)
    return module


@contextmanager
def held(model: Callable[..., Any]) -> Iterator[None]:
    """Eval mode and no gradients to parameters inside; every module's mode and every parameter's flag put back after.

    A model that is not a module is left as it is: its modes are the caller's business.
    """
    if not isinstance(model, nn.Module):
        yield
        return
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        with evaluating(model):
            model.requires_grad_(False)
            yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def deep_copy(module: _Module, memo: dict[int, Any] | None = None) -> _Module:
    """A copy of a module; ``memo``, as :func:`copy.deepcopy` takes it, names what the copy has instead of copies.

    Raises:
        InputError: something that the module holds cannot be copied, such as a lock or a tensor that was computed.
    """
    try:
        return copy.deepcopy(module, memo)
    except (torch.cuda.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise InputError("arch", None, f"the net holds what cannot be copied: {error}") from error


def fingerprint(module: nn.Module) -> str:
    """SHA-256 (64 hex digits) over the names, dtypes, shapes and bytes of all parameters and buffers.

    Buffers outside the state dict (such as a normalisation) count too. The device does not.
    """
    digest = hashlib.sha256()
    tensors = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        data = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {data.dtype} {tuple(data.shape)}\n".encode())
        digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()

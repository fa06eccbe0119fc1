"""When an inversion is worth compiling: ``torch.compile`` makes each step faster, after a wait of seconds for each prefix."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping

import torch

from raystitch.config import IriConfig
from raystitch.errors import InputError

WORTH: Mapping[str, float] = {"cpu": 2e13, "cuda": 1e16}
"""FLOPs of a set from which compiling pays, by kind of device. On the CPU compiling takes some 10 s and saves a fifth of the
time (docs/inversion.md); the figure for GPUs follows from their speed and was not measured."""


def worth_compiling(config: IriConfig, forward: float, device: torch.device) -> bool:
    """Whether to compile an inversion.

    Args:
        config: ``compile`` says yes, no, or auto: where there is a compiler and enough to do.
        forward: FLOPs of one forward pass of all images.
        device: where it runs.

    Raises:
        InputError: ``compile: true`` without a compiler.
    """
    if config.compile is False:
        return False
    able = can_compile(device)
    if config.compile is True and not able:
        needed = "Triton" if device.type == "cuda" else f"a C++ compiler ($CXX, or {_DEFAULT}; here {_compiler()!r})"
        raise InputError("iri.compile", True, f"needs {needed} on every worker; or say false")
    enough = 3 * forward * config.steps >= WORTH.get(device.type, float("inf"))
    return config.compile is True or (able and enough)


def can_compile(device: torch.device) -> bool:
    """Whether this machine has what ``torch.compile`` needs for a device."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return shutil.which(_compiler()) is not None


_DEFAULT = "clang++" if sys.platform == "darwin" else "g++"


def _compiler() -> str:
    """The program that torch will call."""
    command = os.environ.get("CXX", _DEFAULT).split()
    return command[0] if command else ""

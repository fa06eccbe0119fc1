"""Where the images of a set are held: in memory, or, where they are too many for that, in a mapped file in local scratch.

A set is mapped above ``RAYSTITCH_MEMORY_BYTES`` (an environment variable; by default 512 MiB a set). Both kinds are tensors
that are indexed alike. The system reads pages of a mapped set when they are used and drops them when memory is short. All
processes of a machine that want the same set share one file, which the first of them fills.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raystitch.data.scratch import release, shared_file
from raystitch.errors import InputError

MEMORY_BYTES = 512 << 20
"""What one set may take in memory by default."""
PART_BYTES = 16 << 20
"""Decoded images that are marked at once."""
_VARIABLE = "RAYSTITCH_MEMORY_BYTES"
_FORMAT = 1  # raised when the same key comes to mean other bytes

DType = Literal["uint8", "float32"]
Parts = Callable[[], Iterator[NDArray[Any]]]
"""Gives the images of a set (n, 3, H, W) one part after the other, from the first whenever it is called."""


def fits_in_memory(shape: tuple[int, ...], dtype: DType = "uint8") -> bool:
    """Whether a set is to be held in memory.

    Raises:
        InputError: the environment variable is no number of bytes.
    """
    text = os.environ.get(_VARIABLE)
    if text is None:
        return _bytes(shape, dtype) <= MEMORY_BYTES
    if not text.strip().isdecimal():
        raise InputError(_VARIABLE, text, f"give a number of bytes, such as {MEMORY_BYTES}")
    return _bytes(shape, dtype) <= int(text)


def hold(shape: tuple[int, ...], parts: Parts, key: str | None, dtype: DType = "uint8") -> Tensor:
    """One tensor of all parts; read-only where it is mapped.

    Args:
        shape: (N, 3, H, W).
        parts: gives the images. Not called where another process holds the same set.
        key: text that is the same for the same images and for no others; ``None`` holds them in memory.
        dtype: of the images.

    Returns:
        The images. A mapped set's file is let go of with the last tensor that uses it, and at the end of the process.

    Raises:
        InputError: the scratch folder is full or cannot be written to.
        ValueError: the parts are not as many as ``shape`` says.
    """
    if key is None:
        return _in_memory(shape, parts, dtype)
    name = hashlib.sha256(f"{_FORMAT} {key} {shape} {dtype}".encode()).hexdigest()
    size = _bytes(shape, dtype)
    descriptor, path = shared_file(name, size, lambda: (_flat(part) for part in parts()))
    mapping = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)  # not private: Linux would count that as memory
    weakref.finalize(mapping, release, descriptor, path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.from_numpy(np.frombuffer(mapping, dtype).reshape(shape))


def slices(shape: tuple[int, ...]) -> Iterator[slice]:
    """Consecutive stretches of a uint8 set, of at most about 16 MiB each."""
    step = max(1, PART_BYTES // math.prod(shape[1:]))
    return (slice(start, start + step) for start in range(0, shape[0], step))


def _in_memory(shape: tuple[int, ...], parts: Parts, dtype: DType) -> Tensor:
    images = torch.empty(shape, dtype=getattr(torch, dtype))
    pixels, start = images.numpy(), 0
    for part in parts():
        pixels[start : start + len(part)] = part
        start += len(part)
    if start != shape[0]:
        raise ValueError(f"{start} images came where {shape[0]} were announced")
    return images


def _flat(part: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(part).data.cast("B")


def _bytes(shape: tuple[int, ...], dtype: DType) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize

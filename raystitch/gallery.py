"""A few images beside their IRIs, kept with each IRI set for people to look at."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from raystitch.iris import Shard

SHOWN = 8
"""Images kept per IRI set."""


def encode_gallery(originals: Tensor, shard: Shard) -> bytes:
    """The first images of a set (uint8, k×H×W×3), their IRIs and the residual of each, as one ``.npz``.

    Args:
        originals: uint8 images (N, 3, H, W) in the order of the set.
        shard: the set's first shard.
    """
    stream = io.BytesIO()
    np.savez(
        stream,
        images=_channels_last(originals[:SHOWN].cpu().numpy()),
        iris=_channels_last(_as_bytes(shard.images[:SHOWN])),
        residual=shard.residual[:SHOWN],
    )
    return stream.getvalue()


def decode_gallery(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Arrays ``images``, ``iris``, ``residual`` of a gallery file; read as data, never as code.

    Raises:
        ValueError: the file is damaged, or its arrays are not those of a gallery.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in ("images", "iris", "residual")}
    except Exception as error:  # whatever a damaged file makes NumPy raise
        raise ValueError(f"not a gallery: {error}") from error
    _check(**found)
    return found


def _check(images: npt.NDArray[Any], iris: npt.NDArray[Any], residual: npt.NDArray[Any]) -> None:
    """Images (k, H, W, 3) beside as many IRIs, and a number for each."""
    coloured = images.ndim == 4 and images.shape[-1] == 3 and images.dtype == iris.dtype == np.uint8
    if not coloured or not images.size or iris.shape != images.shape or residual.shape != images.shape[:1]:
        raise ValueError(f"not a gallery: images {images.shape}, IRIs {iris.shape}, residuals {residual.shape}")
    if residual.dtype.kind != "f":
        raise ValueError(f"not a gallery: residuals are {residual.dtype}")


def _as_bytes(images: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    if images.dtype == np.uint8:
        return images.astype(np.uint8, copy=False)
    return np.rint(np.asarray(images, dtype=np.float32) * 255).astype(np.uint8)


def _channels_last(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))

"""The state of an unfinished training as bytes, and when to keep it. Where it is kept is the caller's affair."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

FORMAT = 1
"""Raised when the content of a state changes: a state of another format is not used."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoints:
    """Where a training leaves its state between epochs.

    Attributes:
        save: keeps the bytes in place of earlier ones, whole or not at all.
        load: gives the bytes kept last, or ``None``. They must come from the same net, data, recipe and seed.
        seconds: the least time between two saves; 0 saves after every epoch. It has no influence on the weights.
    """

    save: Callable[[bytes], None]
    load: Callable[[], bytes | None]
    seconds: float = 60.0


class Keeper:
    """Saves a state when it is time to, and reads the last one. Without ``checkpoints`` it does nothing."""

    def __init__(self, checkpoints: Checkpoints | None) -> None:
        self._checkpoints = checkpoints
        self._saved = time.monotonic()

    def offer(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save the state if the last save is long enough ago; it is made only then."""
        kept = self._checkpoints
        if kept is not None and time.monotonic() - self._saved >= kept.seconds:
            kept.save(encode_state(state()))
            self._saved = time.monotonic()

    def last(self) -> dict[str, Any] | None:
        """The state saved last; ``None`` if there is none that this version can read."""
        data = None if self._checkpoints is None else self._checkpoints.load()
        return None if data is None else decode_state(data)


def encode_state(state: dict[str, Any]) -> bytes:
    """Tensors and plain values as the bytes of a torch file."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    return buffer.getvalue()


def decode_state(data: bytes) -> dict[str, Any] | None:
    """Read such bytes, as data and never as code; ``None``, with a warning, for those of another format or damaged ones."""
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if isinstance(state, dict) and state.get("format") == FORMAT:
            return state
    except Exception as error:  # whatever a damaged file makes torch raise
        _log.warning("a training state cannot be read (%s): training starts anew", type(error).__name__)
        return None
    _log.warning("a training state has another format: training starts anew")
    return None

"""Waiting in tests for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object], told: Callable[[], str] = str, seconds: float = 300, every: float = 0.01
) -> None:
    """Poll until a condition holds.

    Args:
        told: what there is to read about it if it never does.
        seconds: how long that is waited for.
        every: seconds between two looks; more where a look is dear.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited too long: {told()}"
        time.sleep(every)

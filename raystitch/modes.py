"""The modes of torch in which the compute core works, whatever those of its caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def plainly(gradients: bool) -> Iterator[None]:
    """Float32 as it is written, and tensors that can have gradients: neither autocast nor inference mode of a caller reach in.

    Args:
        gradients: whether operations are recorded for gradients.
    """
    off = torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False)
    with torch.inference_mode(False), torch.set_grad_enabled(gradients), off[0], off[1]:
        yield

"""Batches made ready in the background, so that reading, augmenting and moving them overlaps with the device's work.

One thread prepares, in the order in which the batches are used: whatever is drawn from generators that only the preparation
uses is drawn as without it, and the batches are the same, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

DEPTH = 2
"""Batches that are ready, or being made, while one is in use."""

T = TypeVar("T")
_END: Any = object()


def overlapped(batches: Iterable[T], device: str | torch.device, mapped: bool) -> Generator[T, None, None]:
    """The same batches, prepared ahead where that pays: for a CUDA device, or from a mapped set on one CPU thread.

    On the CPU there is little to gain from a set that memory holds, and where torch computes with several threads, a second
    thread would have as many of its own: the two groups hinder each other more than overlapping gives.

    Args:
        batches: tensors, or tuples that hold tensors; making one must need nothing of what the loop does with another.
        device: where the batches are given.
        mapped: whether their images are read from a mapped set.
    """
    if torch.device(device).type == "cuda":
        return _on_own_stream(batches, torch.device(device))
    return ahead(batches) if mapped and torch.get_num_threads() == 1 else _plain(batches)


def ahead(items: Iterable[T], depth: int = DEPTH) -> Generator[T, None, None]:
    """The items in their order, up to ``depth`` of them made by a background thread while one is in use.

    What an item raises is raised in its place. The thread ends with the last item, and, after the item it is at, when the
    iterator is closed or dropped.

    Args:
        items: iterated by that thread alone.
        depth: ≥ 1.
    """
    source = iter(items)
    waiting: deque[Future[T]] = deque()
    maker = ThreadPoolExecutor(1, thread_name_prefix="raystitch-ahead")
    try:
        waiting.extend(maker.submit(next, source, _END) for _ in range(depth))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(maker.submit(next, source, _END))
            yield item
    finally:
        maker.shutdown(wait=True, cancel_futures=True)


def to_device(tensor: Tensor, device: str | torch.device) -> Tensor:
    """The tensor on ``device``; a CUDA device copies it from pinned memory, and neither it nor the caller waits."""
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _plain(items: Iterable[T]) -> Generator[T, None, None]:
    yield from items


def _on_own_stream(batches: Iterable[T], device: torch.device) -> Generator[T, None, None]:
    """Prepared ahead on a CUDA stream of their own. The stream that uses a batch waits for it; the host does not."""
    used = torch.cuda.current_stream(device)
    own = _own_stream(used.device)
    own.wait_stream(used)  # what the batches are made from may still be on its way
    try:
        for batch, made in ahead(_recorded(batches, own)):
            used.wait_event(made)
            for tensor in _tensors(batch):
                tensor.record_stream(used)  # its memory serves no other batch before the work on this one is done
            yield batch
    finally:
        used.wait_stream(own)


@lru_cache
def _own_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all loops of a process: memory that torch keeps for a stream serves no other."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _recorded(batches: Iterable[T], stream: torch.cuda.Stream) -> Iterator[tuple[T, torch.cuda.Event]]:
    source = iter(batches)
    while True:
        with torch.cuda.stream(stream):  # of the thread that prepares
            batch = next(source, _END)
            made = stream.record_event()
        if batch is _END:
            return
        yield batch, made


def _tensors(batch: Any) -> Iterator[Tensor]:
    for part in batch if isinstance(batch, tuple) else (batch,):
        if isinstance(part, Tensor) and part.is_cuda:
            yield part

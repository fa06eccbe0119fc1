"""An epoch over a mapped set and over one in memory, with batches prepared in the loop and ahead of it.

What keeps the device busy is a stand-in: forward and backward passes of a small ResNet. What counts is how much of the
preparation (reading, converting, augmenting, moving) is hidden behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.outcome import Cell, Figure, Outcome, Table, cell, figure
from benchmarks.subjects import Options
from benchmarks.turns import Samples, Work, in_turns, per, ratios, summary
from raystitch.config import DataConfig
from raystitch.data import load_images, overlapped
from raystitch.data.prefetch import ahead
from raystitch.data.views import simclr_view
from raystitch.nets import build_net
from raystitch.training.batches import Batches

SETS = ("mapped", "in memory")
ALONE, IDLE, LOOP, AHEAD = "device's work alone", "preparation alone", "prepared in the loop", "prepared ahead"

Prepared = tuple[Tensor, Tensor]
Step = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class Size:
    """What an epoch is: images enlarged to ``side`` pixels, one SimCLR view of each, through a net of ``width`` channels."""

    images: int = 512
    side: int = 64
    batch: int = 128
    width: int = 8
    rounds: int = 5


FULL, QUICK = Size(), Size(images=64, side=32, batch=16, rounds=2)


def run(options: Options) -> Outcome:
    """Seconds of an epoch, prepared in the loop over prepared ahead, and the share of the preparation that is hidden."""
    size = QUICK if options.quick else FULL
    works, count = _works(options, size), size.images // size.batch
    times = in_turns(works, size.rounds, options.device)
    columns = ["set", "batches", "ms per batch"]
    rows: list[list[Cell]] = [[*_names(name), cell(summary(per(found, count)), 1000)] for name, found in times.items()]
    figures = [_hidden(times, SETS[0])]
    for kind in SETS:
        gain = ratios(times[f"{kind}: {LOOP}"], times[f"{kind}: {AHEAD}"])
        figures.append(figure(f"epoch over a set {kind}, {LOOP} over {AHEAD}", "×", gain))
    return Outcome(figures, [Table(f"An epoch of {count} batches", columns, rows)], _notes(size), asdict(size))


def _works(options: Options, size: Size) -> dict[str, Work]:
    """Each way to go through an epoch, by the set and the way."""
    step = _stand_in(options, size)
    sets = {kind: _batches(options, size, mapped=kind == "mapped") for kind in SETS}
    ready = next(_prepared(sets["mapped"]))
    works: dict[str, Work] = {ALONE: lambda: _epoch(step, [ready] * (size.images // size.batch))}
    for kind, batches in sets.items():
        works[f"{kind}: {IDLE}"] = lambda b=batches: _epoch(lambda *_: None, _prepared(b))  # type: ignore[misc]
        works[f"{kind}: {LOOP}"] = lambda b=batches: _epoch(step, _prepared(b))  # type: ignore[misc]
        works[f"{kind}: {AHEAD}"] = lambda b=batches: _epoch(step, _ahead(b, options.device))  # type: ignore[misc]
    return works


def _epoch(step: Step, batches: Iterable[Prepared]) -> None:
    for images, labels in batches:
        step(images, labels)


def _prepared(batches: Batches) -> Iterator[Prepared]:
    return ((batches.view(batch, simclr_view), batch.labels) for batch in batches)


def _ahead(batches: Batches, device: str) -> Iterator[Prepared]:
    """Ahead in any case, also where raystitch prepares in the loop."""
    prepared = _prepared(batches)
    return ahead(prepared) if device == "cpu" else overlapped(prepared, device, mapped=True)


def _batches(options: Options, size: Size, mapped: bool) -> Batches:
    facts = {"source": "parquet", "path": options.data, "limit": {"train": size.images}, "size": size.side}
    with _memory(0 if mapped else 1 << 40):
        data = load_images(DataConfig.model_validate(facts), "train", "data.cifar10")
    return Batches(data, size.batch, 0, None, torch.device(options.device))


@contextmanager
def _memory(limit: int) -> Iterator[None]:
    """Within the block, what one set may take in memory is so many bytes."""
    name = "RAYSTITCH_MEMORY_BYTES"
    before = os.environ.get(name)
    os.environ[name] = str(limit)
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update({} if before is None else {name: before})


def _stand_in(options: Options, size: Size) -> Step:
    half = (0.5, 0.5, 0.5)
    net: nn.Module = build_net("resnet_mini", 10, {"width": size.width}, half, half, seed=0).to(options.device).train()

    def step(images: Tensor, labels: Tensor) -> None:
        net.zero_grad()
        torch.autograd.backward(F.cross_entropy(net(images), labels))

    return step


def _hidden(times: dict[str, Samples], kind: str) -> Figure:
    rounds = zip(*(times[f"{kind}: {way}"] for way in (LOOP, AHEAD, IDLE)), strict=True)
    share = tuple(100 * (loop - ahead) / alone for loop, ahead, alone in rounds)
    return figure(f"share of the preparation that is hidden, set {kind}", "%", share)


def _names(name: str) -> tuple[str, str]:
    kind, _, way = name.rpartition(": ")
    return kind or "–", way


def _notes(size: Size) -> list[str]:
    return [
        f"The device's work is a stand-in: forward and backward passes of resnet_mini, width {size.width}, without optimiser.",
        f"A batch is {size.batch} images of {size.side} pixels, shuffled, converted to float, one SimCLR view of each.",
        "The mapped file was written just before: its pages come from the system's cache, not from a disk.",
        "On a CPU the stand-in takes much longer than on a GPU, and the preparation shares the cores with it.",
        "On a CPU raystitch itself prepares ahead only from mapped sets and with one torch thread; this shows why.",
    ]

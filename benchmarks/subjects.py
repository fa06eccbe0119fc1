"""What is timed: public CIFAR ResNets of 20 and 32 layers, cut at their points, on CIFAR-10 images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raystitch.errors import InputError

FRONT, END = "resnet20-12fca82f.th", "resnet32-d509ac18.th"
"""Checkpoints published by Yerlan Idelbayev (BSD-2-Clause)."""


@dataclass(frozen=True)
class Options:
    """How to run.

    Attributes:
        data: folder of CIFAR-10 as Parquet.
        weights: folder of the two checkpoints.
        device: torch device of everything.
        threads: torch threads.
        quick: few images, points and rounds: shows that everything runs, not how fast.
        folder: for files, which whoever runs the benchmark removes; None is the system's folder for such.
    """

    data: str
    weights: str
    device: str
    threads: int
    quick: bool
    folder: str | None = None


def check_files(options: Options) -> None:
    """Raises InputError where data or weights are not there; opens none of them."""
    if not Path(options.data).is_dir():
        raise InputError("--data", options.data, "no such folder; give the one with CIFAR-10's Parquet files")
    for name in (FRONT, END):
        if not (Path(options.weights) / name).is_file():
            raise InputError("--weights", options.weights, f"has no {name}; give the folder of the CIFAR ResNets")


def study(options: Options, limit: Mapping[str, int], iri: Mapping[str, Any], points: list[int]) -> dict[str, Any]:
    """A study of both nets as its YAML would have it: the IRI arm at some points.

    Args:
        options: where data and weights are.
        limit: images of each split; all where it says nothing.
        iri: how to invert.
        points: of the front.
    """
    folder = Path(options.weights)
    return {
        "name": "benchmark",
        "data": {"cifar10": {"source": "parquet", "path": options.data, "limit": dict(limit)}},
        "models": {
            "front": {"arch": "cifar_resnet20", "data": "cifar10", "checkpoint": str(folder / FRONT)},
            "end": {"arch": "cifar_resnet32", "data": "cifar10", "checkpoint": str(folder / END)},
        },
        "settings": {"pair": {"front": "front", "end": "end", "points": points}},
        "arms": "iri",
        "seeds": 1,
        "iri": dict(iri),
    }

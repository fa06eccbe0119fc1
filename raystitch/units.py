"""The units of work: base models, IRI sets and their shards, fits. Each has an id, and a file that says it is done.

An id is a SHA-256 of everything that determines the unit's output, its parents' ids included. It is given by the plan; the
other fields tell a worker how to compute the unit and are no part of its identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from raystitch.config import Arm, EvalSet, Objective


def unit_id(spec: Mapping[str, Any]) -> str:
    """First 20 hex digits of the SHA-256 of the canonical JSON of ``spec``."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class ModelUnit:
    """A trained (or imported) base model: weights and accuracies."""

    id: str
    name: str
    seed: int
    kind: ClassVar[str] = "model"

    @property
    def ref(self) -> str:
        """The name users write: ``clean/0``."""
        return f"{self.name}/{self.seed}"

    @property
    def marker(self) -> str:
        """The file whose presence says that the unit is done."""
        return f"models/{self.id}.json"

    @property
    def weights(self) -> str:
        """The file of the net's state dict."""
        return f"models/{self.id}.safetensors"

    @property
    def training(self) -> str:
        """The file of an unfinished training's state; removed when the model is done."""
        return f"models/{self.id}.training"

    @property
    def files(self) -> list[str]:
        """All that the unit must have left to be of use."""
        return [self.weights, self.marker]


@dataclass(frozen=True)
class IriUnit:
    """One IRI set: all training images of a dataset inverted at one point of one front."""

    id: str
    model: ModelUnit
    point: int
    module: str
    data: str
    count: int
    shard_size: int
    kind: ClassVar[str] = "IRI set"

    @property
    def marker(self) -> str:
        """The set's index: written last, it makes the set visible."""
        return f"iris/{self.id}.json"

    @property
    def gallery(self) -> str:
        """The file of a few images beside their IRIs."""
        return f"iris/{self.id}/gallery.npz"

    @property
    def files(self) -> list[str]:
        """All that the unit must have left to be of use."""
        return [*(shard.marker for shard in self.shards), self.gallery, self.marker]

    @property
    def shards(self) -> list[ShardUnit]:
        """The fixed index ranges the set is made of."""
        starts = range(0, self.count, self.shard_size)
        return [ShardUnit(self, n, s, min(s + self.shard_size, self.count)) for n, s in enumerate(starts)]


@dataclass(frozen=True)
class ShardUnit:
    """Images ``start`` … ``stop`` − 1 of an IRI set, published as one WebDataset tar."""

    set: IriUnit
    number: int
    start: int
    stop: int
    kind: ClassVar[str] = "IRI shard"

    @property
    def id(self) -> str:
        """Identity of the shard: that of its set and its index range."""
        return unit_id({"kind": "shard", "set": self.set.id, "start": self.start, "stop": self.stop})

    @property
    def marker(self) -> str:
        """The tar itself: it is published whole."""
        return f"iris/{self.set.id}/shard-{self.number:05d}.tar"


@dataclass(frozen=True)
class FitUnit:
    """One stitch trained and evaluated, or (objective ``none``) one unstitched end of a curve evaluated."""

    id: str
    group: str
    front: ModelUnit
    end: ModelUnit
    front_point: int
    end_point: int
    objective: Objective | Literal["none"]
    arm: Arm | Literal["none"]
    seed: int
    data: str
    eval_sets: tuple[EvalSet, ...]
    iris: IriUnit | None = None

    @property
    def kind(self) -> str:
        """What the unit is called on displays."""
        return "unstitched" if self.objective == "none" else "fit"

    @property
    def marker(self) -> str:
        """The unit's rows of the results table."""
        return f"fits/{self.id}.parquet"

    @property
    def files(self) -> list[str]:
        """All that the unit must have left to be of use."""
        return [self.marker]

    @property
    def parents(self) -> tuple[ModelUnit | IriUnit, ...]:
        """Units that must be done before this one can start."""
        return (self.front, self.end) + (() if self.iris is None else (self.iris,))


Unit = ModelUnit | IriUnit | FitUnit

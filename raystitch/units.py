"""The units of work: base models, IRI sets and their shards, fits. Each has an id, and a file that says it is done.

An id is a SHA-256 of everything that determines the unit's output, its parents' ids included. It is given by the plan; the
other fields tell a worker how to compute the unit and are no part of its identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from raystitch.config import Arm, EvalSet, FitConfig, IriConfig, Objective, PgdConfig

FOLDERS = ("models", "iris", "fits", "predictions")
"""Where in a store the files of units are."""


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

    @property
    def parents(self) -> tuple[ModelUnit, ...]:
        """A base model needs no other unit."""
        return ()


@dataclass(frozen=True)
class IriUnit:
    """One IRI set: all training images of a dataset inverted at one point of one front.

    ``config.levels`` are residuals at which the inversion leaves a set as well, beside the one as good as it gets.
    """

    id: str
    model: ModelUnit
    point: int
    module: str
    data: str
    count: int
    config: IriConfig
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
        return [*(name for shard in self.shards for name in shard.files), self.gallery, self.marker]

    @property
    def parents(self) -> tuple[ModelUnit, ...]:
        """The model that is inverted."""
        return (self.model,)

    @property
    def shard_count(self) -> int:
        """How many index ranges the set is made of."""
        return -(-self.count // self.config.shard_size)

    @property
    def shards(self) -> list[ShardUnit]:
        """The fixed index ranges the set is made of."""
        size = self.config.shard_size
        return [ShardUnit(self, n, s, min(s + size, self.count)) for n, s in enumerate(range(0, self.count, size))]


@dataclass(frozen=True)
class ShardUnit:
    """Images ``start`` … ``stop`` − 1 of an IRI set, published as WebDataset tars: of each residual level, then the best."""

    set: IriUnit
    number: int
    start: int
    stop: int
    kind: ClassVar[str] = "IRI shard"

    @property
    def id(self) -> str:
        """Identity of the shard: that of its set and its index range. A plan has very many, so nothing is hashed."""
        return f"{self.set.id}-{self.start}-{self.stop}"

    @property
    def marker(self) -> str:
        """The tar of the best images: it is published whole, after those of the levels."""
        return self.tar(None)

    @property
    def files(self) -> list[str]:
        """All that the unit must have left to be of use, in the order to publish it."""
        return [self.tar(level) for level in (*self.set.config.levels, None)]

    def tar(self, level: float | None) -> str:
        """The file of one residual level, named by its shortest exact decimal; None for the best images."""
        folder = "" if level is None else f"r{level!r}/"
        return f"iris/{self.set.id}/{folder}shard-{self.number:05d}.tar"


Measure = Literal["fit", "unstitched", "similarity"]
"""What a unit measures: a stitch that it trains, an unstitched end of a curve, or how alike two representations are."""


@dataclass(frozen=True)
class FitUnit:
    """One stitch trained and evaluated; or, without a stitch, one unstitched end of a curve, or one pair of representations.

    Attributes:
        group: units with the same group share their passes and are computed together.
        front_point: 0 and n+1 for the unstitched end and front.
        data: what the stitch is trained on; ``test_data`` is whose test images are shown.
        config: how the stitch is trained.
        augmented: whether training images are augmented and BatchNorm statistics move (``paper`` on real images).
        attack: how training images are attacked.
        iris: the IRI set trained on, and ``level`` which of its residual levels; None for as good as the run gets.
    """

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
    test_data: str
    eval_sets: tuple[EvalSet, ...]
    config: FitConfig
    kind: Measure = "fit"
    augmented: bool = False
    attack: PgdConfig | None = None
    iris: IriUnit | None = None
    level: float | None = None

    @property
    def marker(self) -> str:
        """The unit's rows of the results table."""
        return f"fits/{self.id}.parquet"

    @property
    def predictions(self) -> str:
        """The file of what the nets predict for every sample."""
        return f"predictions/{self.id}.npz"

    @property
    def files(self) -> list[str]:
        """All that the unit must have left to be of use."""
        return [self.marker] if self.kind == "similarity" else [self.predictions, self.marker]

    @property
    def parents(self) -> tuple[ModelUnit | IriUnit, ...]:
        """Units that must be done before this one can start."""
        return (self.front, self.end) + (() if self.iris is None else (self.iris,))


Unit = ModelUnit | IriUnit | FitUnit


def still_needed(wanted: Iterable[str], parents: Mapping[str, Iterable[str]], done: AbstractSet[str]) -> set[str]:
    """What must be made for units to be made: the ids ``wanted``, and of all that they need those that are not done."""
    needed: set[str] = set()
    waiting = list(wanted)
    while waiting:
        unit = waiting.pop()
        if unit not in needed:
            needed.add(unit)
            waiting.extend(parent for parent in parents[unit] if parent not in done)
    return needed

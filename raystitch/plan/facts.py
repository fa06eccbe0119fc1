"""What the plan needs to know of the data and models that a config names; gathered before planning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class PointLike(Protocol):
    """What the plan needs to know of a stitch point (:class:`raystitch.nets.Point`)."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def module(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class DataFacts:
    """What was found of a dataset: content fingerprints, class count, side of the images in pixels, and image counts, of the
    test split for estimates alone.

    ``assumed``: the files are not there; all of this is what the config says of them, and the fingerprints are made up.
    """

    train: str
    test: str
    num_classes: int
    size: int
    train_count: int
    test_count: int = 0
    assumed: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """What was found of a model: its stitch points, the SHA-256 of each seed's checkpoint and of user code, and the FLOPs
    of one image through each of its segments. ``assumed``: a checkpoint is not there, and its digest is made up."""

    points: tuple[PointLike, ...]
    weights: Mapping[int, str]
    code: str | None = None
    flops: tuple[int, ...] = ()
    assumed: bool = False


@dataclass(frozen=True)
class Catalogue:
    """Facts about everything that a config names, gathered before planning."""

    data: Mapping[str, DataFacts]
    models: Mapping[str, ModelFacts]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Config fields whose files are not there; ids of units that need them are not those of a real run."""
        datasets = (f"data.{name}" for name, facts in self.data.items() if facts.assumed)
        checkpoints = (f"models.{name}.checkpoint" for name, facts in self.models.items() if facts.assumed)
        return (*datasets, *checkpoints)

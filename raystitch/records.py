"""The shape of each JSON record that a sweep leaves in a storage, checked where the record is read.

A record of another shape is damaged: whoever reads it says so and shows the rest. Fields that came with a later version have
a default, so that older records can still be read; keys that this version does not know are let pass.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from raystitch.config.values import MAX_POINTS, MAX_SIDE, STUDY_NAME, Protocol
from raystitch.progress import Count

Name = Annotated[str, Field(pattern=rf"^{STUDY_NAME}$", max_length=200)]
"""An id, which is part of the names of files."""
FileName = Annotated[str, Field(pattern=rf"^{STUDY_NAME}(/{STUDY_NAME})+$", max_length=500)]
"""A file of a unit in its folder: it leads nowhere else."""
Point = Annotated[int, Field(ge=0, le=MAX_POINTS + 1)]


def _no_less_than_zero(r: float) -> float:
    if r < 0:
        raise ValueError("a residual is never negative")
    return r


Residual = Annotated[float, AfterValidator(_no_less_than_zero)]
"""Infinite, or no number, where a net gave none: such a set is shown for what it is."""


class Record(BaseModel):
    """A record as it was written, and nothing that can be changed."""

    model_config = ConfigDict(frozen=True, strict=True)


class SettingRecord(Record):
    """What a report must know of a setting; its other keys are kept as they are."""

    model_config = ConfigDict(extra="allow")

    protocol: Protocol | None = None
    objectives: tuple[str, ...] | None = None


class ConfigRecord(Record):
    """What a report must know of a study's config; its other keys are kept as they are."""

    model_config = ConfigDict(extra="allow")

    name: Name
    title: str
    protocol: Protocol
    objectives: tuple[str, ...]
    settings: dict[str, SettingRecord]
    published: Literal["information", "shortcuts", "robustness"] | None = None
    notes: str = ""


class UnitRecord(Record):
    """A unit of a study. ``label`` is a line by which a person knows it; IRI sets have what the study calls their front,
    dataset and point."""

    id: Name
    kind: str
    marker: FileName
    label: str
    files: tuple[FileName, ...] | None = None
    parents: tuple[Name, ...] = ()
    front: str | None = None
    dataset: str | None = None
    point: Point | None = None

    @property
    def needed(self) -> tuple[FileName, ...]:
        """The files that must be there for the unit to be done; of older records the marker alone is known."""
        return (self.marker,) if self.files is None else self.files


class StudyRecord(Record):
    """``sweeps/<name>/study.json``: what a study is."""

    config: ConfigRecord
    units: tuple[UnitRecord, ...]
    created: str
    version: str

    @model_validator(mode="after")
    def _parents_are_units(self) -> StudyRecord:
        known = {unit.id for unit in self.units}
        if not all(known.issuperset(unit.parents) for unit in self.units):
            raise ValueError("a unit needs one that is not of the study")
        return self


class FailureRecord(Record):
    """``failures/<id>.json``: why a unit could not be computed."""

    id: Name
    kind: str
    error: str
    trace: str = ""


class ResidualRecord(Record):
    """Statistics of the residuals of a set."""

    median: Residual
    p90: Residual
    max: Residual


class ShardRecord(Record):
    """One shard of a set: its file, and the checksum of its bytes."""

    name: FileName
    sha256: str


class LevelRecord(Record):
    """A residual level of a set: how many images reached it, and what they are."""

    level: float = Field(gt=0, allow_inf_nan=False)
    reached: Count
    residual: ResidualRecord
    shards: tuple[ShardRecord, ...]


_Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class IriRecord(Record):
    """``iris/<id>.json``: the index of an IRI set. Early ones themselves name front, dataset and point."""

    module: str
    optimiser: str
    steps: Count
    count: Count
    shape: tuple[Literal[3], _Side, _Side]
    dtype: Literal["uint8", "float16", "float32"]
    residual: ResidualRecord
    residual_float: ResidualRecord
    shards: tuple[ShardRecord, ...]
    levels: tuple[LevelRecord, ...] = ()
    front: str | None = None
    dataset: str | None = None
    point: Point | None = None

    def at(self, level: float | None) -> IriRecord | LevelRecord | None:
        """The part of one residual level, the whole for None; None if there is no such level."""
        return self if level is None else next((part for part in self.levels if part.level == level), None)


_R = TypeVar("_R", bound=Record)


def read_record(kind: type[_R], content: bytes) -> _R | None:
    """The record that a file holds; None if it is damaged."""
    try:
        return kind.model_validate_json(content)
    except ValidationError:
        return None

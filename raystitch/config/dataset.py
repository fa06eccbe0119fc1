"""What a config says of datasets: where they are, which part is used, and the cue planted in them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictInt, StrictStr, model_validator

from raystitch.access import without_credentials
from raystitch.config.values import MAX_SIDE, FieldProblem, FilePath, Part, Seed, class_list


class CueConfig(Part):
    """A planted shortcut (METHOD §8): a square pasted into each image after augmentation.

    ``pixel`` has one colour per class, ``rand`` is a square of noise that carries no information. ``placement: class`` gives
    every class a place of its own, and then the place of a ``rand`` square carries the label, though its noise does not.
    ``size`` is the side in pixels; by default 4 per 32 pixels of the image.
    """

    kind: Literal["pixel", "rand"] = "pixel"
    placement: Literal["random", "class"] = "random"
    size: int | None = Field(default=None, ge=1, le=MAX_SIDE)
    seed: Seed = 0


class SplitLimit(Part):
    """How many images of a split to use. ``rows``: ``spaced`` takes evenly spaced ones, so that sets sorted by class keep every
    class; ``first`` takes those that come first, as much published work does."""

    train: int | None = Field(default=None, ge=1, le=1_000_000_000)
    test: int | None = Field(default=None, ge=1, le=1_000_000_000)
    rows: Literal["spaced", "first"] = "spaced"


class ExpectConfig(Part):
    """What a dataset should hold: checked when it is read (images to a tenth, classes exactly), and what ``plan`` counts with
    where it is not there yet."""

    train: int | None = Field(default=None, ge=1, le=1_000_000_000)
    test: int | None = Field(default=None, ge=1, le=1_000_000_000)
    classes: int | None = Field(default=None, ge=1, le=1_000_000)


class DataConfig(Part):
    """A dataset with a ``train`` and a ``test`` split.

    ``digits`` is built in. ``parquet`` reads the Hugging Face layout (an image column and an integer label column);
    ``folder`` reads one sub-folder per class; ``webdataset`` reads tar shards, with the index of ``raystitch data import``
    or without; ``cifar`` reads CIFAR-10 or -100 as distributed. ``path`` holds both splits under the usual names; ``train``
    and ``test`` name them one by one (file, glob or folder, any fsspec URL). ``size`` resizes every image to that side.
    ``classes`` keeps some classes, numbered anew in the order of the list: names, WordNet ids, labels, or a text file of
    these. ``noise`` is made up: ``count`` images of a ``kind`` in each split, and labels drawn from ``classes`` (a number).
    """

    source: Literal["digits", "noise", "parquet", "folder", "webdataset", "cifar"]
    path: FilePath | None = None
    train: FilePath | None = None
    test: FilePath | None = None
    size: int | None = Field(default=None, ge=4, le=MAX_SIDE)
    limit: SplitLimit = SplitLimit()
    expect: ExpectConfig = ExpectConfig()
    classes: Annotated[
        StrictInt | StrictStr | tuple[StrictInt | StrictStr, ...] | None, BeforeValidator(class_list)
    ] = None
    greyscale: bool = False
    kind: Literal["uniform", "pink"] = "uniform"
    count: int = Field(default=1000, ge=1, le=10_000_000)
    seed: Seed = 0
    cue: Annotated[CueConfig | None, BeforeValidator(lambda v: {"kind": v} if isinstance(v, str) else v)] = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_files(self) -> DataConfig:
        if self.source in ("digits", "noise"):
            if self.path or self.train or self.test:
                raise FieldProblem("source", self.source, "is built in and takes no path, train or test")
        elif self.source == "cifar" and (self.path is None or self.train or self.test):
            problem = "needs path, and no train or test: the batches hold both splits"
            raise FieldProblem("source", self.source, problem)
        elif self.path is None and (self.train is None or self.test is None):
            raise FieldProblem("source", self.source, "needs either path, or both train and test")
        return self

    @model_validator(mode="after")
    def _classes_and_noise(self) -> DataConfig:
        if self.source == "noise":
            if self.classes is not None and (not isinstance(self.classes, int) or not 1 <= self.classes <= 1_000_000):
                problem = "source 'noise' has no named classes; give their number, 1 to 1000000"
                raise FieldProblem("classes", self.classes, problem)
        elif given := sorted({"kind", "count", "seed"} & self.model_fields_set):
            problem = f"{' and '.join(given)} only go with source 'noise', not {self.source!r}"
            raise FieldProblem(given[0], getattr(self, given[0]), problem)
        elif isinstance(self.classes, int) or self.classes in ((), ""):
            problem = "give a list of names, WordNet ids or labels, or the path of a text file of these"
            raise FieldProblem("classes", self.classes, problem)
        elif isinstance(self.classes, str):
            without_credentials(self.classes)
        return self

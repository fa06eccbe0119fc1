"""The schema of a study: frozen objects with the method's defaults, validated at the door and trusted inside."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr, field_validator, model_validator

from raystitch.config.objective import Objective
from raystitch.config.recipe import TrainConfig
from raystitch.config.values import (
    MAX_SIDE,
    NORMALISATIONS,
    Arm,
    EvalSet,
    FilePath,
    Many,
    Part,
    PointChoice,
    Protocol,
    Seed,
    SeedRange,
    SettingName,
    WordName,
    class_list,
    named_normalisation,
    plain_arguments,
)


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
    """How many images of a split to use: evenly spaced rows, so that sets sorted by class keep every class."""

    train: int | None = Field(default=None, ge=1, le=1_000_000_000)
    test: int | None = Field(default=None, ge=1, le=1_000_000_000)


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
                raise ValueError(f"source {self.source!r} is built in and takes no path, train or test")
        elif self.source == "cifar" and (self.path is None or self.train or self.test):
            raise ValueError("source 'cifar' needs path, and no train or test: the batches hold both splits")
        elif self.path is None and (self.train is None or self.test is None):
            raise ValueError(f"source {self.source!r} needs either path, or both train and test")
        return self

    @model_validator(mode="after")
    def _classes_and_noise(self) -> DataConfig:
        if self.source == "noise":
            if self.classes is not None and (not isinstance(self.classes, int) or not 1 <= self.classes <= 1_000_000):
                raise ValueError("source 'noise' has no named classes; set classes to their number, 1 to 1000000")
        elif given := sorted({"kind", "count", "seed"} & self.model_fields_set):
            raise ValueError(f"{' and '.join(given)} only go with source 'noise', not {self.source!r}")
        elif isinstance(self.classes, int) or self.classes in ((), ""):
            raise ValueError("classes is a list of names, WordNet ids or labels, or the path of a text file of these")
        return self


_Mean = Annotated[float, Field(ge=-1, le=1)]
_Std = Annotated[float, Field(ge=1e-4, le=100)]


class Normalisation(Part):
    """Channel mean and standard deviation applied inside the net to images in [0, 1]."""

    mean: tuple[_Mean, _Mean, _Mean]
    std: tuple[_Std, _Std, _Std]


class ModelConfig(Part):
    """A base model: an architecture with either a checkpoint or a training recipe.

    ``arch`` is a timm name, ``cifar_resnet20``/``32``/``44``/``56``, ``resnet_mini``, or ``module:function``; ``args``
    are keyword arguments for it. ``checkpoint`` may contain ``{seed}``. ``points`` names modules to use as stitch points.
    """

    arch: str
    args: Annotated[dict[str, Any], AfterValidator(plain_arguments)] = Field(default={})
    data: str
    seeds: SeedRange = (0,)
    normalise: Annotated[Normalisation, BeforeValidator(named_normalisation)] = Normalisation(
        mean=NORMALISATIONS["imagenet"][0], std=NORMALISATIONS["imagenet"][1]
    )
    checkpoint: FilePath | None = None
    train: TrainConfig | None = None
    points: tuple[str, ...] | None = None

    @field_validator("points")
    @classmethod
    def _points_differ(cls, points: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = next((name for name, times in Counter(points).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"names {twice!r} twice; name each module once, in any order")
        return points

    @model_validator(mode="after")
    def _one_origin(self) -> ModelConfig:
        if (self.checkpoint is None) == (self.train is None):
            raise ValueError("give exactly one of checkpoint and train (train: {} is the method's recipe)")
        if self.checkpoint is not None and len(self.seeds) > 1 and "{seed}" not in self.checkpoint:
            raise ValueError("several seeds need '{seed}' in checkpoint")
        return self


class SettingConfig(Part):
    """Pairs of models to stitch: every front with every end, on one dataset.

    A reference is ``name``, ``name/seed`` or ``name/first-last``. ``data`` is by default the front's training data, and
    ``points`` the study's own.
    """

    front: Many[str]
    end: Many[str]
    data: str | None = None
    eval: Many[EvalSet] = ("test",)
    points: PointChoice | None = None


class IriConfig(Part):
    """How identically represented inputs are found (METHOD §2).

    ``sign_pgd`` is the published optimiser (step ``lr`` = 1/255 in pixels, 200 steps); ``adam`` minimises the sum of
    log r with a cosine step from ``lr`` = 0.1 and needs far fewer steps for the same residual. An image whose residual
    is at most ``tolerance`` is finished. ``dtype`` is how pixels are stored; uint8 is rounded and r measured again.
    """

    optimiser: Literal["adam", "sign_pgd"] = "adam"
    steps: int = Field(default=400, ge=1, le=1_000_000)
    lr: float | None = Field(default=None, gt=0)
    tolerance: float = Field(default=0.0, ge=0)
    dtype: Literal["uint8", "float32"] = "uint8"
    batch: int = Field(default=128, ge=1, le=1_000_000)
    shard_size: int = Field(default=512, ge=1, le=1_000_000)
    seed: Seed = 0

    @property
    def step_size(self) -> float:
        """The first step in pixel units: ``lr``, or the default of the optimiser."""
        return self.lr if self.lr is not None else {"adam": 0.1, "sign_pgd": 1 / 255}[self.optimiser]


class StitchConfig(Part):
    """What a stitch can express: its map from the front's features to the end's, the same at every position.

    ``identity`` trains nothing and needs equal shapes; ``affine`` is the method's; ``low_rank`` is an affine map whose
    matrix has at most ``rank``; ``mlp`` has one hidden layer of ``width`` ReLU units.
    """

    kind: Literal["identity", "affine", "low_rank", "mlp"] = "affine"
    rank: int | None = Field(default=None, ge=1, le=100_000)
    width: int | None = Field(default=None, ge=1, le=100_000)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_size(self) -> StitchConfig:
        for field, kind in (("rank", "low_rank"), ("width", "mlp")):
            if (getattr(self, field) is not None) != (self.kind == kind):
                verb = "needs" if self.kind == kind else "takes no"
                raise ValueError(f"stitch {self.kind!r} {verb} {field}")
        return self

    def __str__(self) -> str:
        """The name in results: ``affine``, ``low_rank:8``, ``mlp:64``."""
        size = self.rank or self.width
        return self.kind if size is None else f"{self.kind}:{size}"


class FitConfig(Part):
    """How a stitch is trained (METHOD §5): Adam, lr ×0.1 after 1/3 and 2/3 of the epochs, last partial batch dropped."""

    epochs: int = Field(default=30, ge=1, le=100_000)
    batch: int = Field(default=128, ge=2, le=1_000_000)
    lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=1e-4, ge=0)
    init: Literal["pinv", "random", "identity"] = "pinv"
    init_images: int = Field(default=500, ge=2, le=10_000_000)
    stitch: StitchConfig = StitchConfig()


class Resources(Part):
    """What one worker asks Ray for. Its torch threads are ``cpus`` rounded up, so results do not depend on the machine."""

    cpus: float = Field(default=1, ge=0.001, le=10_000)
    gpus: float = Field(default=0, ge=0, le=10_000)


class ResourcesConfig(Part):
    """Per kind of worker: ``iri`` workers make base models and IRI sets, ``fit`` workers the fits.

    Each asks for half a core by default, so that both kinds overlap and every core serves one of each. ``iri_actors`` is the
    number of ``iri`` workers: by default one per core, or one per share of a GPU.
    """

    iri: Resources = Resources(cpus=0.5)
    fit: Resources = Resources(cpus=0.5)
    iri_actors: int | None = Field(default=None, ge=1, le=10_000)


class StudyConfig(Part):
    """One study. ``points`` pairs stitch points: ``all`` (every front point with the end point at the same relative
    depth), ``cross`` (every front point with every end point), or a list of front points or [front, end] pairs."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    title: str = Field(default="", max_length=500)
    data: dict[WordName, DataConfig] = Field(min_length=1)
    models: dict[WordName, ModelConfig] = Field(min_length=1)
    settings: dict[SettingName, SettingConfig] = Field(min_length=1)
    points: PointChoice = "all"
    objectives: Many[Objective] = ("hlm", "slm", "fula", "dm")
    arms: Many[Arm] = ("real", "iri")
    protocol: Protocol = "matched"
    seeds: SeedRange = (1, 2, 3)
    iri: IriConfig = IriConfig()
    fit: FitConfig = FitConfig()
    resources: ResourcesConfig = ResourcesConfig()
    storage: FilePath = "./runs"

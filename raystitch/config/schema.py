"""The schema of a study: frozen objects with the method's defaults, validated at the door and trusted inside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from raystitch.config.dataset import DataConfig
from raystitch.config.fitting import FitConfig, IriConfig, RobustConfig, SimilarityConfig
from raystitch.config.objective import Objective
from raystitch.config.recipe import PgdConfig, TrainConfig
from raystitch.config.resources import ResourcesConfig
from raystitch.config.track import TrackConfig
from raystitch.config.values import (
    NORMALISATIONS,
    STUDY_NAME,
    Arm,
    EvalSet,
    FieldProblem,
    FilePath,
    FitSeeds,
    Many,
    Part,
    PointChoice,
    Protocol,
    SeedRange,
    SettingName,
    WordName,
    named_normalisation,
    plain_arguments,
    server_url,
)

ITSELF = "itself"
"""In the place of an end: each front is stitched to itself."""

_Mean = Annotated[float, Field(ge=-1, le=1)]
_Std = Annotated[float, Field(ge=1e-4, le=100)]


class Normalisation(Part):
    """Channel mean and standard deviation applied inside the net to images in [0, 1]."""

    mean: tuple[_Mean, _Mean, _Mean]
    std: tuple[_Std, _Std, _Std]


class ModelConfig(Part):
    """A base model: an architecture with a checkpoint, a training recipe, or ``untrained: true``, initial weights as a control.

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
    untrained: bool = False
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
        if (self.checkpoint is not None) + (self.train is not None) + self.untrained != 1:
            raise ValueError(
                "give exactly one of checkpoint, train (train: {} is the method's recipe) and untrained: true"
            )
        if self.checkpoint is not None and len(self.seeds) > 1 and "{seed}" not in self.checkpoint:
            raise FieldProblem("checkpoint", self.checkpoint, "several seeds need '{seed}' in it")
        return self


class SettingConfig(Part):
    """Pairs of models to stitch: every front with every end, on one dataset.

    A reference is ``name``, ``name/seed`` or ``name/first-last``; ``end: itself`` stitches each front to itself. ``data`` is
    by default the front's training data, ``test`` the dataset whose test images are shown, by default the same. With
    ``attack`` the stitch is trained on adversarial images: every image attacked by PGD against the stitched net as it
    trains. The other keys, where given, replace the study's own; ``iri`` and ``fit`` key by key.
    """

    front: Many[str]
    end: Many[str]
    data: str | None = None
    test: str | None = None
    attack: Annotated[PgdConfig | None, BeforeValidator(lambda v: {} if v == "pgd" else v)] = None
    eval: Many[EvalSet] | None = None
    points: PointChoice | None = None
    objectives: Many[Objective] | None = None
    arms: Many[Arm] | None = None
    protocol: Protocol | None = None
    seeds: FitSeeds | None = None
    iri: IriConfig | None = None
    fit: FitConfig | None = None


@dataclass(frozen=True)
class Grid:
    """What a setting runs for each of its pairs: its own values, or the study's."""

    points: PointChoice
    points_where: str
    eval: tuple[EvalSet, ...]
    objectives: tuple[Objective, ...]
    arms: tuple[Arm, ...]
    protocol: Protocol
    seeds: tuple[int, ...] | Literal["front"]
    iri: IriConfig
    fit: FitConfig


class S3Config(Part):
    """Where object storage is, as far as the environment does not say (``AWS_ENDPOINT_URL``, ``AWS_PROFILE`` and so on).

    ``endpoint`` is the URL of a server other than Amazon's, ``profile`` names a section of ``~/.aws/credentials``. Keys have
    no place here: a config is copied into the storage.
    """

    endpoint: Annotated[str, AfterValidator(server_url)] | None = None
    region: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]+$")
    profile: str | None = Field(default=None, min_length=1)


def _similarity(value: object) -> object:
    """``true`` for the defaults, ``false`` for none."""
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


class StudyConfig(Part):
    """One study. ``points`` pairs stitch points: ``all`` (every front point with the end point at the same relative
    depth), ``cross`` (every front point with every end point), or a list of front points or [front, end] pairs. ``similarity``
    adds representation metrics. ``published`` names the study of the paper whose values the report shows beside its own, and
    ``notes`` is text for the report, such as why the two differ."""

    name: str = Field(pattern=rf"^{STUDY_NAME}$", max_length=80)
    title: str = Field(default="", max_length=500)
    data: dict[WordName, DataConfig] = Field(min_length=1)
    models: dict[WordName, ModelConfig] = Field(min_length=1)
    settings: dict[SettingName, SettingConfig] = Field(min_length=1)
    points: PointChoice = "all"
    eval: Many[EvalSet] = ("test",)
    objectives: Many[Objective] = ("hlm", "slm", "fula", "dm")
    arms: Many[Arm] = ("real", "iri")
    protocol: Protocol = "matched"
    seeds: FitSeeds = (1, 2, 3)
    iri: IriConfig = IriConfig()
    fit: FitConfig = FitConfig()
    robust: RobustConfig = RobustConfig()
    similarity: Annotated[SimilarityConfig | None, BeforeValidator(_similarity)] = None
    published: Literal["information", "shortcuts", "robustness"] | None = None
    notes: str = Field(default="", max_length=20_000)
    resources: ResourcesConfig = ResourcesConfig()
    storage: FilePath = "./runs"
    s3: S3Config = S3Config()
    track: TrackConfig = TrackConfig()

    @model_validator(mode="before")
    @classmethod
    def _settings_inherit(cls, value: object) -> object:
        """A setting's ``iri`` and ``fit`` are the study's with some keys replaced; a preset starts anew."""
        if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
            return value
        settings = {
            name: {**setting, **_inherited(value, setting)} if isinstance(setting, dict) else setting
            for name, setting in value["settings"].items()
        }
        return {**value, "settings": settings}

    def grid(self, setting: str) -> Grid:
        """What a setting runs for each of its pairs."""
        own = self.settings[setting]
        return Grid(
            points=self.points if own.points is None else own.points,
            points_where="points" if own.points is None else f"settings.{setting}.points",
            eval=own.eval or self.eval,
            objectives=own.objectives or self.objectives,
            arms=own.arms or self.arms,
            protocol=own.protocol or self.protocol,
            seeds=own.seeds or self.seeds,
            iri=own.iri or self.iri,
            fit=own.fit or self.fit,
        )


def _inherited(study: dict[str, Any], setting: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in ("iri", "fit"):
        shared, own = study.get(part), setting.get(part)
        if isinstance(shared, str):
            shared = {"preset": shared}
        if isinstance(own, dict) and isinstance(shared, dict) and "preset" not in own:
            found[part] = {**shared, **own}
    return found

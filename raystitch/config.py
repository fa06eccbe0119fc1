"""What the user asks for: one short YAML file is one study.

Every object here is frozen and validated at the door, so the rest of the package trusts it. Defaults are those of the
method (Athanasiadis et al., ICML 2026) wherever it states one. A wrong key or value is reported as one
:class:`~raystitch.errors.InputError` that names the field and, for a key, the nearest right name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import fsspec
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from raystitch.errors import InputError, did_you_mean

Objective = Literal["hlm", "slm", "dm", "fula"]
Arm = Literal["real", "iri"]
Protocol = Literal["matched", "paper"]
EvalSet = Literal["test", "shuffled", "clean"]

NORMALISATIONS: Mapping[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
"""Channel mean and standard deviation, in pixel units [0, 1], by the name a config uses."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_T = TypeVar("_T")


def _expand_range(value: object) -> object:
    """``3`` → (3,), ``"1-3"`` → (1, 2, 3), ``[0, "2-3"]`` → (0, 2, 3)."""
    if isinstance(value, (list, tuple)):
        return tuple(n for item in value for n in _as_tuple(_expand_range(item)))
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("give a number, a range such as '1-3', or a list of these")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range runs backwards; write '{last}-{first}'")
    return tuple(range(first, last + 1))


def _as_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _one_or_many(value: object) -> object:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _filled(values: tuple[_T, ...]) -> tuple[_T, ...]:
    if not values:
        raise ValueError("give at least one")
    return tuple(dict.fromkeys(values))


_Many = Annotated[tuple[_T, ...], BeforeValidator(_one_or_many), AfterValidator(_filled)]
SeedRange = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_expand_range), AfterValidator(_filled)]


class CueConfig(_Part):
    """A planted shortcut (METHOD §8): a square pasted into each image after augmentation.

    ``pixel`` has one colour per class, ``rand`` is a square of noise that carries no information. ``size`` is the side
    in pixels; by default 4 per 32 pixels of the image.
    """

    kind: Literal["pixel", "rand"] = "pixel"
    placement: Literal["random", "class"] = "random"
    size: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class SplitLimit(_Part):
    """How many images of a split to use: evenly spaced rows, so that sets sorted by class keep every class."""

    train: int | None = Field(default=None, ge=1)
    test: int | None = Field(default=None, ge=1)


class DataConfig(_Part):
    """A dataset with a ``train`` and a ``test`` split.

    ``digits`` is built in. ``parquet`` reads the Hugging Face layout (an image column and an integer label column);
    ``folder`` reads one sub-folder per class. ``path`` holds both splits under the usual names; ``train`` and ``test``
    name them one by one (file, glob or folder, any fsspec URL). ``size`` resizes every image to that side.
    """

    source: Literal["digits", "parquet", "folder"]
    path: str | None = None
    train: str | None = None
    test: str | None = None
    size: int | None = Field(default=None, ge=4)
    limit: SplitLimit = SplitLimit()
    cue: Annotated[CueConfig | None, BeforeValidator(lambda v: {"kind": v} if isinstance(v, str) else v)] = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_files(self) -> DataConfig:
        if self.source == "digits":
            if self.path or self.train or self.test:
                raise ValueError("source 'digits' is built in and takes no path, train or test")
        elif self.path is None and (self.train is None or self.test is None):
            raise ValueError(f"source {self.source!r} needs either path, or both train and test")
        return self


class TrainConfig(_Part):
    """Supervised recipe for a base model (METHOD §8): SGD with Nesterov momentum, lr ×0.1 at 1/3 and 2/3 of the epochs."""

    epochs: int = Field(default=200, ge=1)
    lr: float = Field(default=0.1, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    batch: int = Field(default=128, ge=2)
    augment: Literal["flip_crop", "crop", "none"] = "flip_crop"


class Normalisation(_Part):
    """Channel mean and standard deviation applied inside the net to images in [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


def _named_normalisation(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in NORMALISATIONS:
        raise ValueError(f"unknown normalisation{did_you_mean(value, NORMALISATIONS)}")
    mean, std = NORMALISATIONS[value]
    return {"mean": mean, "std": std}


class ModelConfig(_Part):
    """A base model: an architecture with either a checkpoint or a training recipe.

    ``arch`` is a timm name, ``cifar_resnet20``/``32``/``44``/``56``, ``resnet_mini``, or ``module:function``; ``args``
    are keyword arguments for it. ``checkpoint`` may contain ``{seed}``. ``points`` names modules to use as stitch points.
    """

    arch: str
    args: dict[str, Any] = {}
    data: str
    seeds: SeedRange = (0,)
    normalise: Annotated[Normalisation, BeforeValidator(_named_normalisation)] = Normalisation(
        mean=NORMALISATIONS["imagenet"][0], std=NORMALISATIONS["imagenet"][1]
    )
    checkpoint: str | None = None
    train: TrainConfig | None = None
    points: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> ModelConfig:
        if (self.checkpoint is None) == (self.train is None):
            raise ValueError("give exactly one of checkpoint and train (train: {} is the method's recipe)")
        if self.checkpoint is not None and len(self.seeds) > 1 and "{seed}" not in self.checkpoint:
            raise ValueError("several seeds need '{seed}' in checkpoint")
        return self


def _point_choice(value: object) -> object:
    if value in ("all", "cross"):
        return value
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError("give 'all', 'cross', or a list of front points and [front, end] pairs")
    return tuple(_point_or_pair(item) for item in value)


def _point_or_pair(item: object) -> object:
    numbers = item if isinstance(item, (list, tuple)) else [item]
    if not 1 <= len(numbers) <= 2 or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise ValueError(f"{item!r} is neither a point number nor a [front, end] pair")
    return tuple(numbers) if len(numbers) == 2 else numbers[0]


PointChoice = Annotated[
    Literal["all", "cross"] | tuple[int | tuple[int, int], ...],
    BeforeValidator(_point_choice),
]


class SettingConfig(_Part):
    """Pairs of models to stitch: every front with every end, on one dataset.

    A reference is ``name``, ``name/seed`` or ``name/first-last``. ``data`` is by default the front's training data, and
    ``points`` the study's own.
    """

    front: _Many[str]
    end: _Many[str]
    data: str | None = None
    eval: _Many[EvalSet] = ("test",)
    points: PointChoice | None = None


class IriConfig(_Part):
    """How identically represented inputs are found (METHOD §2).

    ``sign_pgd`` is the published optimiser (step ``lr`` = 1/255 in pixels, 200 steps); ``adam`` minimises the sum of
    log r with a cosine step from ``lr`` = 0.1 and needs far fewer steps for the same residual. An image whose residual
    is at most ``tolerance`` is finished. ``dtype`` is how pixels are stored; uint8 is rounded and r measured again.
    """

    optimiser: Literal["adam", "sign_pgd"] = "adam"
    steps: int = Field(default=400, ge=1)
    lr: float | None = Field(default=None, gt=0)
    tolerance: float = Field(default=0.0, ge=0)
    dtype: Literal["uint8", "float32"] = "uint8"
    batch: int = Field(default=128, ge=1)
    shard_size: int = Field(default=512, ge=1)
    seed: int = Field(default=0, ge=0)

    @property
    def step_size(self) -> float:
        """The first step in pixel units: ``lr``, or the default of the optimiser."""
        return self.lr if self.lr is not None else {"adam": 0.1, "sign_pgd": 1 / 255}[self.optimiser]


class FitConfig(_Part):
    """How a stitch is trained (METHOD §5): Adam, lr ×0.1 after 1/3 and 2/3 of the epochs, last partial batch dropped."""

    epochs: int = Field(default=30, ge=1)
    batch: int = Field(default=128, ge=2)
    lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=1e-4, ge=0)
    init: Literal["pinv", "random", "identity"] = "pinv"
    init_images: int = Field(default=500, ge=2)


class Resources(_Part):
    """What one worker asks Ray for. Its torch threads are ``cpus`` rounded up, so results do not depend on the machine."""

    cpus: float = Field(default=1, gt=0)
    gpus: float = Field(default=0, ge=0)


class ResourcesConfig(_Part):
    """Per kind of worker: ``iri`` workers make base models and IRI sets, ``fit`` workers the fits.

    Each asks for half a core by default, so that both kinds overlap and every core serves one of each. ``iri_actors`` is the
    number of ``iri`` workers: by default one per core, or one per share of a GPU.
    """

    iri: Resources = Resources(cpus=0.5)
    fit: Resources = Resources(cpus=0.5)
    iri_actors: int | None = Field(default=None, ge=1)


class StudyConfig(_Part):
    """One study. ``points`` pairs stitch points: ``all`` (every front point with the end point at the same relative
    depth), ``cross`` (every front point with every end point), or a list of front points or [front, end] pairs."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    title: str = ""
    data: dict[str, DataConfig] = Field(min_length=1)
    models: dict[str, ModelConfig] = Field(min_length=1)
    settings: dict[str, SettingConfig] = Field(min_length=1)
    points: PointChoice = "all"
    objectives: _Many[Objective] = ("hlm", "slm", "fula", "dm")
    arms: _Many[Arm] = ("real", "iri")
    protocol: Protocol = "matched"
    seeds: SeedRange = (1, 2, 3)
    iri: IriConfig = IriConfig()
    fit: FitConfig = FitConfig()
    resources: ResourcesConfig = ResourcesConfig()
    storage: str = "./runs"


def load_config(path: str, overrides: Sequence[str] = ()) -> StudyConfig:
    """Read a YAML study from a path or URL and apply ``key.path=value`` overrides (values are YAML).

    Raises:
        InputError: the file is missing or not YAML, or a field is unknown or has a wrong value.
    """
    try:
        with fsspec.open(path, "r", encoding="utf-8") as stream:
            raw = yaml.safe_load(stream)
    except yaml.YAMLError as error:
        raise InputError(path, None, f"not valid YAML: {error}") from error
    except (OSError, ValueError) as error:
        raise InputError("config", path, f"cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise InputError(path, None, "a study is a mapping with keys such as name, data, models, settings")
    for override in overrides:
        _apply_override(raw, override)
    raw.setdefault("name", Path(path).stem)
    return parse_config(raw)


def parse_config(raw: Mapping[str, Any]) -> StudyConfig:
    """Validate a mapping as a study; every problem becomes one :class:`InputError` naming its field."""
    try:
        config = StudyConfig.model_validate(raw)
    except ValidationError as error:
        raise _first_problem(error) from None
    _check_references(config)
    return config


def _apply_override(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError("--set", override, "write it as key.path=value")
    *parents, leaf = key.split(".")
    node = raw
    for parent in parents:
        child = node.setdefault(parent, {})
        if isinstance(child, str) and parents[0] == "data":
            child = node[parent] = {"source": child}
        if not isinstance(child, dict):
            raise InputError("--set", override, f"{parent!r} is not a mapping, so it has no key {leaf!r}")
        node = child
    try:
        node[leaf] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("--set", override, f"the value is not valid YAML: {error}") from error


def _first_problem(error: ValidationError) -> InputError:
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"] if not _is_branch_label(str(part))]
    where = ".".join(path) or "config"
    if problem["type"] == "extra_forbidden":
        known = _fields_at(path[:-1])
        return InputError(where, problem["input"], f"unknown key {path[-1]!r}{did_you_mean(path[-1], known)}")
    if problem["type"] == "missing":
        return InputError(where, None, "is required and missing")
    message = problem["msg"].removeprefix("Value error, ")
    return InputError(where, problem["input"] if path else None, message)


def _is_branch_label(part: str) -> bool:
    """Pydantic names the branch of a union inside the location; users did not write it."""
    return bool(re.search(r"[\[\](]|^function-|^literal$|^tuple$|^constrained", part)) or part in _BRANCHES


_BRANCHES = {"int", "str", "CueConfig", "TrainConfig", "Normalisation"}


def _fields_at(path: Sequence[str]) -> list[str]:
    """The keys allowed at a place in the config, found by walking the models' annotations."""
    model: type[BaseModel] = StudyConfig
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            continue  # a name the user chose, such as a dataset's
        model = _model_in(field.annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if found := _model_in(part):
            return found
    return None


def _check_references(config: StudyConfig) -> None:
    for name, model in config.models.items():
        if model.data not in config.data:
            raise InputError(
                f"models.{name}.data", model.data, f"unknown dataset{did_you_mean(model.data, config.data)}"
            )
    for name, setting in config.settings.items():
        where = f"settings.{name}"
        if setting.data is not None and setting.data not in config.data:
            raise InputError(f"{where}.data", setting.data, f"unknown dataset{did_you_mean(setting.data, config.data)}")
        for side in ("front", "end"):
            expand_refs(config, getattr(setting, side), f"{where}.{side}")


def expand_refs(config: StudyConfig, refs: Sequence[str], where: str) -> list[tuple[str, int]]:
    """``("clean/1-3", "pixel")`` → [("clean", 1), …, ("pixel", s) for each seed s of the model].

    Raises:
        InputError: an unknown model, or a seed that the model does not list.
    """
    pairs: dict[tuple[str, int], None] = {}
    for ref in refs:
        name, slash, seeds = ref.partition("/")
        if name not in config.models:
            raise InputError(where, ref, f"unknown model {name!r}{did_you_mean(name, config.models)}")
        known = config.models[name].seeds
        try:
            wanted = _expand_range(seeds) if slash else known
        except ValueError as error:
            raise InputError(where, ref, str(error)) from None
        for seed in _as_tuple(wanted):
            if seed not in known:
                raise InputError(
                    where, ref, f"model {name!r} has no seed {seed}; its seeds: {', '.join(map(str, known))}"
                )
            pairs[(name, int(str(seed)))] = None
    return list(pairs)

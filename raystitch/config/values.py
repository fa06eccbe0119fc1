"""How values are written in a config: names, ranges, one or many, plain values, named normalisations, choices of points."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from raystitch.access import without_credentials
from raystitch.errors import did_you_mean

Arm = Literal["real", "iri", "iri_front", "iri_end"]
"""What a stitch is trained on: real images, IRIs, or IRIs that only the front or only the end's own stream sees."""
SINGLE_SIDED: tuple[Arm, ...] = ("iri_front", "iri_end")
Protocol = Literal["matched", "paper"]
AttackName = Literal["apgd_ce_dlr", "autoattack"]
EvalSet = Literal["test", "shuffled", "clean", "apgd_ce_dlr", "autoattack"]
"""Test images with the cue as trained, shuffled or left out (METHOD §8), or attacked as they are in ``test`` (METHOD §7)."""
ATTACKS: tuple[AttackName, ...] = get_args(AttackName)
"""Evaluation sets that are made against the very net that is measured."""

NORMALISATIONS: Mapping[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
"""Channel mean and standard deviation, in pixel units [0, 1], by the name a config uses."""

MAX_SEED = 2**31 - 1
MAX_SEEDS = 10_000
"""How many seeds one list or range may have."""
MAX_SIDE = 4096
"""Of images, in pixels."""
MAX_POINTS = 100_000
"""Stitch points of a net: far more than any has."""
_MAX_NAME = 80
_MAX_ARGS = 10_000  # values in the arguments of a net, those inside others included

_T = TypeVar("_T")


def _takes_numbers(annotation: Any) -> bool:
    """Whether a type is a number, a choice with a number in it, or several of these."""
    if get_origin(annotation) in (Union, UnionType, Annotated, tuple):
        return any(map(_takes_numbers, get_args(annotation)))
    return annotation in (int, float)


class FieldProblem(ValueError):
    """What a check of several fields finds wrong with one of them.

    Args:
        field: its key in the part that is checked.
        value: what it holds.
        problem: why it is wrong, and what would be right.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        super().__init__(problem)
        self.field, self.value = field, list(value) if isinstance(value, tuple) else value


class Part(BaseModel):
    """A section of a config: frozen, with known keys only, and no number that is NaN or infinite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        items = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(item, bool) for item in items) and _takes_numbers(
            cls.model_fields[str(info.field_name)].annotation
        ):
            raise ValueError("give a number, not true or false")
        return value


Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]


def server_url(url: str) -> str:
    """The URL of a server as it is.

    Raises:
        ValueError: it is no URL of a server, or holds credentials.
    """
    if not (re.fullmatch(r"https?://[^\s/?#]+/?", without_credentials(url), re.IGNORECASE) and _has_host(url)):
        raise ValueError("give the URL of a server, such as http://minio.lab:9000")
    return url


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # no number, or none of a port
        return False


STUDY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""What a study may be called: it is a folder in the storage."""

FilePath = Annotated[str, Field(min_length=1), AfterValidator(without_credentials)]
"""A path or URL."""


def setting_name(name: str) -> str:
    """A name as it is.

    Raises:
        ValueError: it is empty, too long, or has a slash or what cannot be printed in it.
    """
    if not name.strip():
        raise ValueError("a name must not be empty")
    if name != name.strip() or "/" in name or not name.isprintable():
        raise ValueError("a name has no '/', no control characters, and no blanks around it")
    if len(name) > _MAX_NAME:
        raise ValueError(f"a name has at most {_MAX_NAME} characters")
    return name


def word_name(name: str) -> str:
    """As :func:`setting_name`, and without blanks inside."""
    if " " in setting_name(name):
        raise ValueError("a name of a dataset or a model has no blanks; write '-' or '_'")
    return name


SettingName = Annotated[str, AfterValidator(setting_name)]
WordName = Annotated[str, AfterValidator(word_name)]


def expand_range(value: object) -> object:
    """``3`` → (3,), ``"1-3"`` → (1, 2, 3), ``[0, "2-3"]`` → (0, 2, 3); at most 10,000 numbers up to 2³¹ - 1."""
    if isinstance(value, (list, tuple)):
        numbers: list[object] = []
        for item in value:
            numbers.extend(as_tuple(expand_range(item)))
            _check_length(len(numbers))
        return tuple(numbers)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", value, re.ASCII) if isinstance(value, str) else None
    if match is None:
        raise ValueError("give a number, a range such as '1-3', or a list of these")
    return tuple(_numbers(match[1], match[2] or match[1]))


def _numbers(first_text: str, last_text: str) -> range:
    if max(len(first_text), len(last_text)) > 20 or int(last_text) > MAX_SEED or int(first_text) > MAX_SEED:
        raise ValueError(f"a seed is at most {MAX_SEED}")
    first, last = int(first_text), int(last_text)
    if last < first:
        raise ValueError(f"the range runs backwards; write '{last}-{first}'")
    _check_length(last - first + 1)
    return range(first, last + 1)


def _check_length(count: int) -> None:
    if count > MAX_SEEDS:
        raise ValueError(f"gives {count} seeds or more; give at most {MAX_SEEDS}")


def as_tuple(value: object) -> tuple[object, ...]:
    """A value as a tuple of one, a tuple as it is."""
    return value if isinstance(value, tuple) else (value,)


def one_or_many(value: object) -> object:
    """Lets a user write one value where several are allowed."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _filled(values: tuple[_T, ...]) -> tuple[_T, ...]:
    if not values:
        raise ValueError("give at least one")
    return tuple(dict.fromkeys(values))


Many = Annotated[tuple[_T, ...], BeforeValidator(one_or_many), AfterValidator(_filled)]
FitSeeds = Annotated[
    tuple[Seed, ...] | Literal["front"],
    BeforeValidator(lambda value: value if value == "front" else expand_range(value)),
    AfterValidator(lambda value: value if value == "front" else _filled(value)),
]
"""Seeds of the fits: numbers, or ``front`` for one fit per front, with the seed of that front."""
SeedRange = Annotated[tuple[Seed, ...], BeforeValidator(expand_range), AfterValidator(_filled)]


def named_normalisation(value: object) -> object:
    """The mean and standard deviation that a name stands for."""
    if not isinstance(value, str):
        return value
    if value not in NORMALISATIONS:
        raise ValueError(f"unknown normalisation{did_you_mean(value, NORMALISATIONS)}")
    mean, std = NORMALISATIONS[value]
    return {"mean": mean, "std": std}


def class_list(value: object) -> object:
    """What names classes: a number, the path of a list, or a list of names, WordNet ids and labels."""
    if isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, bool) or not isinstance(item, (int, str)):
                raise ValueError(f"{item!r} is no class; give names, WordNet ids or labels")
        return tuple(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, str))):
        raise ValueError("give a list of names, WordNet ids or labels, or the path of a text file of these")
    return value


def plain_arguments(values: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as they are.

    Raises:
        ValueError: one is not plain (text, numbers, true, false, null, lists and mappings of these), NaN or infinite.
    """
    budget = _MAX_ARGS
    waiting: list[tuple[str, object]] = list(values.items())
    while waiting:
        path, value = waiting.pop()
        budget -= 1
        if budget < 0:
            raise ValueError(f"holds more than {_MAX_ARGS} values")
        if isinstance(value, dict):
            waiting.extend((f"{path}.{_plain_key(key, path)}", inner) for key, inner in value.items())
        elif isinstance(value, (list, tuple)):
            waiting.extend((f"{path}.{index}", inner) for index, inner in enumerate(value))
        elif not _is_plain(value):
            raise ValueError(
                f"{path} is {_short(value)}; give text, finite numbers, true, false, null, or lists of these"
            )
    return values


def _plain_key(key: object, path: str) -> str:
    if not isinstance(key, str) or not _is_plain(key):
        raise ValueError(f"{path} has the key {_short(key)}; keys are text")
    return key


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int))


def _short(value: object) -> str:
    return repr(value)[:60]


def point_choice(value: object) -> object:
    """``all``, ``cross``, or a tuple of points and (front, end) pairs."""
    if isinstance(value, str) and value in ("all", "cross"):
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
    BeforeValidator(point_choice),
]

"""How values are written in a config: ranges, one or many, named normalisations, choices of points."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from raystitch.errors import did_you_mean

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


_T = TypeVar("_T")


def expand_range(value: object) -> object:
    """``3`` → (3,), ``"1-3"`` → (1, 2, 3), ``[0, "2-3"]`` → (0, 2, 3)."""
    if isinstance(value, (list, tuple)):
        return tuple(n for item in value for n in as_tuple(expand_range(item)))
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("give a number, a range such as '1-3', or a list of these")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range runs backwards; write '{last}-{first}'")
    return tuple(range(first, last + 1))


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
SeedRange = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(expand_range), AfterValidator(_filled)]


def named_normalisation(value: object) -> object:
    """The mean and standard deviation that a name stands for."""
    if not isinstance(value, str):
        return value
    if value not in NORMALISATIONS:
        raise ValueError(f"unknown normalisation{did_you_mean(value, NORMALISATIONS)}")
    mean, std = NORMALISATIONS[value]
    return {"mean": mean, "std": std}


def point_choice(value: object) -> object:
    """``all``, ``cross``, or a tuple of points and (front, end) pairs."""
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
    BeforeValidator(point_choice),
]

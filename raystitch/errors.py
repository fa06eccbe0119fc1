"""Errors that tell the user what to change, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Something the user gave is wrong: which field or file, its value, and what would be right.

    Args:
        where: the config field (dotted path) or file at fault.
        value: what was found there; ``None`` where there is no value to show.
        problem: why it is wrong and, where known, what would be right.
    """

    def __init__(self, where: str, value: object, problem: str) -> None:
        self.where, self.value, self.problem = where, value, " ".join(problem.split())
        super().__init__(where, value, problem)

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {_short(self.value)}"
        return f"{self.where}{shown}: {self.problem}"


class MissingError(InputError):
    """A file or folder that the user named is not there at all; one that is there but damaged is another error."""


class NotFiniteError(InputError):
    """Weights that are readable and fit their net, but hold NaN or infinite values."""


class DamagedError(OSError):
    """A file of the storage that was damaged, and set aside to be made again."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or the short list of known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if len(names) <= 20 else ""


def _short(value: object, limit: int = 120) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"

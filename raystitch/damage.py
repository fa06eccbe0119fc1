"""How users are told of files that could not be read and are left out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raystitch.tables import FOLDER


class DamageWarning(UserWarning):
    """A file is left out; the message names it, and what makes it again."""


def warn_of_damage(name: str) -> None:
    """Warn whoever called this package of a file that could not be read and is left out."""
    again = (
        "'raystitch compact' makes it again" if name.startswith(f"{FOLDER}/") else "run the sweep again to have it made"
    )
    text = f"{name} is damaged or missing, and left out; {again}"
    warnings.warn(text, DamageWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """The ``stacklevel``, as seen from the function that asks, of the first frame outside this package."""
    package, frame, level = f"{__package__}.", sys._getframe(1), 1
    while frame.f_back and f"{frame.f_globals.get('__name__')}.".startswith(package):
        frame, level = frame.f_back, level + 1
    return level


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Inside, such warnings are lines on standard error, without a place in the code."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, DamageWarning):
                print(f"raystitch: {message}", file=sys.stderr)
            else:
                shown(message, category, *place, **more)

        warnings.showwarning = show
        yield

"""What comes of a unit: nothing to say, or one line of error. Out of memory is named, and a storage in trouble gets time."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from raystitch.access import redact
from raystitch.errors import DamagedError, InputError

PAUSES_S = (2.0, 10.0, 30.0)
"""Seconds to wait before a unit is done again whose storage failed."""
_NO_MEMORY = (
    "can't allocate memory", "not enough memory", "cannot allocate memory", "out of memory", "_alloc_failed",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One line of error and where it came from; both empty when the work is done.

    ``outside`` says that files, not numbers, were at fault: doing less at a time would be no help.
    """

    error: str = ""
    trace: str = ""
    outside: bool = False


def attempt(work: Callable[[], object], sleep: Callable[[float], object] = time.sleep) -> Outcome:
    """Do some work. An error is an outcome; only one of the storage is waited out, and the work done again."""
    for pause in (*PAUSES_S, None):
        try:
            work()
        except Exception as error:
            if pause is None or not _is_of_storage(error):
                trace = redact(traceback.format_exc())
                return Outcome(redact(describe(error)), trace, isinstance(error, (OSError, InputError)))
            sleep(pause)
        else:
            break
    return Outcome()


def describe(error: BaseException) -> str:
    """An error as one line; running out of memory is named as such."""
    name = "out of memory" if _is_no_memory(error) else type(error).__name__
    return f"{name}: {' '.join(str(error).split())}"


def _is_no_memory(error: BaseException) -> bool:
    """Torch has a class of its own for GPUs alone; elsewhere the text tells."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, (RuntimeError, OSError)) and any(text in str(error).lower() for text in _NO_MEMORY)


def _is_of_storage(error: Exception) -> bool:
    """Whether a storage could not be read or written; a file that is not there, or damaged, will be so again."""
    if isinstance(error, InputError):
        return error.where == "storage"
    lasting = isinstance(error, (FileNotFoundError, DamagedError)) or _is_no_memory(error)
    return isinstance(error, OSError) and not lasting

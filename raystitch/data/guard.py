"""Whatever a file system raises becomes one line about the dataset: each driver has errors of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raystitch.config import DataConfig
from raystitch.errors import InputError


@contextmanager
def reading(config: DataConfig, where: str) -> Iterator[None]:
    """Within the block files of a dataset are read; what built-in sets raise is no fault of a file and passes.

    Raises:
        InputError: in place of any exception, naming the config field that holds the path.
    """
    if config.source in ("digits", "noise"):
        yield
    else:
        with reading_url(where if config.path is None else f"{where}.path", config.path):
            yield


@contextmanager
def reading_url(field: str, url: str | None) -> Iterator[None]:
    """Within the block the path or URL that a config field holds is read.

    Raises:
        InputError: in place of any exception.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        raise InputError(field, url, f"cannot be read: {kind}{str(error) or type(error).__name__}") from error

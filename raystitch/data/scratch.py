"""Files in local scratch that processes of one machine share: made once, gone after their last user.

A user holds a shared lock on the file, its maker an exclusive one. The system drops the locks of a process that is killed, so a
file that nobody holds is a leftover: it is never trusted, and the next process to look removes it. All files are in a folder
of the user's own below ``RAYSTITCH_SCRATCH``, by default the system's temporary folder (``TMPDIR``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from raystitch.errors import InputError

_PLACE = "RAYSTITCH_SCRATCH"
_SUFFIX = ".images"
_OWN, _LOCK = "run-", "lock"

Content = Callable[[], Iterator[memoryview]]
"""Gives the bytes of a file part by part, from the first whenever it is called."""


def shared_file(name: str, size: int, content: Content) -> tuple[int, Path]:
    """A whole file, made by this process or by another that still holds it.

    Args:
        name: the same for the same content, whichever process asks.
        size: bytes of the whole file.
        content: called where no other process holds the file.

    Returns:
        A descriptor that holds the file, and its path; to be given to :func:`release`.

    Raises:
        InputError: the folder cannot be written to, or has no room.
        ValueError: the content has another size.
    """
    with _writing(size):
        path = _own_folder(size) / f"{name}{_SUFFIX}"
    while True:
        with _writing(size):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _try_lock(descriptor):
                _fill(descriptor, path, size, content)
            with _writing(size):
                fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for the maker
            if _is_whole(descriptor, size):
                return descriptor, path
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def release(descriptor: int, path: Path) -> None:
    """Let go of a file; the last to do so removes it."""
    if _try_lock(descriptor):
        path.unlink(missing_ok=True)
    os.close(descriptor)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for the length of the block; if this process is killed in it, the next one to begin such a block removes it.

    Raises:
        InputError: it cannot be made.
    """
    with _writing(0):
        clean_scratch()
        path = Path(tempfile.mkdtemp(prefix=_OWN, dir=_own_folder(0)))
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        _try_lock(descriptor)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def clean_scratch() -> None:
    """Remove what processes that were killed left behind."""
    for path in _folder().glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process may be at the same
            release(os.open(path, os.O_RDWR), path)
    for lock in _folder().glob(f"{_OWN}*/{_LOCK}"):
        with suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR)
            if _try_lock(descriptor):
                shutil.rmtree(lock.parent, ignore_errors=True)
            os.close(descriptor)


def _folder() -> Path:
    return Path(os.environ.get(_PLACE) or tempfile.gettempdir()) / f"raystitch-{os.getuid()}"


@lru_cache(1)
def _clean_once(folder: Path) -> None:
    clean_scratch()


def _own_folder(size: int) -> Path:
    """The folder, made where it is missing, with room for ``size`` bytes."""
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    _clean_once(folder)
    return folder


@contextmanager
def _writing(size: int) -> Iterator[None]:
    """Within the block the scratch folder is used, not the files that the images come from."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        problem = (
            f"{size / 1e9:.3g} GB of images cannot be kept here ({reason}); set {_PLACE} to a local folder with room"
        )
        advice = f"{problem}, or RAYSTITCH_MEMORY_BYTES to what one set may take in memory"
        raise InputError(_PLACE, str(_folder()), advice) from error


def _try_lock(descriptor: int) -> bool:
    """Whether nobody else holds the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held; where files cannot be locked at all, waiting for the maker says so
        return False
    return True


def _fill(descriptor: int, path: Path, size: int, content: Content) -> None:
    try:
        with _writing(size):
            os.ftruncate(descriptor, 0)
            free = shutil.disk_usage(path.parent).free
            if free < size:
                raise OSError(f"{free / 1e9:.3g} GB are free")
        written = 0
        for part in content():
            with _writing(size):
                written += _write(descriptor, part)
        if written != size:
            raise ValueError(f"{written} bytes came where {size} were announced")
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write(descriptor: int, part: memoryview) -> int:
    left = part
    while left:
        left = left[os.write(descriptor, left) :]
    return len(part)


def _is_whole(descriptor: int, size: int) -> bool:
    """Whether the file is complete, and still has its name: one without may be a leftover."""
    found = os.fstat(descriptor)
    return found.st_size == size and found.st_nlink > 0

"""Where results live: whole files on any fsspec URL, published last or not at all.

A file becomes visible in one step, complete. Units write create-only, so two workers that finish the same unit agree:
the first wins and the second learns that it was not needed. Nothing here writes half a file; what others damaged is set
aside by :meth:`Store.quarantine`, so that it is made again. An empty file counts as none.

Whatever a filesystem raises, from a server that is away to a place that may not be written to, is one InputError of
``storage``. Only a file that is to be read and is not there remains a FileNotFoundError, with its name.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from raystitch.access import redact, without_credentials
from raystitch.errors import InputError
from raystitch.localfile import TEMPORARY, absent_parents, create, replace
from raystitch.remote import locate, what_is_wrong

_IN_PARTS = 100 << 20  # bytes from which s3fs uploads a file in parts
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "modified", "created")  # the best of each first
_OF_LOCAL_FILES = ("ino", "created")  # the second is when the file itself was last changed
_LONGEST_REASON = 400  # characters; that of HDFS without Java has 15,000
_EXISTS_CODES = {"PreconditionFailed", "ConditionalRequestConflict"}


@dataclass(frozen=True)
class Store:
    """A folder of published files at ``url``; small and picklable, so that every worker can hold one.

    Args:
        url: a local folder or an fsspec URL such as ``s3://bucket/prefix``.
        options: keyword arguments for the fsspec filesystem (endpoint, credentials). Never written anywhere.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            without_credentials(self.url)
        except ValueError as error:
            raise InputError("storage", None, str(error)) from None
        if problem := what_is_wrong(self.url):
            raise InputError("storage", self.url, problem)
        if "://" not in self.url:
            object.__setattr__(self, "url", str(_full_path(self.url)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.url, dict(self.options))

    @property
    def _place(self) -> tuple[Any, str]:
        """File system, and how its paths begin; a forked process opens its own, since connections are not shared."""
        pid = os.getpid()
        if pid not in self._opened:
            self._opened[pid] = self._open()
        return self._opened[pid]

    @cached_property
    def _opened(self) -> dict[int, tuple[Any, str]]:
        return {}

    def _open(self) -> tuple[Any, str]:
        try:
            fs, root = locate(self.url, self.options)
        except Exception as error:  # a scheme may want a package, options or a server
            raise self._fault("opened", error) from error
        return fs, f"{root.rstrip('/')}/" if root else ""  # the root of an archive has no name

    @property
    def is_local(self) -> bool:
        """Whether files lie on a filesystem of this machine."""
        return "file" in _protocols(self._place[0])

    def path(self, name: str) -> str:
        """Full path of a file as the filesystem (not the user) writes it."""
        return self._place[1] + name

    def publish(self, name: str, data: bytes) -> bool:
        """Create a file if it does not exist yet. Returns whether this call created it."""
        if self._create(name, data):
            return True
        if self.exists(name):
            return False
        self.replace(name, data)  # an empty file was in the way
        return True

    def _create(self, name: str, data: bytes) -> bool:
        with self._writing() as fs:
            if self.is_local:
                return create(Path(self.path(name)), data)
            if len(data) >= _IN_PARTS and self.exists(name):
                return False  # some servers (Ceph 16) forget "create only" where a file comes in parts
            try:
                fs.pipe_file(self.path(name), data, mode="create")
            except Exception as error:
                if isinstance(error, FileExistsError) or _code(error) in _EXISTS_CODES:
                    return False
                if not self._holds(name, data):
                    raise
            return True

    def _holds(self, name: str, data: bytes) -> bool:
        """Whether a write that reported an error has come through: its answer may have been lost."""
        try:
            return self.read(name) == data
        except (FileNotFoundError, InputError):
            return False

    def replace(self, name: str, data: bytes) -> None:
        """Write a file whole, in place of any older one."""
        with self._writing() as fs:
            if self.is_local:
                return replace(Path(self.path(name)), data)
            try:
                fs.pipe_file(self.path(name), data)
            except Exception:
                if not self._holds(name, data):
                    raise

    def read(self, name: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: it was never published.
        """
        with self._reading(name) as fs:
            return bytes(fs.cat_file(self.path(name)))

    def read_many(self, names: Collection[str]) -> dict[str, bytes]:
        """Name → content of those of several files that are there, fetched together where the filesystem can."""
        found: dict[str, bytes] = {}
        with self._reading() as fs:
            if fs.async_impl and names:
                paths = [self.path(name) for name in names]  # not by `cat`, which takes [ and * in them for patterns
                for name, content in zip(names, fs.cat_ranges(paths, None, None, on_error="return"), strict=True):
                    if isinstance(content, bytes):
                        found[name] = content
                    elif not isinstance(content, FileNotFoundError):
                        raise content
                return found
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = self.read(name)
        return found

    def exists(self, name: str) -> bool:
        """Whether a file has been published."""
        try:
            with self._reading(name) as fs:
                return bool(fs.info(self.path(name))["size"])
        except FileNotFoundError:
            return False

    def names(self, folder: str) -> set[str]:
        """File names directly inside a folder; empty where the folder does not exist."""
        return set(self.stamps(folder))

    def stamps(self, folder: str) -> dict[str, str]:
        """:meth:`names`, each with what the listing tells of the file's content: a stamp that other content does not have.

        It is empty where the storage tells neither a checksum nor a time.
        """
        found = {entry["name"].rsplit("/", 1)[-1]: _stamp(entry) for entry in self._list(folder) if _is_whole(entry)}
        return {name: stamp for name, stamp in found.items() if name and not name.startswith(TEMPORARY)}

    def _list(self, folder: str) -> list[dict[str, Any]]:
        try:
            with self._reading(folder) as fs:
                return list(fs.ls(self.path(folder), detail=True))
        except FileNotFoundError:
            return []

    def tree(self, folder: str) -> set[str]:
        """Names of all files at any depth below a folder, relative to the store; empty where it does not exist."""
        if not self._list(folder):  # a walk would pass over a folder that cannot be read
            return set()
        start = _plain(self._place[1])
        try:
            with self._reading(folder) as fs:
                found = fs.find(self.path(folder), detail=True)
        except FileNotFoundError:  # it has just gone
            return set()
        names = {_plain(path).removeprefix(start) for path, entry in found.items() if _is_whole(entry)}
        return {name for name in names if not name.rsplit("/", 1)[-1].startswith(TEMPORARY)}

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly inside a folder, sorted."""
        folders = (entry["name"] for entry in self._list(folder) if entry["type"] == "directory")
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in folders)

    def quarantine(self, name: str) -> None:
        """Move a damaged file aside, to the same name under ``damaged/``: its unit is then missing and made again."""
        try:
            self.replace(f"damaged/{name}", self.read(name))
        except FileNotFoundError:
            return
        self.remove(name)

    def remove(self, name: str) -> None:
        """Delete a file if it is there."""
        with self._writing() as fs, suppress(FileNotFoundError):
            fs.rm_file(self.path(name))

    def check_writable(self) -> None:
        """Write and delete a small file.

        Raises:
            InputError: the place cannot be written to.
        """
        name = f"{TEMPORARY}write-check-{uuid.uuid4().hex}"
        with self._writing():
            absent = absent_parents(Path(self.path(name)).parent) if self.is_local else []
            self.replace(name, b"ok")
            self.remove(name)
            for folder in absent:
                folder.rmdir()

    @contextmanager
    def _reading(self, name: str = "") -> Iterator[Any]:
        """The filesystem, with fresh listings; what it raises becomes one line, but for a file that is not there."""
        try:
            fs, _ = self._place
            fs.invalidate_cache()
            yield fs
        except (InputError, MemoryError):
            raise
        except FileNotFoundError as error:  # those of S3 have no name
            if _code(error) == "NoSuchBucket":
                raise self._fault("read", error) from error
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{name}") from error
        except Exception as error:  # filesystems raise whatever their client raises
            raise self._fault("read", error) from error

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """The filesystem; whatever it raises becomes one line."""
        try:
            yield self._place[0]
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise self._fault("written to", error) from error

    def _fault(self, done: str, error: Exception) -> InputError:
        return InputError("storage", self.url, f"cannot be {done}: {_reason(error)}")


def _full_path(path: str) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except (RuntimeError, OSError) as error:  # ~somebody, who is not known here; a current folder that is gone
        raise InputError("storage", path, _reason(error).rstrip(".").lower()) from error


def _stamp(entry: Mapping[str, Any]) -> str:
    told = next((entry[key] for key in _VERSIONS if entry.get(key)), None)
    own = [entry[key] for key in _OF_LOCAL_FILES if key in entry]  # a copy may have the time of what it replaces
    return "" if told is None else " ".join(map(str, (entry["size"], told, *own)))


def _is_whole(entry: Mapping[str, Any]) -> bool:
    return entry["type"] == "file" and bool(entry["size"])


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _plain(path: str) -> str:
    return path.split("://", 1)[-1].lstrip("/")


def _code(error: Exception) -> str | None:
    """What an object store calls an error."""
    code: str | None = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code")
    return code


def _reason(error: Exception) -> str:
    text = " ".join(redact(str(getattr(error, "strerror", None) or error)).split())
    if text in ("", "None"):
        return _code(error) or type(error).__name__
    text = f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"

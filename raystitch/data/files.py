"""Where the files of a split are, on any fsspec URL: usual names under ``path``, or what ``train``, ``test`` name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from raystitch.config import DataConfig
from raystitch.data.guard import reading_url
from raystitch.data.imageset import Split
from raystitch.errors import InputError, MissingError
from raystitch.remote import locate

SPLIT_NAMES: Mapping[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "validation", "val")}
"""File prefixes and folder names of a split, the first found wins."""
_MAX_FILES = 100_000


def find_files(
    config: DataConfig, split: Split, where: str, options: Mapping[str, Any], suffix: str
) -> tuple[Any, list[str]]:
    """File system and sorted paths of a split's files with a suffix, such as ``.parquet``.

    A URL with a numeric range, ``train-{0000..0031}.tar``, names the files without listing a folder.

    Raises:
        MissingError: there are none; of a range, not the first.
        InputError: the URL cannot be opened.
    """
    field, url, fs, path = _locate(config, split, where, options)
    with reading_url(f"{where}.{field}", url):
        return fs, _find(fs, path, split, suffix, f"{where}.{field}", url)


def _find(fs: Any, path: str, split: Split, suffix: str, field: str, url: str) -> list[str]:
    if field.endswith(".path"):
        files = named_files(fs, path, split, suffix)
        missing = f"no {suffix} files of the {split} split here: expected {split}-*{suffix} or a sub-folder {split}/"
    elif ".." in path and (expanded := _expanded(path, field, url)) != [path]:
        if fs.exists(expanded[0]):
            return expanded
        files, missing = [], f"no such file: {expanded[0]}"
    elif fs.isdir(path):
        files = named_files(fs, path, split, suffix) or files_in(fs, path, suffix)
        missing = f"this folder has no {suffix} files"
    else:
        files = [path] if fs.isfile(path) else sorted(fs.glob(path))
        missing = "no such file"
    if not files:
        raise MissingError(field, url, missing)
    return files


def find_class_root(config: DataConfig, split: Split, where: str, options: Mapping[str, Any]) -> tuple[Any, str, str]:
    """File system, path and config field of the folder that holds a split's class folders.

    Raises:
        MissingError: there is no such folder.
        InputError: the URL cannot be opened.
    """
    field, url, fs, path = _locate(config, split, where, options)
    candidates = [f"{path}/{name}" for name in SPLIT_NAMES[split]] if field == "path" else [path]
    with reading_url(f"{where}.{field}", url):
        for candidate in candidates:
            if fs.isdir(candidate):
                return fs, candidate, f"{where}.{field}"
    problem = f"has no sub-folder {' or '.join(SPLIT_NAMES[split])}" if field == "path" else "no such folder"
    raise MissingError(f"{where}.{field}", url, problem)


def expand_range(path: str) -> list[str]:
    """``a-{08..10}.tar`` → a-08.tar, a-09.tar, a-10.tar; a path without a range as it is.

    Raises:
        ValueError: the range runs backwards or has more than 100,000 numbers.
    """
    match = re.search(r"\{(\d{1,12})\.\.(\d{1,12})\}", path, re.ASCII)
    if match is None:
        return [path]
    first, last = match.groups()
    if int(last) < int(first):
        raise ValueError(f"the range runs backwards; write {{{last}..{first}}}")
    if int(last) - int(first) >= _MAX_FILES:
        raise ValueError(f"the range names {int(last) - int(first) + 1} files; at most {_MAX_FILES} are read")
    numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return [path[: match.start()] + number + path[match.end() :] for number in numbers]


def named_files(fs: Any, folder: str, split: Split, suffix: str) -> list[str]:
    """Files called after the split, or its sub-folder, in ``folder`` or ``folder/data`` (the hub's layout)."""
    for name in SPLIT_NAMES[split]:
        for place in (folder, f"{folder}/data"):
            found = [f for f in files_in(fs, place, suffix) if re.match(rf"{name}(?![a-zA-Z])", posixpath.basename(f))]
            if found := found or files_in(fs, f"{place}/{name}", suffix):
                return found
    return []


def _locate(config: DataConfig, split: Split, where: str, options: Mapping[str, Any]) -> tuple[str, str, Any, str]:
    """Config field that names a split, its URL, file system and path; checks that a ``path`` is a folder."""
    own = config.train if split == "train" else config.test
    field, url = ("path", config.path or "") if own is None else (split, own)
    with reading_url(f"{where}.{field}", url):
        fs, path = locate(url, options)
        if field == "path" and not fs.isdir(path):
            if fs.isfile(path):
                raise InputError(f"{where}.path", url, "is one file; name files by train and test")
            raise MissingError(f"{where}.path", url, "no such folder")
    return field, url, fs, path


def _expanded(path: str, field: str, url: str) -> list[str]:
    try:
        return expand_range(path)
    except ValueError as error:
        raise InputError(field, url, str(error)) from error


def files_in(fs: Any, folder: str, suffix: str) -> list[str]:
    """Files directly inside a folder whose names end so, sorted; none where there is no such folder."""
    if not fs.isdir(folder):
        return []
    return sorted(name for name in fs.ls(folder, detail=False) if name.endswith(suffix))

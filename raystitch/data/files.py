"""Where the files of a split are, on any fsspec URL: usual names under ``path``, or what ``train``, ``test`` name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

import fsspec

from raystitch.config import DataConfig
from raystitch.data.imageset import Split
from raystitch.errors import InputError

SPLIT_NAMES: Mapping[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "validation", "val")}
"""File prefixes and folder names of a split, the first found wins."""


def find_parquet(config: DataConfig, split: Split, where: str, options: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """File system and sorted paths of a split's Parquet files.

    Raises:
        InputError: the URL cannot be opened, or there are none.
    """
    field, url, fs, path = _locate(config, split, where, options)
    if field == "path":
        files = _named_files(fs, path, split)
        missing = f"no Parquet files of the {split} split here: expected {split}-*.parquet or a sub-folder {split}/"
    elif fs.isdir(path):
        files = _named_files(fs, path, split) or _parquet_in(fs, path)
        missing = "this folder has no .parquet files"
    else:
        files = [path] if fs.isfile(path) else sorted(fs.glob(path))
        missing = "no such file"
    if not files:
        raise InputError(f"{where}.{field}", url, missing)
    return fs, files


def find_class_root(config: DataConfig, split: Split, where: str, options: Mapping[str, Any]) -> tuple[Any, str, str]:
    """File system, path and config field of the folder that holds a split's class folders.

    Raises:
        InputError: the URL cannot be opened, or there is no such folder.
    """
    field, url, fs, path = _locate(config, split, where, options)
    candidates = [f"{path}/{name}" for name in SPLIT_NAMES[split]] if field == "path" else [path]
    for candidate in candidates:
        if fs.isdir(candidate):
            return fs, candidate, f"{where}.{field}"
    problem = f"has no sub-folder {' or '.join(SPLIT_NAMES[split])}" if field == "path" else "no such folder"
    raise InputError(f"{where}.{field}", url, problem)


def _locate(config: DataConfig, split: Split, where: str, options: Mapping[str, Any]) -> tuple[str, str, Any, str]:
    """Config field that names a split, its URL, file system and path; checks that a ``path`` is a folder."""
    own = config.train if split == "train" else config.test
    field, url = ("path", config.path or "") if own is None else (split, own)
    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
    except (ValueError, ImportError) as error:
        raise InputError(f"{where}.{field}", url, f"cannot be opened: {error}") from error
    if field == "path" and not fs.isdir(path):
        problem = "is one file; name files by train and test" if fs.isfile(path) else "no such folder"
        raise InputError(f"{where}.path", url, problem)
    return field, url, fs, path


def _named_files(fs: Any, folder: str, split: Split) -> list[str]:
    """Files called after the split, or its sub-folder, in ``folder`` or ``folder/data`` (the hub's layout)."""
    for name in SPLIT_NAMES[split]:
        for place in (folder, f"{folder}/data"):
            found = [f for f in _parquet_in(fs, place) if re.match(rf"{name}(?![a-zA-Z])", posixpath.basename(f))]
            if found := found or _parquet_in(fs, f"{place}/{name}"):
                return found
    return []


def _parquet_in(fs: Any, folder: str) -> list[str]:
    if not fs.isdir(folder):
        return []
    return sorted(name for name in fs.ls(folder, detail=False) if name.endswith(".parquet"))

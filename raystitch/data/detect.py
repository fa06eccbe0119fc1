"""What kind of dataset lies at a path or URL, told by its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raystitch.config import DataConfig
from raystitch.data.cifar import find_cifar
from raystitch.data.files import files_in, named_files
from raystitch.data.guard import reading_url
from raystitch.data.shards import INDEX_NAME
from raystitch.errors import InputError
from raystitch.remote import NO_OPTIONS, locate


def detect(
    url: str, where: str, test: str | None = None, storage_options: Mapping[str, Any] = NO_OPTIONS, **fields: Any
) -> DataConfig:
    """The config of the dataset at ``url``: shards, CIFAR batches, Parquet, or one folder per class.

    Args:
        url: the folder of both splits, or CIFAR's ``.tar.gz``; with ``test`` only the train split's files or folder.
        where: what to call it in errors.
        test: the test split's files or folder.
        storage_options: passed to fsspec.
        fields: further fields of the config.

    Raises:
        InputError: there is nothing at ``url``, or it cannot be read.
    """
    if not url.strip():
        raise InputError(where, url, "give a folder or URL")
    place = {"path": url} if test is None else {"train": url, "test": test}
    with reading_url(where, url):
        kind = _kind(url, where, test is not None, storage_options)
    return DataConfig.model_validate({"source": kind, **place, **fields})


def _kind(url: str, where: str, one_split: bool, options: Mapping[str, Any]) -> str:
    if not one_split and _is_cifar(url, options):
        return "cifar"
    for suffix, kind in ((".parquet", "parquet"), (".tar", "webdataset")):
        if url.endswith(suffix):
            return kind
    try:
        fs, root = locate(url, options)
    except (ValueError, ImportError) as error:
        raise InputError(where, url, f"cannot be opened: {error}") from error
    if not fs.isdir(root):
        raise InputError(where, url, "no such folder")
    if fs.isfile(f"{root.rstrip('/')}/{INDEX_NAME}"):
        return "webdataset"
    for suffix, kind in ((".parquet", "parquet"), (".tar", "webdataset")):
        if named_files(fs, root, "train", suffix) or (one_split and files_in(fs, root, suffix)):
            return kind
    return "folder"


def _is_cifar(url: str, options: Mapping[str, Any]) -> bool:
    if url.endswith((".tar.gz", ".tgz")):
        return True
    try:
        return find_cifar(url, options) is not None
    except (OSError, ValueError, ImportError):
        return False

"""Where a path or URL of the user leads: the one place that opens file systems, for data, weights, configs and results.

Credentials and endpoints are not part of a URL; :mod:`raystitch.access` says where they come from.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import fsspec

from raystitch.access import complete_environment

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_S3 = ("s3://", "s3a://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_NO_BUCKET, _ONE_SLASH = re.compile(r"(s3a?|gs|gcs)://+"), re.compile(r"(s3a?|gs|gcs|az|abfss?|https?):/[^/]")

# Google's client logs tracebacks of what it raises as well; whoever sets up logging still sees them.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())


def what_is_wrong(url: str) -> str:
    """Why a text can be no folder or URL, and what would be right; empty if it may be one."""
    if "\0" in url:
        return "a path cannot hold a null byte"
    if "://" in url and not _SCHEME.match(url):
        return "is neither a folder nor a URL such as s3://bucket/folder"
    if _NO_BUCKET.fullmatch(url):
        return "names no bucket; give a URL such as s3://bucket/folder"
    if _ONE_SLASH.match(url):
        return f"did you mean {url.replace(':/', '://', 1)}?"
    return "" if url.strip() else "give a folder or a URL; . is the current folder"


def locate(url: str, options: Mapping[str, Any] = NO_OPTIONS) -> tuple[Any, str]:
    """File system of a path or URL, and the path as that file system writes it.

    Args:
        url: a local path or an fsspec URL.
        options: keyword arguments for the file system, where the environment is not enough.

    Raises:
        ValueError: an unknown scheme.
        ImportError: the scheme needs a package that is not installed.
    """
    if not url.startswith(_S3):
        fs, path = fsspec.core.url_to_fs(url, **options)
        return fs, str(path)
    from raystitch.s3 import PatientS3FileSystem

    complete_environment()
    fs = PatientS3FileSystem(**{"use_listings_cache": False, **options})
    return fs, str(fs._strip_protocol(url))


def read_url(url: str, options: Mapping[str, Any] = NO_OPTIONS) -> bytes:
    """The content of one file."""
    fs, path = locate(url, options)
    return bytes(fs.cat_file(path))

"""Tar files and npy arrays as plain data: the same entries give the same bytes, and reading runs and unpacks nothing.

Written tars are uncompressed USTAR without times or owners. Readers get bytes, never files on disk, so an entry's name
cannot lead anywhere; arrays are read without pickle.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from raystitch.errors import InputError

_END = 2 * tarfile.BLOCKSIZE  # a whole tar ends in two blocks of zeros


def pack(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar of (name, content) entries in the order given; equal entries give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in entries:
            member = tarfile.TarInfo(name)  # its defaults are mtime 0 and owner 0
            member.size, member.mode = len(content), 0o444
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def unpack(data: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the entries of a tar.

    Args:
        data: an uncompressed tar.
        where: what to call it in errors.

    Raises:
        InputError: not a whole tar, or an entry that is not a plain file.
    """
    for member in members(io.BytesIO(data), where):
        if not member.isreg():
            raise InputError(where, member.name, "is not a plain file")
        yield member.name, data[member.offset_data : member.offset_data + member.size]


def members(stream: IO[bytes], where: str) -> Iterator[tarfile.TarInfo]:
    """Headers of the plain files and folders of an uncompressed tar; contents are skipped.

    Args:
        stream: seekable; a file's content is ``size`` bytes from ``offset_data`` on.
        where: what to call the tar in errors.

    Raises:
        InputError: not a whole tar, or an entry that is a link, a device or a sparse file.
    """
    length = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, length - _END))
    if length % tarfile.BLOCKSIZE or length < _END or stream.read().strip(b"\0"):
        raise InputError(where, None, "is not a whole tar file: the end mark is missing")
    stream.seek(0)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if not (member.isreg() or member.isdir()) or member.issparse():
                    raise InputError(where, member.name, "is not a plain file")
                yield member
    except (tarfile.TarError, EOFError) as error:
        raise InputError(where, None, f"is not a whole tar file: {error}") from error


def npy_bytes(values: npt.NDArray[Any]) -> bytes:
    """An array in the npy format; equal arrays give equal bytes whatever their memory layout."""
    content = io.BytesIO()
    np.save(content, np.ascontiguousarray(values), allow_pickle=False)
    return content.getvalue()


def read_npy(content: bytes, where: str, name: str | None = None) -> npt.NDArray[Any]:
    """The array in ``content``.

    Raises:
        InputError: damaged, or made of Python objects, which are never unpickled.
    """
    try:
        values: npt.NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, SyntaxError, MemoryError) as error:
        raise InputError(where, name, f"is not a plain npy array: {error}") from error
    if not isinstance(values, np.ndarray):
        raise InputError(where, name, "is not a plain npy array but an archive of several")
    return values

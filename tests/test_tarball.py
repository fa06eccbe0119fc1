"""Tars and arrays as data: exact round trips, equal bytes, and nothing that is not plain gets through."""

from __future__ import annotations

import io
import os
import pickle
import tarfile

import numpy as np
import pytest

from raystitch.errors import InputError
from raystitch.tarball import members, npy_bytes, pack, read_npy, unpack

ENTRIES = [("b.txt", b"hello"), ("a.bin", bytes(range(256)) * 5), ("empty", b"")]


def test_entries_come_back_in_order() -> None:
    assert list(unpack(pack(ENTRIES), "x")) == ENTRIES
    assert list(unpack(pack([]), "x")) == []


def test_equal_entries_give_equal_bytes_that_any_tar_reader_reads() -> None:
    data = pack(ENTRIES)
    assert pack(iter(ENTRIES)) == data
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar.getmembers()} == {(0, 0, 0, "", "")}
        assert tar.extractfile("a.bin").read() == ENTRIES[1][1]  # type: ignore[union-attr]


def test_members_say_where_contents_lie() -> None:
    data = pack(ENTRIES)
    found = {m.name: data[m.offset_data : m.offset_data + m.size] for m in members(io.BytesIO(data), "x")}
    assert found == dict(ENTRIES)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_what_is_not_a_plain_file_is_refused(kind: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("entry")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(InputError, match=r"^box = 'entry': is not a plain file$"):
        list(unpack(buffer.getvalue(), "box"))


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 1024, 1536, 5000])
def test_part_of_a_tar_is_refused(cut: int) -> None:
    with pytest.raises(InputError, match=r"^box: is not a whole tar"):
        list(unpack(pack(ENTRIES)[:cut], "box"))


def test_arrays_round_trip_and_objects_are_refused() -> None:
    for values in (
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.zeros((0, 3), np.uint8),
        np.float32(1.5) * np.ones(2),
    ):
        back = read_npy(npy_bytes(values), "x")
        assert back.dtype == values.dtype
        np.testing.assert_array_equal(back, values)
    assert npy_bytes(np.asfortranarray(np.eye(3))) == npy_bytes(np.eye(3))
    buffer = io.BytesIO()
    np.save(buffer, np.array([os.getcwd, None], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    np.savez(archive, np.eye(2))
    for content in (
        buffer.getvalue(),
        pickle.dumps([1]),
        b"",
        b"\x93NUMPY",
        npy_bytes(np.eye(3))[:-1],
        archive.getvalue(),
    ):
        with pytest.raises(InputError, match=r"^x: is not a plain npy array"):
            read_npy(content, "x")

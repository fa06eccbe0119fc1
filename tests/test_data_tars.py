"""Tars of other makers, without an index: read as data, every usual layout; what is not that is refused in one line."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from raystitch.config import DataConfig
from raystitch.data import fingerprint, load_images, num_classes
from raystitch.data.files import expand_range
from raystitch.errors import InputError

WHERE = "data.mine"


def png(value: int, side: int = 4) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def npy(values: object, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(values), allow_pickle=allow_pickle)
    return stream.getvalue()


def write_tar(path: Path, entries: dict[str, bytes | tarfile.TarInfo]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in entries.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


FOLDER = tarfile.TarInfo("a")
FOLDER.type = tarfile.DIRTYPE
GREY = np.full((4, 4), 30, np.uint8)


@pytest.mark.parametrize(
    "entries",
    [
        {"0.png": png(10), "0.cls": b"1", "1.png": png(20), "1.cls": b"0\n"},
        {
            "a": FOLDER,
            "a/x.0.PNG": png(10),
            "a/x.cls": b"1",
            "b/x.img.png": png(20),
            "b/x.json": b'{"label": 0, "k": [1]}',
        },
        {"0.npy": npy([[[10] * 3] * 4] * 4), "0.label": b"1", "1.image.npy": npy([[[20] * 4] * 4] * 3), "1.txt": b"0"},
        {"0.images.npy": npy([[[[10] * 4] * 4] * 3, [[[20] * 4] * 4] * 3]), "0.labels.npy": npy([1, 0])},
        {"0.npy": npy([[10] * 4] * 4), "0.cls.npy": npy(1), "1.jpg": png(20), "1.cls": b"0", "1.json": b'{"label": 5}'},
    ],
)
def test_usual_samples(tmp_path: Path, entries: dict[str, bytes | tarfile.TarInfo]) -> None:
    as_bytes = {
        name: npy(np.load(io.BytesIO(value)).astype(np.uint8)) if b"NUMPY" in value[:8] and "ls" not in name else value
        for name, value in entries.items()
        if isinstance(value, bytes)
    }
    write_tar(tmp_path / "train-00.tar", {**entries, **as_bytes})
    write_tar(tmp_path / "val" / "any.tar", {"k.png": png(7), "k.cls": b"2"})
    config = DataConfig(source="webdataset", path=str(tmp_path))
    data = load_images(config, "train", WHERE)
    assert data.images[:, :, 1, 2].tolist() == [[10] * 3, [20] * 3]
    assert data.labels.tolist() == [1, 0]
    assert (data.num_classes, load_images(config, "test", WHERE).labels.tolist()) == (3, [2])


def test_ranges_globs_and_memory_urls(tmp_path: Path) -> None:
    assert expand_range("a-{08..10}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert expand_range("a-{x}.tar") == ["a-{x}.tar"]
    for k in range(3):
        write_tar(tmp_path / f"part-{k}.tar", {"0.png": png(k), "0.cls": str(k).encode()})
    fsspec.filesystem("memory").put(str(tmp_path), f"/{tmp_path.name}", recursive=True)
    for base in (f"{tmp_path}", f"memory://{tmp_path.name}"):
        for train in ("part-{0..2}.tar", "part-*.tar"):
            config = DataConfig(source="webdataset", train=f"{base}/{train}", test=f"{base}/part-1.tar")
            assert load_images(config, "train", WHERE).images[:, 0, 0, 0].tolist() == [0, 1, 2]
            assert load_images(config, "test", WHERE).labels.tolist() == [1]
    config = DataConfig(source="webdataset", train=f"{tmp_path}/part-{{2..3}}.tar", test=f"{tmp_path}/part-1.tar")
    with pytest.raises(InputError, match=r"part-3\.tar: no such shard$"):
        num_classes(config, WHERE)


def test_the_fingerprint_follows_the_entries(tmp_path: Path) -> None:
    def of(entries: dict[str, bytes | tarfile.TarInfo]) -> str:
        write_tar(tmp_path / "train.tar", entries)
        write_tar(tmp_path / "test.tar", {"0.png": png(0), "0.cls": b"3"})
        return fingerprint(DataConfig(source="webdataset", path=str(tmp_path)), "train", WHERE)

    base = {"0.png": png(0), "0.cls": b"1"}
    assert of(base) == of({"0.cls": b"1", "0.png": png(0)})
    assert len({of(base), of({**base, "0.cls": b"2"}), of({**base, "1.png": png(1), "1.cls": b"1"})}) == 3


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


class _Harmful:
    def __reduce__(self) -> object:
        return pytest.fail, ("a pickle was loaded",)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"../0.png": png(0), "../0.cls": b"0"}, "leads out of the tar"),
        ({"/0.png": png(0), "/0.cls": b"0"}, "leads out of the tar"),
        ({"0.png": link("0.png", tarfile.SYMTYPE), "0.cls": b"0"}, "is not a plain file"),
        ({"0.png": link("0.png", tarfile.LNKTYPE), "0.cls": b"0"}, "is not a plain file"),
        ({"0.png": png(0)}, "the sample has 0 label entries, not one: png"),
        ({"0.cls": b"0"}, "the sample has 0 image entries, not one: cls"),
        ({"0.pth": b"", "0.pkl": pickle.dumps(_Harmful()), "0.cls": b"0"}, "0 image entries, not one: pth, pkl, cls"),
        ({"0.png": png(0), "0.npy": npy(GREY), "0.cls": b"0"}, "2 image entries"),
        ({"0.png": png(0), "0.cls": b"cat"}, "no label: expected a number"),
        ({"0.png": png(0), "0.cls": b"-1"}, "expected whole numbers from 0 on"),
        ({"0.png": png(0), "0.cls": b"1.5"}, "expected whole numbers from 0 on"),
        ({"0.png": png(0), "0.json": b"[1]"}, "no label: expected a number"),
        ({"0.npy": npy([_Harmful(), None], allow_pickle=True), "0.cls": b"0"}, "not a plain npy array"),
        ({"0.png": png(0), "0.cls.npy": npy([_Harmful(), None], allow_pickle=True)}, "not a plain npy array"),
        ({"0.npy": npy(np.zeros((3, 4, 4), np.float32)), "0.cls": b"0"}, "has dtype float32"),
        ({"0.npy": npy(np.zeros((2, 4, 4), np.uint8)), "0.cls": b"0"}, r"shape \(2, 4, 4\)"),
        ({"0.images.npy": npy(np.zeros((2, 3, 4, 4), np.uint8)), "0.labels.npy": npy([1])}, "2 images but 1 labels"),
        ({"0.jpg": b"no picture", "0.cls": b"0"}, "is not a readable image"),
        ({"0.png": png(0), "0.cls": b"0", "1.png": png(0, 5), "1.cls": b"0"}, r"^data\.mine\.size: .* 5×5"),
    ],
)
def test_tars_that_are_refused(tmp_path: Path, entries: dict[str, bytes | tarfile.TarInfo], message: str) -> None:
    write_tar(tmp_path / "train.tar", entries)
    write_tar(tmp_path / "test.tar", {"0.png": png(0), "0.cls": b"0"})
    with pytest.raises(InputError, match=message) as caught:
        load_images(DataConfig(source="webdataset", path=str(tmp_path)), "train", WHERE)
    assert "\n" not in str(caught.value)


def test_part_of_a_tar_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "train.tar", {"0.png": png(0), "0.cls": b"0"})
    write_tar(tmp_path / "test.tar", {"0.png": png(0), "0.cls": b"0"})
    whole = (tmp_path / "train.tar").read_bytes()
    for content in (whole[:1000], whole[:1024], b"", b"text"):
        (tmp_path / "train.tar").write_bytes(content)
        with pytest.raises(InputError, match=r"train\.tar: is not a whole tar file"):
            num_classes(DataConfig(source="webdataset", path=str(tmp_path)), WHERE)

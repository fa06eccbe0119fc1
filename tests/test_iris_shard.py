"""Shards of an IRI set: reproducible bytes, lossless round trip, honest residuals, and a reader that trusts nothing."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from torch import Tensor, nn

from raystitch.config import IriConfig
from raystitch.errors import InputError
from raystitch.iris import Inverter, Shard, decode_shard, encode_shard, make_shards, residual, set_index

NAMES = [field.name for field in fields(Shard)]


def _rows(count: int = 6, size: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    return images, torch.randint(10, (count,), generator=generator)


def _prefix() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
    return net.eval().requires_grad_(False)


def _any_shard(count: int, dtype: str = "uint8", first: int = 0) -> Shard:
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, 3, 4, 4)).astype(np.uint8)
    if dtype == "float32":
        images = rng.random((count, 3, 4, 4), dtype=np.float32)
    r = rng.random((2, count), dtype=np.float32)
    return Shard(images, rng.integers(0, 10, count), np.arange(first, first + count), r[0], r[1])


def _assert_equal(a: Shard, b: Shard) -> None:
    for name in NAMES:
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype, name
        np.testing.assert_array_equal(x, y, err_msg=name)


def test_a_shard_made_twice_has_the_same_bytes() -> None:
    images, labels = _rows()
    shards = [
        make_shards(Inverter(_prefix(), IriConfig(steps=10, batch=4)), images, labels, 40)[None] for _ in range(2)
    ]
    assert encode_shard(shards[0]) == encode_shard(shards[1])
    assert shards[0].index.tolist() == [40, 41, 42, 43, 44, 45]
    assert shards[0].labels.tolist() == labels.tolist()


def test_a_sample_depends_on_its_row_and_the_set_seed_not_on_its_shard() -> None:
    images, labels = _rows()
    config = IriConfig(steps=10, dtype="float32")
    whole = make_shards(Inverter(_prefix(), config), images, labels, 0)[None]
    tail = make_shards(Inverter(_prefix(), config), images[4:], labels[4:], 4)[None]
    np.testing.assert_allclose(tail.images, whole.images[4:], atol=1e-3)
    np.testing.assert_allclose(tail.residual, whole.residual[4:], rtol=1e-3)
    other = make_shards(Inverter(_prefix(), config.model_copy(update={"seed": 1})), images, labels, 0)[None]
    assert np.abs(other.images - whole.images).mean() > 0.05


def test_the_residual_is_that_of_the_rounded_images() -> None:
    images, labels = _rows()
    shard = make_shards(Inverter(_prefix(), IriConfig(steps=60, batch=4)), images, labels, 0)[None]
    target = _prefix()(images.float() / 255)
    again = residual(_prefix(), torch.from_numpy(shard.images).float() / 255, target)
    np.testing.assert_allclose(shard.residual, again.numpy(), rtol=1e-4)
    assert (shard.residual != shard.residual_float).all()
    exact = make_shards(Inverter(_prefix(), IriConfig(steps=60, batch=4, dtype="float32")), images, labels, 0)[None]
    assert exact.images.dtype == np.float32
    np.testing.assert_array_equal(exact.residual, exact.residual_float)
    np.testing.assert_array_equal(exact.residual_float, shard.residual_float)
    np.testing.assert_array_equal(np.rint(exact.images * np.float32(255)), shard.images)


def test_pixels_are_rounded_not_truncated() -> None:
    # The identity is inverted to within half a grey level, so rounding gives the very image; truncation would not.
    images, labels = _rows()
    shard = make_shards(Inverter(nn.Identity(), IriConfig(steps=400)), images, labels, 0)[None]
    assert (shard.residual_float > 0).all()
    np.testing.assert_array_equal(shard.images, images.numpy())
    assert shard.residual.tolist() == [0] * 6


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_round_trip_is_lossless(count: int, dtype: str) -> None:
    shard = _any_shard(count, dtype, first=7)
    data = encode_shard(shard)
    _assert_equal(decode_shard(data), shard)
    assert encode_shard(decode_shard(data)) == data


def test_equal_shards_give_equal_bytes_whatever_the_memory_layout() -> None:
    shard = _any_shard(3)
    turned = np.asfortranarray(shard.images)
    assert encode_shard(Shard(turned, *(getattr(shard, name) for name in NAMES[1:]))) == encode_shard(shard)


def test_webdataset_reads_a_shard(tmp_path: Path) -> None:
    shard = _any_shard(600, first=1024)
    (tmp_path / "shard.tar").write_bytes(encode_shard(shard))
    samples = list(webdataset.WebDataset(str(tmp_path / "shard.tar"), shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == ["000000001024", "000000001280", "000000001536"]
    assert [len(sample["images.npy"]) for sample in samples] == [256, 256, 88]
    np.testing.assert_array_equal(np.concatenate([sample["images.npy"] for sample in samples]), shard.images)
    np.testing.assert_array_equal(np.concatenate([sample["residual.npy"] for sample in samples]), shard.residual)


def test_entries_carry_nothing_that_varies_and_keys_have_no_dots() -> None:
    with tarfile.open(fileobj=io.BytesIO(encode_shard(_any_shard(300)))) as tar:
        members = tar.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert [m.name for m in members] == [
        f"{key}.{name}.npy" for key in ("000000000000", "000000000256") for name in NAMES
    ]


def _npy(values: Any, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=allow_pickle)
    return buffer.getvalue()


def _tar(changes: dict[str, bytes | tarfile.TarInfo | None]) -> bytes:
    """A good shard of two images with some entries changed, added or (None) left out."""
    shard = _any_shard(2)
    entries: dict[str, Any] = {f"000000000000.{name}.npy": _npy(getattr(shard, name)) for name in NAMES} | changes
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in entries.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
            elif content is not None:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


class _Harmful:
    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was loaded",)


LABELS = "000000000000.labels.npy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"../000000000000.labels.npy": _npy(np.zeros(2, np.int64))}, "is not the name of an entry"),
        ({"/tmp/000000000000.labels.npy": _npy(np.zeros(2, np.int64))}, "is not the name of an entry"),
        ({"000000000000.labels.pth": b""}, "is not the name of an entry"),
        ({"a": _link(LABELS, tarfile.SYMTYPE)}, "is not a plain file"),
        ({"a": _link(LABELS, tarfile.LNKTYPE)}, "is not a plain file"),
        ({"a": _link("folder", tarfile.DIRTYPE)}, "is not a plain file"),
        ({LABELS: _npy(np.array([_Harmful(), None], dtype=object), allow_pickle=True)}, "is not a plain npy array"),
        ({LABELS: b"\x93NUMPY"}, "is not a plain npy array"),
        ({LABELS: _npy(np.zeros(2, np.int64))[:-3]}, "is not a plain npy array"),
        ({LABELS: _npy(np.zeros(2, np.float32))}, "has dtype float32"),
        ({LABELS: _npy(np.zeros((2, 1), np.int64))}, r"shape \(2, 1\)"),
        ({LABELS: _npy(np.zeros(3, np.int64))}, "arrays of different lengths"),
        ({LABELS: None}, "lacks labels"),
        ({"b": tarfile.TarInfo(LABELS)}, "is there twice"),
        ({f"000000000000.{name}.npy": None for name in NAMES}, "holds no IRIs"),
    ],
)
def test_a_tar_that_no_one_here_wrote_is_refused(changes: dict[str, Any], message: str) -> None:
    decode_shard(_tar({}))
    with pytest.raises(InputError, match=message):
        decode_shard(_tar(changes))


def test_part_of_a_shard_is_refused() -> None:
    data = encode_shard(_any_shard(600))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        second_sample = tar.getmembers()[len(NAMES)].offset
    for size in (0, 100, 512, second_sample, len(data) // 2, len(data) // 2 // 512 * 512):
        with pytest.raises(InputError, match="IRI shard"):
            decode_shard(data[:size])
    with pytest.raises(InputError, match="not a whole tar"):
        decode_shard(b"not a tar at all")


def _with_residual(first: int, r: list[float], before: list[float]) -> tuple[str, bytes, Shard]:
    shard = _any_shard(len(r), first=first)
    shard = Shard(shard.images, shard.labels, shard.index, np.float32(r), np.float32(before))
    return f"{first:06d}.tar", encode_shard(shard), shard


def test_index_by_hand() -> None:
    shards = [_with_residual(0, [0.5, 0.25, 1.0], [0.0, 0.0, 1.0]), _with_residual(3, [0.75, 0.0], [0.0, 0.5])]
    index = set_index(reversed(shards))  # in whatever order they became ready
    assert index == set_index(shards) == json.loads(json.dumps(index))
    assert (index["count"], index["shape"], index["dtype"]) == (5, [3, 4, 4], "uint8")
    # sorted: 0, .25, .5, .75, 1 → the 90th percentile lies at position 3.6
    assert index["residual"] == pytest.approx({"median": 0.5, "p90": 0.9, "mean": 0.5, "max": 1.0})
    assert index["residual_float"] == pytest.approx({"median": 0.0, "p90": 0.8, "mean": 0.3, "max": 1.0})
    first, second = index["shards"]
    assert first == {
        "name": "000000.tar",
        "count": 3,
        "first_index": 0,
        "last_index": 2,
        "bytes": len(shards[0][1]),
        "sha256": sha256(shards[0][1]).hexdigest(),
    }
    assert (second["name"], second["count"], second["first_index"], second["last_index"]) == ("000003.tar", 2, 3, 4)


def test_an_index_refuses_repeats_mixtures_and_nothing() -> None:
    shard = _with_residual(0, [0.5, 0.25], [0.0, 0.0])
    with pytest.raises(ValueError, match="in two places"):
        set_index([shard, _with_residual(1, [0.5], [0.5])])
    with pytest.raises(ValueError, match="differ in image shape or dtype"):
        set_index([shard, ("x", b"", _any_shard(2, "float32", first=2))])
    with pytest.raises(ValueError, match="at least one shard"):
        set_index([])

"""Kept predictions: what they round, what damage becomes, and that they are data and never code."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

import raystitch
from raystitch.errors import InputError
from raystitch.predictions import Predictions, decode_predictions, encode_predictions
from raystitch.store import Store

LABELS = np.array([0, 2, 1])
H = np.array([[5.0, 1.0, -300.0], [1e6, 0.0, 1e6], [7.0, 7.0 + 2e-7, 7.0]], dtype=np.float64)


def test_logits_come_back_less_their_largest_within_float16() -> None:
    front = np.array([[1.0, 2.0]] * 3, dtype=np.float32)
    data = encode_predictions({"test": Predictions(LABELS, H), "apgd_ce_dlr": Predictions(LABELS, H, H + 3, front)})
    found = decode_predictions(data, "test")
    assert found.labels.tolist() == [0, 2, 1]
    assert (found.labels.dtype, found.h.dtype) == (np.int64, np.float32)
    np.testing.assert_allclose(found.h[0], [0, -4, -305], rtol=2**-11)
    assert found.h[1].tolist() == [0, -65504, 0], "what float16 cannot hold is as low as it gets"
    assert found.h[2].argmax() == 1, "the prediction is kept where two logits nearly tie"
    assert found.end is None
    assert found.front is None
    attacked = decode_predictions(data, "apgd_ce_dlr")
    np.testing.assert_array_equal(attacked.end, attacked.h)
    np.testing.assert_array_equal(attacked.front, [[-1, 0]] * 3)


def test_equal_predictions_are_equal_bytes() -> None:
    assert encode_predictions({"test": Predictions(LABELS, H)}) == encode_predictions({"test": Predictions(LABELS, H)})


def test_load_by_unit_and_set(tmp_path: Path) -> None:
    Store(str(tmp_path)).publish("predictions/u1.npz", encode_predictions({"test": Predictions(LABELS, H)}))
    assert raystitch.load_predictions(str(tmp_path), "u1").h.shape == (3, 3)
    with pytest.raises(InputError, match="unit = 'u2': has no predictions in"):
        raystitch.load_predictions(str(tmp_path), "u2")
    with pytest.raises(
        InputError, match=r"eval_set = 'tset': .*u1\.npz has no such evaluation set; did you mean 'test'"
    ):
        raystitch.load_predictions(str(tmp_path), "u1", "tset")


def whole() -> bytes:
    return encode_predictions({"test": Predictions(LABELS, H)})


def pickled() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **{"test.labels": LABELS, "test.h": np.array([{}], dtype=object)})
    return stream.getvalue()


def other_zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("test.h.npy", b"not an array")
        archive.writestr("test.labels", b"nor this")
    return stream.getvalue()


def lone() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **{"test.h": H})
    return stream.getvalue()


@pytest.mark.parametrize(
    "data", [b"x", whole()[:40], whole()[:-30], whole()[:60] + b"\0" * 40 + whole()[100:], pickled(), other_zip(), lone()]
)  # fmt: skip
def test_damage_is_one_line(tmp_path: Path, data: bytes) -> None:
    Store(str(tmp_path)).publish("predictions/u1.npz", data)
    with pytest.raises(InputError, match=r"predictions/u1\.npz: is damaged; remove it and run the sweep again"):
        raystitch.load_predictions(str(tmp_path), "u1")

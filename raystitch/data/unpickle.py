"""CIFAR's pickled batches without running what a pickle may run: plain containers and arrays of numbers, nothing else.

Even numpy's own way to rebuild an array is not trusted: stand-ins take what it would get and copy the numbers out of it.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from raystitch.errors import InputError


def read_plain_pickle(data: bytes, where: str) -> dict[str, Any]:
    """The dict in a pickle of dicts, lists, strings, bytes, numbers and arrays of numbers.

    Keys and the strings of old pickles may be bytes; keys come back as text.

    Raises:
        InputError: the pickle names anything else, a function say, holds no dict, or is damaged.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise InputError(where, None, f"is not a pickle of plain data: {error}") from error
    if not isinstance(found, dict):
        raise InputError(where, None, "is not a pickle of a dict")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): getattr(value, "numbers", value)
        for key, value in found.items()
    }


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every global but those that an array of numbers needs; nothing is imported."""

    def find_class(self, module: str, name: str) -> Any:
        """Our own stand-in for one of the permitted names."""
        if (module, name) not in _PERMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not permitted")
        return _PERMITTED[module, name]


class _Dtype:
    """Stands for a numpy dtype: made from its code, told its byte order afterwards."""

    def __init__(self, code: bytes | str, *flags: object) -> None:
        self.found = np.dtype(code.decode("ascii") if isinstance(code, bytes) else code)
        if self.found.kind not in "biuf":
            raise pickle.UnpicklingError(f"an array of dtype {self.found} is not one of numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order: Any = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        self.found = self.found.newbyteorder(order)


class _Array:
    """Stands for a numpy array: made empty, told its shape, dtype, order and bytes afterwards."""

    def __init__(self, *ignored: object) -> None:
        self.numbers = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, column_major, content = state
        values = np.frombuffer(bytes(content), dtype=dtype.found)
        self.numbers = values.reshape(shape, order="F" if column_major else "C")


def _encode(text: str, encoding: bytes | str) -> bytes:
    """How newer Pythons write bytes in old pickles."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"text in encoding {encoding!r} is not permitted")
    return text.encode("latin1")


_PERMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}

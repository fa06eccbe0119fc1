"""Encoded pictures to one uint8 tensor: RGB, all of one side, every failure named by its file or row."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from raystitch.errors import InputError

Picture = tuple[str, Image.Image | NDArray[np.uint8]]
"""A name to use in errors (file, or file and row) and the image: opened, perhaps not yet decoded; or uint8 (3, H, W)."""

_MOST_TOGETHER = 256
_BYTES_TOGETHER = 32 << 20
_MAX_RATIO = 100  # of the sides of an image that is to be resized


def open_picture(data: bytes, name: str) -> Picture:
    """Read the header of an encoded image; pixels are decoded later.

    Raises:
        InputError: the bytes are not an image that Pillow knows.
    """
    try:
        return name, Image.open(io.BytesIO(data))
    except Exception as error:  # Pillow raises nearly anything on bad bytes
        raise _unreadable(name, error) from error


def square_side(picture: Picture, where: str) -> int:
    """The side of a square image in pixels.

    Raises:
        InputError: the image is not square.
    """
    name, image = picture
    width, height = _extent(image)
    if width != height:
        problem = f"{name} is {width}×{height}, not square; set size to resize and crop all images"
        raise InputError(f"{where}.size", None, problem)
    return width


def decode_pictures(
    pictures: Iterable[Picture], count: int, size: int | None, where: str, greyscale: bool = False
) -> Tensor:
    """Decode ``count`` ≥ 1 pictures to uint8 (count, 3, S, S), on as many threads as torch uses.

    S is ``size``: the shorter side is resized to it (bilinear, antialiased) and the centre is cropped. Without ``size``
    S is the side of the first picture, and all must have it. ``greyscale`` makes the three channels equal: the luma of
    ITU-R 601.

    Raises:
        InputError: a picture is undecodable or deeper than 8 bits, or, without ``size``, not of the common square size.
    """
    stream = decoded(pictures, size, where, greyscale)
    first = next(stream)
    images = torch.empty(count, *first.shape, dtype=torch.uint8)
    for row, array in enumerate(chain([first], stream)):
        images[row] = torch.from_numpy(array)
    return images


def check_pictures(pictures: Iterable[Picture], size: int | None, where: str, greyscale: bool = False) -> None:
    """Decode pictures, at least one, as :func:`decode_pictures` does, and keep none.

    Raises:
        InputError: for the first that :func:`decode_pictures` refuses.
    """
    for _ in decoded(pictures, size, where, greyscale):
        pass


def decoded(pictures: Iterable[Picture], size: int | None, where: str, greyscale: bool) -> Iterator[NDArray[np.uint8]]:
    """The pixels uint8 (3, S, S) of each picture, at least one, in order, as :func:`decode_pictures` gives them.

    Few are in memory at once: at most 256, and of large ones fewer.

    Raises:
        InputError: for the first picture that is at fault.
    """
    stream = iter(pictures)
    first = next(stream)
    side = size if size is not None else square_side(first, where)

    def pixels(picture: Picture) -> NDArray[np.uint8]:
        return _to_pixels(picture, side, size is not None, where, greyscale)

    yield pixels(first)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for chunk in _chunks(stream, _together(side)):
            yield from (map if isinstance(chunk[0][1], np.ndarray) else pool.map)(pixels, chunk)  # arrays are cheap


def _together(side: int) -> int:
    """How many pictures are decoded at once."""
    return min(_MOST_TOGETHER, max(torch.get_num_threads(), _BYTES_TOGETHER // (3 * side**2)))


def _to_pixels(picture: Picture, side: int, resize: bool, where: str, greyscale: bool) -> NDArray[np.uint8]:
    name, image = picture
    if not resize and _extent(image) != (side, side):
        width, height = _extent(image)
        problem = f"{name} is {width}×{height} but the first image is {side}×{side}; set size to resize all"
        raise InputError(f"{where}.size", None, problem)
    if isinstance(image, np.ndarray):
        if _extent(image) == (side, side) and not greyscale:
            return image
        image = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
    if _is_deep(image):
        raise InputError(
            name, None, f"has more than 8 bits per channel (Pillow mode {image.mode}); convert it to 8 bits"
        )
    if max(image.size) > _MAX_RATIO * min(image.size):
        raise InputError(name, None, f"is {image.width}×{image.height}, more than {_MAX_RATIO} times as long as wide")
    try:
        rgb = _fit(image.convert("RGB"), side)
        rgb = rgb.convert("L").convert("RGB") if greyscale else rgb
        image.close()  # its pixels at full size are in memory now
    except Exception as error:  # Pillow raises nearly anything on bad bytes
        raise _unreadable(name, error) from error
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def _is_deep(image: Image.Image) -> bool:
    """Modes of 16 and 32 bits, and files of 16 bits per channel that Pillow would cut to 8."""
    tiles = str(getattr(image, "tile", ""))
    return image.mode.startswith(("I", "F")) or any(raw in tiles for raw in (";16B", ";16L", ";16N"))


def _fit(image: Image.Image, side: int) -> Image.Image:
    """Shorter side to ``side`` (Pillow's bilinear filter antialiases when it shrinks), then the centre square."""
    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _extent(image: Image.Image | NDArray[np.uint8]) -> tuple[int, int]:
    """Width and height in pixels."""
    return (image.shape[2], image.shape[1]) if isinstance(image, np.ndarray) else image.size


def _chunks(stream: Iterator[Picture], size: int) -> Iterator[list[Picture]]:
    """Lists of at most ``size``, so that only these many encoded images wait in memory."""
    failure: InputError | None = None
    while failure is None:
        chunk: list[Picture] = []
        try:
            chunk.extend(islice(stream, size))
        except InputError as error:
            failure = error  # raised after those before it, which may be at fault too
        if not chunk:
            break
        yield chunk
    if failure is not None:
        raise failure


def _unreadable(name: str, error: Exception) -> InputError:
    reason = "unknown image format" if isinstance(error, UnidentifiedImageError) else str(error)
    return InputError(name, None, f"is not a readable image ({reason})")

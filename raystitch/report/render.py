"""Figures and images as bytes and markup, the same bytes for the same content."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from raystitch.report.look import CSS_COLOURS

LARGEST_SIDE = 20_000
"""Of a figure in pixels: matplotlib draws no more than 65,535, and a study may have any number of settings."""


def to_svg(figure: Figure) -> bytes:
    """A stand-alone SVG file, without a date. The layout found here is kept for later."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")
    return stream.getvalue()


def to_png(figure: Figure) -> bytes:
    """A PNG file at 200 dots per inch, or fewer where a side would have more than 20,000."""
    stream = io.BytesIO()
    dpi = min(200.0, LARGEST_SIDE / max(figure.get_size_inches()))
    figure.savefig(stream, format="png", dpi=dpi, metadata={"Software": None})
    return stream.getvalue()


def inline_svg(svg: bytes, prefix: str, label: str) -> Markup:
    """An SVG for the inside of a page: every id starts with ``prefix``, and colours and font are the page's own."""
    text = svg.decode("utf-8")
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]+>", lambda tag: _inline_tag(tag[0], prefix), body)
    box = re.search(r'viewBox="[^"]+"', text)
    width = re.search(r'width="([0-9.]+pt)"', text)
    style = f"--width: {width[1] if width else '600pt'}; stroke-linejoin: round"
    start = f'<svg role="img" aria-label="{escape(label)}" {box[0] if box else ""} style="{style}">'
    return Markup(start + body.strip())  # matplotlib has escaped every text of the figure


def _inline_tag(tag: str, prefix: str) -> str:
    tag = re.sub(r' id="', f' id="{prefix}-', tag)
    tag = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}-", tag)
    for colour, variable in CSS_COLOURS.items():
        tag = tag.replace(colour, variable)
    return re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", tag)


def image_uri(pixels: NDArray[Any]) -> str:
    """A ``data:`` URI of an image, uint8 (H, W, 3), as lossless PNG."""
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(stream, format="PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")

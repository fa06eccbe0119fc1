"""What a report must be told beside the results table: plain, frozen records, filled by whoever knows the storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class IriLevel:
    """A residual at which an inversion left images as well: how many came to it, and their median r as stored.

    Images that did not come to it are in the set of the level as good as they got, so the median is one of them too.
    """

    level: float
    reached: int
    r_median: float


@dataclass(frozen=True)
class IriFacts:
    """One IRI set and its residuals r (relative, METHOD §2; unitless, 0 = identical).

    ``r_median``, ``r_p90`` and ``r_max`` are those of the images as stored, after rounding to 8 bit where that is how
    they are stored: the ones to quote. The ``_float`` values were measured before rounding. ``dtype`` is that of the images
    as stored; ``id`` names the set in the storage.
    """

    front: str
    dataset: str
    point: int
    module: str
    count: int
    r_median: float
    r_p90: float
    r_max: float
    r_median_float: float
    optimiser: str
    steps: int
    r_p90_float: float | None = None
    r_max_float: float | None = None
    dtype: str = ""
    levels: Sequence[IriLevel] = ()
    id: str = ""


@dataclass(frozen=True, eq=False)
class GalleryEntry:
    """A few images beside their IRIs: uint8 (k, H, W, 3) each, and the residual of each IRI as stored, (k,).

    ``made`` says how, where sets of one front, dataset and point must be told apart.
    """

    front: str
    dataset: str
    point: int
    images: NDArray[Any]
    iris: NDArray[Any]
    residual: NDArray[Any]
    made: IriFacts | None = None


@dataclass(frozen=True)
class StudyFacts:
    """The study a report is about.

    ``protocol`` is a text for readers. ``settings`` and ``objectives`` give the order in which they are shown; those
    found only in the results follow. ``failures`` are one mapping per failed unit, shown key by key. ``fits_total`` is
    how many fits are planned, where known; ``storage`` is the URI quoted in the loading example. ``published`` names the
    study of the paper that the curves are shown beside (information, shortcuts, robustness); ``notes`` is text for readers,
    blank lines part its paragraphs.
    """

    name: str
    title: str = ""
    created: str = ""
    version: str = ""
    protocol: str = ""
    settings: Sequence[str] = ()
    objectives: Sequence[str] = ()
    iri_sets: Sequence[IriFacts] = ()
    failures: Sequence[Mapping[str, Any]] = ()
    gallery: Sequence[GalleryEntry] = field(default=())
    fits_total: int | None = None
    storage: str = "./runs"
    published: str | None = None
    notes: str = ""

"""What a benchmark gives: headline figures, each with its target where there is one, and tables point by point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.report import short
from benchmarks.turns import Samples, Summary, summary

Cell = str | int | float | None


@dataclass(frozen=True)
class Target:
    """What a figure is to reach: ``at least`` or ``at most`` ``bound``."""

    sense: Literal["at least", "at most"]
    bound: float

    def met_by(self, value: float | None) -> bool:
        """Whether a value reaches it; none does not."""
        return value is not None and (value >= self.bound if self.sense == "at least" else value <= self.bound)


@dataclass(frozen=True)
class Figure:
    """One number of the report.

    Attributes:
        name: what it is.
        unit: ``×`` for a ratio: baseline over raystitch, so that more is better, unless the name says otherwise.
        value: the median of the rounds; None where it was not reached.
        low, high: quartiles of the rounds, or the range that ``name`` speaks of; None where there is one value.
        target: None where there is none.
    """

    name: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    target: Target | None = None

    @property
    def verdict(self) -> str:
        """``met``, ``not met``, or nothing without a target."""
        if self.target is None:
            return ""
        return "met" if self.target.met_by(self.value) else "not met"


@dataclass(frozen=True)
class Table:
    """Values point by point, in the units that the title or the columns say."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Outcome:
    """All that a benchmark found.

    Attributes:
        figures: the headlines.
        tables: the values behind them.
        notes: what a reader must know of how they came about, one sentence each.
        facts: sizes and settings, as plain values.
    """

    figures: Sequence[Figure]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def figure(name: str, unit: str, samples: Samples, target: Target | None = None) -> Figure:
    """A figure from one value per round: median and quartiles."""
    return Figure(name, unit, *summary(samples), target)


def cell(values: Summary, scale: float = 1.0) -> str:
    """Median and quartiles as a table shows them."""
    median, low, high = (short(value * scale) for value in values)
    return f"{median} ({low}–{high})"

"""One display for a whole sweep: live bars on a terminal, plain lines elsewhere.

Shows, per kind of work, units done, running and failed, and an estimate of the time left once every kind that remains has
been seen to finish at least once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated

from pydantic import AfterValidator, Field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

FIRST_LINE_S, LONGEST_SILENCE_S = 15.0, 300.0
"""Plain lines come after 15 s, then at ever longer intervals (a tenth of the time elapsed), at least every 5 minutes."""
RATE_S = 600.0
"""Rates are those of the last ten minutes."""


def plain(text: str) -> str:
    """A text whose control characters, which a terminal would obey, are question marks; line breaks and tabs stay."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


Text = Annotated[str, AfterValidator(lambda text: plain(" ".join(text.split())))]
"""One line."""
Count = Annotated[int, Field(ge=0, le=10**12)]
Amount = Annotated[float, Field(ge=0, le=10**9)]  # neither NaN nor infinite


@dataclass(frozen=True)
class KindState:
    """How far one kind of work is; ``per_minute`` counts units done, and is 0 before the first."""

    total: Count
    done: Count
    failed: Count
    running: Count
    per_minute: Amount


@dataclass(frozen=True)
class AtWork:
    """What one worker is doing: a unit, or several at once. ``place`` is empty until it is known."""

    kind: Text
    label: Text
    place: Text
    seconds: Amount


@dataclass(frozen=True)
class State:
    """A sweep at one moment.

    Attributes:
        kinds: by kind of work, in the order of the plan.
        at_work: one for each busy worker, the longest at its work first.
        seconds_left: estimate; None while a kind that remains has not finished once.
    """

    kinds: dict[Text, KindState]
    at_work: list[AtWork]
    seconds_left: Amount | None


@dataclass
class _Running:
    begun: float
    share: float
    label: str
    place: Callable[[], str]


@dataclass
class _Count:
    total: int
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    first: float | None = None
    ends: deque[float] = field(default_factory=deque)
    running: dict[str, _Running] = field(default_factory=dict)

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed

    def per_minute(self, now: float) -> float:
        """Units done in the last minutes, over how long there was work of this kind in them."""
        while self.ends and self.ends[0] <= now - RATE_S:
            self.ends.popleft()
        span = min(RATE_S, now - (now if self.first is None else self.first))
        return 60 * len(self.ends) / span if span else 0.0


class Board:
    """Counts units by kind and shows them. Thread-safe; use it as a context manager.

    Args:
        totals: kind → number of units to do.
        slots: how many workers run side by side, for the estimate.
        clock: seconds, monotonic; for tests.
    """

    def __init__(
        self,
        totals: Mapping[str, int],
        slots: int = 1,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counts = {kind: _Count(total) for kind, total in totals.items() if total}
        self.slots, self._clock = slots, clock
        self._console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._lock = threading.RLock()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._begun = clock()
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write_lines, name="raystitch-progress", daemon=True)

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description:<10}"),
                BarColumn(bar_width=32),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            for kind, count in self._counts.items():
                self._tasks[kind] = self._bars.add_task(kind, total=count.total, note="")
            self._bars.start()
        else:
            self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._bars is not None:
            self._bars.stop()
        else:
            self._writer.join()
            self._console.print(self.line())

    def start(
        self, kind: str, unit: str, share: float = 1.0, label: str = "", place: Callable[[], str] = lambda: ""
    ) -> None:
        """A unit begins.

        Args:
            share: its part of the work that its worker does meanwhile.
            label: what the worker does, in words; left empty for the others of several that it does at once.
            place: says where the worker is, once that is known.
        """
        with self._lock:
            count, now = self._counts[kind], self._clock()
            count.running[unit] = _Running(now, share, label, place)
            count.first = now if count.first is None else count.first
            self._show(kind)

    def finish(self, kind: str, unit: str) -> float:
        """A unit is done. Returns the seconds of its worker that it took."""
        with self._lock:
            count, now = self._counts[kind], self._clock()
            running = count.running.pop(unit, None)
            seconds = 0.0 if running is None else (now - running.begun) * running.share
            count.seconds += seconds
            count.done += 1
            count.ends.append(now)
            self._show(kind)
            return seconds

    def drop(self, kind: str, unit: str) -> None:
        """A unit that had begun is to begin anew."""
        with self._lock:
            self._counts[kind].running.pop(unit, None)
            self._show(kind)

    def fail(self, kind: str, unit: str, label: str, error: str) -> None:
        """A unit is given up; the first line of its error is shown."""
        with self._lock:
            count = self._counts[kind]
            count.running.pop(unit, None)
            count.failed += 1
            self._console.print(
                f"failed: {kind} {label}: {error.splitlines()[0] if error else 'unknown'}", markup=False
            )
            self._show(kind)

    def set_slots(self, count: int) -> None:
        """How many workers run side by side now."""
        self.slots = count

    def note(self, text: str) -> None:
        """Show one line."""
        self._console.print(text, markup=False)

    def seconds_left(self) -> float | None:
        """Estimate from the mean time per unit of each kind; None while a remaining kind has not finished once."""
        with self._lock:
            pending = [count for count in self._counts.values() if count.left]
            if any(not count.done for count in pending):
                return None
            return sum(count.left * count.seconds / count.done for count in pending) / max(1, self.slots)

    def running(self, kind: str) -> int:
        """Units of a kind that are being worked on."""
        with self._lock:
            return len(self._counts[kind].running)

    def state(self) -> State:
        """All of it at this moment."""
        with self._lock:
            now = self._clock()
            kinds = {
                kind: KindState(count.total, count.done, count.failed, len(count.running), count.per_minute(now))
                for kind, count in self._counts.items()
            }
            busy = [(kind, each) for kind, count in self._counts.items() for each in count.running.values()]
            left = self.seconds_left()
        told = sorted((each for each in busy if each[1].label), key=lambda each: each[1].begun)
        return State(kinds, [AtWork(kind, o.label, o.place(), now - o.begun) for kind, o in told], left)

    def line(self) -> str:
        """The state of the sweep in one line."""
        with self._lock:
            parts = [f"{kind} {count.done}/{count.total}" + _notes(count) for kind, count in self._counts.items()]
            elapsed, left = self._clock() - self._begun, self.seconds_left()
            ending = "" if not left else f", about {clock_text(left)} left"
            return f"{' | '.join(parts)} | {clock_text(elapsed)} elapsed{ending}"

    def _show(self, kind: str) -> None:
        if self._bars is not None:
            count, left = self._counts[kind], self.seconds_left()
            note = _notes(count) + (f"  about {clock_text(left)} left" if left else "")
            self._bars.update(self._tasks[kind], completed=count.done, note=note)

    def _write_lines(self) -> None:
        while not self._over.wait(line_interval(self._clock() - self._begun)):
            self._console.print(self.line())


def line_interval(elapsed: float) -> float:
    """Seconds until the next plain line, given the seconds since the start."""
    return min(max(FIRST_LINE_S, elapsed / 10), LONGEST_SILENCE_S)


def _notes(count: _Count) -> str:
    notes = [f"{len(count.running)} running"] if count.running else []
    notes += [f"{count.failed} failed"] if count.failed else []
    return f" ({', '.join(notes)})" if notes else ""


def clock_text(seconds: float) -> str:
    """``1:02:03`` for hours, ``2:03`` for minutes."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

"""How ``raystitch status`` shows a sweep that runs: when it was last heard of, how fast it is, and what runs where."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.table import Table

from raystitch.heartbeat import STALE_S, Word
from raystitch.progress import AtWork, KindState, clock_text

_SLOWEST = 1e-6  # units per minute; less is no rate to reckon with
MOST_ROWS = 40
"""Of the table of what runs where: those that have been at their work for longest."""


def shown(word: Word, now: datetime) -> Iterator[str | Table]:
    """Lines and tables of one driver's last word."""
    yield _headline(word, now)
    yield _progress_table(word.state.kinds)
    if word.state.at_work:
        yield _where_table(word.state.at_work)
    if len(word.state.at_work) > MOST_ROWS:
        yield f"… and {len(word.state.at_work) - MOST_ROWS} more workers"


def _headline(word: Word, now: datetime) -> str:
    since = f"{word.started:%Y-%m-%d %H:%M} UTC, driver on {word.host} pid {word.pid}"
    seconds = word.age(now)
    age = f"last word {f'{seconds:.0f} s' if seconds <= STALE_S else clock_text(seconds)} ago"
    if word.is_stale(now):
        gone = "the driver seems to be gone; what was finished is kept, the same sweep command goes on from here"
        return f"was running since {since}: {age}: {gone}"
    left = word.state.seconds_left
    ending = "" if left is None else f", about {clock_text(left)} left"
    return f"running since {since}: {age}{ending}"


def _progress_table(kinds: dict[str, KindState]) -> Table:
    table = Table("this run", "done", "failed", "running", "per minute", "time left", title_justify="left")
    for kind, state in kinds.items():
        left = state.total - state.done - state.failed
        until = (
            clock_text(60 * left / state.per_minute) if state.per_minute > _SLOWEST and left else "" if left else "0:00"
        )
        counts = (f"{state.done}/{state.total}", str(state.failed), str(state.running))
        table.add_row(kind, *counts, f"{state.per_minute:.3g}", until)
    return table


def _where_table(at_work: list[AtWork]) -> Table:
    table = Table("kind", "at work on", "where", "for", title_justify="left")
    for each in at_work[:MOST_ROWS]:
        table.add_row(each.kind, each.label, each.place, clock_text(each.seconds))
    return table

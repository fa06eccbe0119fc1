"""Word from a running sweep, in the storage: what is running where, how fast, and when the driver last said so.

A driver replaces ``sweeps/<name>/running/<run>.json`` every few seconds and removes it at its end, so whoever reaches the
storage sees what goes on. A driver that was killed leaves its last word behind, whose age gives it away; the next run of
the study removes it. Two sweeps of one study have a file each.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from raystitch.access import redact
from raystitch.progress import Count, State, Text
from raystitch.store import Store

EVERY_S = 15.0
"""Seconds between two words of a driver; before, a tenth of the time elapsed, but at least a second."""
STALE_S = 90.0
"""Age from which a word says that its driver seems to be gone."""
_FAREWELL_S = 10.0
"""How long at most a sweep waits in the end until its word is removed."""


@dataclass(frozen=True)
class Word:
    """What a driver says of itself; times are of its own clock, with their zone."""

    started: AwareDatetime
    updated: AwareDatetime
    host: Text
    pid: Count
    state: State

    def age(self, now: datetime) -> float:
        """Seconds since it was said."""
        return max(0.0, (now - self.updated).total_seconds())

    def is_stale(self, now: datetime) -> bool:
        """Whether the driver should have been heard of since."""
        return self.age(now) > STALE_S


_WORD = TypeAdapter(Word)


def now_utc() -> datetime:
    """The time."""
    return datetime.now(timezone.utc)


def read_words(store: Store, sweep: str) -> dict[str, Word]:
    """File name → word of each driver that is at a study, or was when it was killed. Damaged files are left out."""
    words = {}
    for name in sorted(f"{_folder(sweep)}/{name}" for name in store.names(_folder(sweep))):
        try:
            words[name] = _WORD.validate_json(store.read(name))
        except (FileNotFoundError, ValidationError):  # the sweep has just ended, or another version wrote it
            continue
    return words


def _folder(sweep: str) -> str:
    return f"sweeps/{sweep}/running"


class Heartbeat:
    """Keeps a word of this driver in the storage while it is open, from a thread of its own.

    The sweep neither waits for it nor stops where it cannot be written.

    Args:
        state: what to say.
        note: shows one line to the user; called once, if the word cannot be written.
        every: seconds.
    """

    def __init__(
        self, store: Store, sweep: str, state: Callable[[], State], note: Callable[[str], None], every: float = EVERY_S
    ) -> None:
        self._store, self._sweep, self._state, self._note, self._every = store, sweep, state, note, every
        self._name = f"{_folder(sweep)}/{uuid.uuid4().hex[:12]}.json"
        self._started = now_utc()
        self._over = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="raystitch-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_FAREWELL_S)

    def _run(self) -> None:
        self._attempt(self._forget_the_dead)
        while not self._over.is_set():
            self._attempt(self._say)
            elapsed = (now_utc() - self._started).total_seconds()
            self._over.wait(min(max(1.0, elapsed / 10), self._every))
        self._attempt(lambda: self._store.remove(self._name))

    def _say(self) -> None:
        word = Word(self._started, now_utc(), socket.gethostname(), os.getpid(), self._state())
        self._store.replace(self._name, _WORD.dump_json(word))

    def _forget_the_dead(self) -> None:
        for name, word in read_words(self._store, self._sweep).items():
            if word.is_stale(now_utc()):
                self._store.remove(name)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            if not self._told:
                self._told = True
                reason = " ".join(redact(str(error)).split())
                self._note(f"what is running cannot be told to the storage, so 'raystitch status' lacks it: {reason}")

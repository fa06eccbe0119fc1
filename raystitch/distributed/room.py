"""How many workers of each kind to ask Ray for, as the cluster is now.

On one machine the number is fixed. On a cluster every kind asks for somewhat more than it has, as long as it has work for them:
what does not fit is what makes an autoscaler add nodes, and what runs grows and shrinks with them. Kinds that live on the
same nodes share them: one that has waited for room for a while is given some by one that has more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raystitch.config import Resources
from raystitch.distributed.cluster import Lack, what_lacks

FIRST = 4
"""How many workers a kind asks for beyond those it has; once it has more, as many again as it has."""
PATIENCE_S = 60.0
"""How long a kind waits for its next worker before it counts as starved: they take a while to start, and nodes to come."""
LOOK_S, LONGEST_SILENCE_S = 5.0, 600.0
"""How often to look whether a node is there that a waiting kind can use, and how long at most to keep still if none is."""


@dataclass(eq=False)
class Side:
    """One kind of worker.

    Attributes:
        name: its field in the config, such as ``resources.iri``.
        need: what each asks for.
        most: how many there may be; None for no bound.
        running: workers that have their room.
        pending: workers that were asked for and have none yet.
        ready: whether there is work that no worker has been asked for.
        since: when it last got a worker, or began to wait for one.
        look_at: when to look again whether any node is large enough, and ``silence`` how long to say nothing after that.
    """

    name: str
    need: Resources
    most: int | None = None
    running: int = 0
    pending: int = 0
    ready: bool = False
    since: float = 0.0
    look_at: float = 0.0
    silence: float = PATIENCE_S

    @property
    def waits(self) -> bool:
        """Whether it could use another worker now."""
        return (self.ready or self.pending > 0) and (self.most is None or self.running < self.most)


class Room:
    """Shares the cluster between kinds of workers. Thread-safe.

    Args:
        sides: the kinds, first those that the others depend on.
        note: shows one line to the user.
        on_change: is given the number of workers that run.
        clock: seconds, monotonic; for tests.
        lacks: what no node of the cluster has enough of for one worker.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        note: Callable[[str], None],
        on_change: Callable[[int], None] = lambda count: None,
        clock: Callable[[], float] = time.monotonic,
        lacks: Callable[[Resources], Lack | None] = what_lacks,
    ) -> None:
        self._sides, self._note, self._on_change, self._clock = list(sides), note, on_change, clock
        self._lacks = lacks
        self._lock = threading.RLock()

    def update(self, side: Side, running: int, pending: int, ready: bool) -> None:
        """Say how a kind stands now."""
        with self._lock:
            if running > side.running or not side.waits:
                side.since = self._clock()
            changed = running != side.running
            side.running, side.pending, side.ready = running, pending, ready
            if changed:
                self._on_change(sum(each.running for each in self._sides))
            self._tell_if_no_node_will_do(side)

    def may_ask(self, side: Side) -> int:
        """How many more workers a kind may ask for now."""
        with self._lock:
            if self.yields(side):
                return 0
            return max(0, self.most_ahead(side) - side.pending)

    def most_ahead(self, side: Side) -> int:
        """How many workers a kind may wait for beside those that it has."""
        return max(FIRST, side.running) if side.most is None else max(0, side.most - side.running)

    def yields(self, side: Side) -> bool:
        """Whether a kind with fewer workers is starved, so that this one should ask for no more."""
        with self._lock:
            return any(self._comes_first(other, side) for other in self._starved(side))

    def to_release(self, side: Side) -> int:
        """How many of its workers a kind should let go now, for another that is starved; it is then not asked for a while."""
        with self._lock:
            for other in self._starved(side):
                if side.running > other.running + 1:
                    other.since = self._clock()
                    return (side.running - other.running) // 2
            return 0

    def _starved(self, side: Side) -> list[Side]:
        """Other kinds on the same sort of node that have waited long."""
        now = self._clock()
        return [
            other
            for other in self._sides
            if other is not side
            and bool(other.need.gpus) == bool(side.need.gpus)
            and other.waits
            and now - other.since >= PATIENCE_S
        ]

    def _comes_first(self, other: Side, side: Side) -> bool:
        return (other.running, self._sides.index(other)) < (side.running, self._sides.index(side))

    def _tell_if_no_node_will_do(self, side: Side) -> None:
        """One that waits for a node that is not there says so, at ever longer intervals."""
        now = self._clock()
        if side.running or not side.pending or now < side.look_at:
            return
        lack = self._lacks(side.need)
        side.look_at = now + (LOOK_S if lack is None else side.silence)
        if lack is not None:
            field, wanted, largest = lack
            side.silence = min(2 * side.silence, LONGEST_SILENCE_S)
            self._note(f"{side.name}.{field} = {wanted}: no node has that yet (now: {largest}); waiting for one")

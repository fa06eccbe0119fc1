"""Workers that died: whose fault it was, whether their unit is tried again, and how that is told."""

from __future__ import annotations

from collections import Counter

import ray

from raystitch.distributed.outcome import describe

RETRIES = 2
"""How often a unit is tried again after its worker was killed or crashed."""
LOST_NODES = 10
"""How often a unit may lose the node that it is on: spot nodes come and go, and that says nothing about the unit."""
_NODE_GONE = ("node has died", "node was terminated", "node is dead")
_NO_MEMORY = ("node running low on memory", "memory usage threshold", "memory pressure", "OutOfMemory")


class Deaths:
    """Counts the deaths of workers by the unit they were at."""

    def __init__(self) -> None:
        self._killed: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def judge(self, unit: str, error: BaseException) -> tuple[bool, str]:
        """Whether to try a unit again whose worker died with ``error``, and one line that says what happened."""
        if is_lost_node(error):
            self._lost[unit] += 1
            return self._lost[unit] <= LOST_NODES, f"its node was lost{_times(self._lost[unit])}"
        self._killed[unit] += 1
        times = _times(self._killed[unit])
        return self._killed[unit] <= RETRIES, _what_killed(error, times)


def is_lost_node(error: BaseException) -> bool:
    """Whether a worker went with its node, or cannot be reached; no fault of what it did."""
    if isinstance(error, ray.exceptions.ActorUnavailableError) or getattr(error, "preempted", False):
        return True
    return any(text in str(error) for text in _NODE_GONE)


def _what_killed(error: BaseException, times: str) -> str:
    if isinstance(error, ray.exceptions.OutOfMemoryError) or any(text in str(error) for text in _NO_MEMORY):
        more = "give each worker more of a node (resources: cpus, gpus), so that fewer share its memory"
        return f"out of memory: its worker was stopped{times} because the memory of its node was used up; {more}"
    if getattr(error, "actor_init_failed", False):
        return f"its worker could not start{times}: {_last_line(error)}"
    if isinstance(error, ray.exceptions.ActorDiedError):
        return f"its worker was killed or crashed{times} (most often the system kills it because memory is used up)"
    return f"its worker was lost{times}: {describe(error)}"


def _last_line(error: BaseException) -> str:
    """The last line of a trace is what was raised."""
    return [line for line in str(error).splitlines() if line.strip()][-1].strip()


def _times(count: int) -> str:
    return "" if count == 1 else f" {count} times"

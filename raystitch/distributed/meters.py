"""What happens in a sweep as metrics of Ray: on its dashboard, and for any Prometheus that collects from its nodes.

Each has the tags ``sweep`` and ``kind`` (model, IRI shard, IRI set, fit, unstitched, similarity):

==============================  =========  ==================================================================
``raystitch_units_finished``    counter    units done (Ray exports it with ``_total`` at the end)
``raystitch_units_failed``      counter    units given up, those that could not start included
``raystitch_units_running``     gauge      units that workers are at now
``raystitch_unit_seconds``      histogram  seconds of a worker that each finished unit took
==============================  =========  ==================================================================

Ray itself puts ``ray_`` before each name.
"""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge, Histogram

_TAGS = ("sweep", "kind")
_SECONDS = [0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000]


class Meters:
    """Counts for Ray's metrics; lives in the driver, which must be connected."""

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep
        self._finished = Counter("raystitch_units_finished", "Units done.", _TAGS)
        self._failed = Counter("raystitch_units_failed", "Units given up.", _TAGS)
        self._running = Gauge("raystitch_units_running", "Units that workers are at.", _TAGS)
        self._seconds = Histogram("raystitch_unit_seconds", "Seconds of a worker per finished unit.", _SECONDS, _TAGS)

    def finished(self, kind: str, seconds: float) -> None:
        """A unit is done."""
        self._finished.inc(tags=self._tags(kind))
        self._seconds.observe(seconds, tags=self._tags(kind))

    def failed(self, kind: str) -> None:
        """A unit is given up."""
        self._failed.inc(tags=self._tags(kind))

    def running(self, kind: str, count: int) -> None:
        """How many units of a kind are being worked on."""
        self._running.set(count, tags=self._tags(kind))

    def _tags(self, kind: str) -> dict[str, str]:
        return {"sweep": self._sweep, "kind": kind}

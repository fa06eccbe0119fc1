"""Run benchmarks in processes of their own, and stop them when this one is to stop."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

GRACE = 15
"""Seconds that a benchmark has to put away what it made."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


class Runner:
    """One process at a time, with a session of its own: what is sent to this one reaches it once, and by :meth:`_stop`.

    Attributes:
        stopped: whether this process was told to stop.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._child: subprocess.Popen[bytes] | None = None

    def listen(self) -> None:
        """Pass signals on from now; those that are ignored, as by nohup, stay so."""
        signal.signal(signal.SIGALRM, self._kill)
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._stop)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """The exit code. Nothing that the process started is left when it was stopped, or ended by a signal."""
        self._child = child = subprocess.Popen(command, env=environment, start_new_session=True)
        if self.stopped:  # while it began
            self._stop()
        code = child.wait()
        signal.alarm(0)
        if self.stopped or code < 0:
            self._kill()
        self._child = None
        return code

    def _stop(self, *_: object) -> None:
        self.stopped = True
        if self._child:
            self._child.terminate()
            signal.alarm(GRACE)

    def _kill(self, *_: object) -> None:
        if self._child:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

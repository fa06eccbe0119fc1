import io
import threading

import pytest
from rich.console import Console

from raystitch import progress
from raystitch.progress import Board


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def board(totals: dict[str, int], slots: int = 1) -> tuple[Board, Clock, io.StringIO]:
    clock, stream = Clock(), io.StringIO()
    return Board(totals, slots, Console(file=stream, width=200), clock), clock, stream


def test_time_left_is_known_once_each_remaining_kind_has_finished_once() -> None:
    shown, clock, _ = board({"model": 1, "fit": 5}, slots=2)
    shown.start("model", "m")
    clock.now = 10
    shown.finish("model", "m")
    assert shown.seconds_left() is None
    shown.start("fit", "a", share=0.5)
    shown.start("fit", "b", share=0.5)
    clock.now = 16
    shown.finish("fit", "a")
    shown.finish("fit", "b")
    assert shown.seconds_left() == 3 * (6 / 2) / 2, "two fits took one worker 6 s; three are left for two workers"


def test_the_line_counts_everything() -> None:
    shown, clock, stream = board({"fit": 4, "model": 0})
    with shown:
        for name in "abc":
            shown.start("fit", name)
        shown.finish("fit", "a")
        clock.now = 20
        shown.finish("fit", "b")
        assert shown.line().startswith("fit 2/4 (1 running) | 0:20 elapsed, about")
        shown.fail("fit", "c", "clean/0:1 → clean/1:1 [dm]", "ValueError: no\nmore")
    text = stream.getvalue()
    assert "failed: fit clean/0:1 → clean/1:1 [dm]: ValueError: no\n" in text
    assert text.rstrip().splitlines()[-1].startswith("fit 2/4 (1 failed) | 0:20 elapsed")
    assert "model" not in text


def test_plain_lines_come_by_themselves_while_units_run(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = threading.Event()
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.001)
    shown, _, _ = board({"fit": 1})
    monkeypatch.setattr(shown._console, "print", lambda *_, **__: printed.set())
    with shown:
        assert printed.wait(60)


def test_plain_lines_grow_rarer() -> None:
    assert [progress.line_interval(elapsed) for elapsed in (0, 100, 600, 86400)] == [15, 15, 60, 300]


def test_bars_on_a_terminal() -> None:
    stream = io.StringIO()
    with Board({"fit": 2}, 1, Console(file=stream, force_terminal=True, width=120)) as shown:
        shown.start("fit", "a")
        shown.finish("fit", "a")
    assert "1/2" in stream.getvalue()

"""Word of a running sweep in the storage: its numbers, its age, and that no sweep depends on it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from rich.console import Console
from test_plan import CATALOGUE, study

from raystitch.cli import main
from raystitch.heartbeat import STALE_S, Heartbeat, Word, read_words
from raystitch.plan import expand
from raystitch.progress import AtWork, Board, KindState, State
from raystitch.results import publish_study
from raystitch.store import Store
from raystitch.view import MOST_ROWS, shown

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=timezone.utc)
STATE = State({"fit": KindState(10, 4, 1, 2, 2.5)}, [AtWork("fit", "a → b", "box pid 7", 65)], 120)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board({"model": 1, "fit": 9}, 2, Console(file=io.StringIO()), clock)


def test_state_of_a_sweep(board: Board, clock: Clock) -> None:
    board.start("model", "m", label="clean/0", place=lambda: "one pid 1")
    clock.now = 30
    assert board.finish("model", "m") == 30
    clock.now = 60
    for number, unit in enumerate("abcd"):
        board.start("fit", unit, 1 / 4, "" if number else "a and 3 more", lambda: "two pid 2")
    clock.now = 70
    board.start("fit", "e", label="e", place=lambda: "three pid 3")
    clock.now = 180
    assert [board.finish("fit", unit) for unit in "abc"] == [30, 30, 30]
    board.fail("fit", "e", "e", "NaN")
    state = board.state()
    assert state.kinds == {"model": KindState(1, 1, 0, 0, 1 / 3), "fit": KindState(9, 3, 1, 1, 1.5)}
    assert state.seconds_left == 5 * 30 / 2, "five fits of 30 s each for two workers"
    assert state.at_work == [], "the fit that is left stands for a group whose row went with the first"


def test_what_runs_where_longest_first(board: Board, clock: Clock) -> None:
    places = {"b": ""}
    board.start("fit", "a", label="a", place=lambda: "one pid 1")
    clock.now = 5
    board.start("fit", "b", label="b", place=lambda: places["b"])
    clock.now = 9
    assert board.state().at_work == [AtWork("fit", "a", "one pid 1", 9), AtWork("fit", "b", "", 4)]
    places["b"] = "two pid 2"
    board.drop("fit", "a")
    assert board.state().at_work == [AtWork("fit", "b", "two pid 2", 4)]


def test_the_rate_is_that_of_the_last_ten_minutes(board: Board, clock: Clock) -> None:
    assert board.state().kinds["fit"].per_minute == 0
    for unit in "abcd":
        board.start("fit", unit)
    for unit, end in zip("abcd", (60, 120, 400, 500), strict=True):
        clock.now = end
        board.finish("fit", unit)
    assert board.state().kinds["fit"].per_minute == pytest.approx(4 / (500 / 60))
    clock.now = 900
    assert board.state().kinds["fit"].per_minute == 2 / 10


@contextmanager
def beating(store: Store, told: list[str], state: State = STATE) -> Iterator[None]:
    """A heartbeat that has said its first word."""
    said, again = threading.Event(), threading.Event()

    def tell() -> State:
        (again if said.is_set() else said).set()
        return state

    with Heartbeat(store, "tiny", tell, told.append, every=0.01):
        assert again.wait(60), "it says a second word, so the first is written"
        yield


def test_a_word_is_there_while_the_sweep_runs(tmp_path: Path) -> None:
    store, told = Store(str(tmp_path)), list[str]()
    with beating(store, told):
        with beating(store, told):
            assert len(read_words(store, "tiny")) == 2, "two sweeps of one study have a word each"
        (word,) = read_words(store, "tiny").values()
        assert word.state == STATE
        assert word.age(word.updated + timedelta(seconds=STALE_S)) == STALE_S
        assert not word.is_stale(word.updated + timedelta(seconds=STALE_S))
        assert word.is_stale(word.updated + timedelta(seconds=STALE_S + 1))
    assert read_words(store, "tiny") == {}
    assert told == []


def test_the_next_run_removes_the_word_of_a_killed_driver(tmp_path: Path) -> None:
    store, told = Store(str(tmp_path)), list[str]()
    write(store, "dead", updated="2026-01-01T00:00:00Z")
    write(store, "junk", content=b"[1]")
    with beating(store, told):
        assert "sweeps/tiny/running/dead.json" not in read_words(store, "tiny")
        assert len(read_words(store, "tiny")) == 1
    assert told == []


def write(store: Store, run: str, content: bytes | None = None, sweep: str = "tiny", **fields: str) -> None:
    kinds = {"fit": {"total": 9, "done": 3, "failed": 1, "running": 2, "per_minute": 2.5}}
    rows = [{"kind": "fit", "label": "a → b dm and 1 more", "place": "box-1 pid 7", "seconds": 65}]
    record = {
        "started": "2026-01-01T00:00:00Z", "updated": "2026-01-01T00:00:00Z", "host": "head", "pid": 1,
        "state": {"kinds": kinds, "at_work": rows, "seconds_left": 120}, **fields,
    }  # fmt: skip
    store.replace(f"sweeps/{sweep}/running/{run}.json", json.dumps(record).encode() if content is None else content)


def test_a_storage_that_refuses_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "sweeps").write_text("a file where the folder should be")
    told: list[str] = []
    with beating(Store(str(tmp_path)), told):
        pass
    assert len(told) == 1
    assert told[0].startswith("what is running cannot be told to the storage, so 'raystitch status' lacks it: ")


def test_no_secret_in_what_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    (tmp_path / "0123456789abcdef").write_text("")
    told: list[str] = []
    with beating(Store(str(tmp_path / "0123456789abcdef" / "runs")), told):
        pass
    assert "0123456789abcdef" not in told[0]
    assert "***" in told[0]


def printed(word: Word, now: datetime) -> str:
    console = Console(file=io.StringIO(), width=150)
    for part in shown(word, now):
        console.print(part, markup=False)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_how_a_word_is_shown() -> None:
    text = printed(Word(NOW, NOW, "head", 1, STATE), NOW + timedelta(seconds=8))
    assert "running since 2026-05-04 12:00 UTC, driver on head pid 1: last word 8 s ago, about 2:00 left" in text
    rows = [line for line in text.splitlines() if "│ fit" in line]
    assert [cell.strip() for cell in rows[0].strip("│").split("│")] == ["fit", "4/10", "1", "2", "2.5", "2:00"]
    assert [cell.strip() for cell in rows[1].strip("│").split("│")] == ["fit", "a → b", "box pid 7", "1:05"]


def test_how_an_old_word_is_shown() -> None:
    text = printed(Word(NOW, NOW, "head", 1, STATE), NOW + timedelta(hours=2, seconds=3))
    assert (
        "was running since 2026-05-04 12:00 UTC, driver on head pid 1: last word 2:00:03 ago: the driver seems" in text
    )


def test_many_workers_are_cut_short() -> None:
    busy = [AtWork("fit", f"unit {number}", "box", 1) for number in range(MOST_ROWS + 3)]
    text = printed(Word(NOW, NOW, "head", 1, State({}, busy, None)), NOW)
    assert f"unit {MOST_ROWS - 1}" in text
    assert f"unit {MOST_ROWS} " not in text
    assert "… and 3 more workers" in text


def test_status_shows_what_runs_and_what_seems_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, config = Store(str(tmp_path)), study(name="first")
    publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    assert main(["status", "--storage", str(tmp_path)]) == 1
    assert "running" not in capsys.readouterr().out
    write(store, "dead", sweep="first")
    fresh = datetime.now(timezone.utc).isoformat()
    write(store, "alive", sweep="first", updated=fresh, host="box")
    assert main(["status", "--storage", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "running since 2026-01-01 00:00 UTC, driver on box pid 1: last word 0 s ago, about 2:00 left" in text
    assert "was running since 2026-01-01 00:00 UTC, driver on head pid 1: last word" in text
    assert "the driver seems to be gone" in text
    assert "box-1 pid 7" in text


def test_what_a_storage_says_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, config = Store(str(tmp_path)), study(name="first")
    publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    record = json.loads(store.read("sweeps/first/study.json"))
    for unit in record["units"]:
        unit["kind"], unit["label"] = "[red]\x1b[31m", "\x1b]0;title\x07"
    unit = record["units"][0]
    store.replace("sweeps/first/study.json", json.dumps(record).encode())
    store.replace(f"failures/{unit['id']}.json", json.dumps({**unit, "error": "\x1b[2J", "trace": ""}).encode())
    fresh = datetime.now(timezone.utc).isoformat()
    write(store, "alive", sweep="first", updated=fresh, host="\x1b[2Jbox[bold]")
    store.replace("sweeps/\x1b[2J/study.json", json.dumps(record).encode())
    assert main(["status", "--storage", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]?[31m" in text
    assert "driver on ?[2Jbox[bold] pid 1" in text
    assert "failed: [red]?[31m ?]0;title?" in text


def test_a_damaged_record_hides_no_other_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(str(tmp_path))
    for name in ("first", "second"):
        config = study(name=name)
        publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    store.replace("sweeps/first/study.json", b"{")
    assert main(["status", "--storage", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "second" in shown.out
    assert shown.err == f"raystitch: {tmp_path}/sweeps/first/study.json: is damaged; run the sweep again\n"

import pickle
import threading
import uuid
from pathlib import Path

import pytest
from s3server import BUCKET

from raystitch.errors import InputError
from raystitch.store import Store


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.xdist_group("s3"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        request.getfixturevalue("s3")
        return Store(f"s3://{BUCKET}/a b/{uuid.uuid4().hex}")
    return Store(str(tmp_path / "a b") if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def test_first_publisher_wins(store: Store) -> None:
    assert store.publish("fits/x.parquet", b"one")
    assert not store.publish("fits/x.parquet", b"two")
    assert store.read("fits/x.parquet") == b"one"


def test_replace_overwrites(store: Store) -> None:
    store.replace("s/study.json", b"one")
    store.replace("s/study.json", b"two")
    assert store.read("s/study.json") == b"two"


def test_listing(store: Store) -> None:
    assert store.names("fits") == set()
    assert store.folders("sweeps") == []
    store.publish("fits/x.parquet", b"1")
    store.publish("fits/deeper/y.parquet", b"2")
    store.publish("sweeps/b/study.json", b"3")
    store.publish("sweeps/a/study.json", b"4")
    assert store.names("fits") == {"x.parquet"}
    assert store.folders("sweeps") == ["a", "b"]
    assert store.tree("fits") == {"fits/x.parquet", "fits/deeper/y.parquet"}
    assert store.tree("nothing") == set()
    assert store.exists("fits/x.parquet")
    assert not store.exists("fits/z.parquet")


def test_many_are_read_by_name_without_those_that_are_not_there(store: Store) -> None:
    for n in range(5):
        store.publish(f"fits/{n}", str(n).encode())
    assert store.read_many([f"fits/{n}" for n in (3, 9, 1, 4)]) == {"fits/3": b"3", "fits/1": b"1", "fits/4": b"4"}
    assert store.read_many(["fits/2"]) == {"fits/2": b"2"}
    assert store.read_many(["fits/9"]) == store.read_many(["fits/8", "fits/9"]) == store.read_many([]) == {}


def test_missing_file_and_removal(store: Store) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        store.read("nothing")
    assert caught.value.filename == f"{store.url}/nothing"
    store.publish("failures/x.json", b"1")
    store.remove("failures/x.json")
    store.remove("failures/x.json")
    assert store.names("failures") == set()


def test_a_race_has_one_winner(store: Store) -> None:
    if store.url.startswith("memory:"):
        pytest.skip("the memory of one process has no races to settle")
    barrier, wins = threading.Barrier(8), []

    def write(n: int) -> None:
        barrier.wait()
        if store.publish("fits/x", bytes([n]) * 100_000):
            wins.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert store.read("fits/x") == bytes(wins) * 100_000
    assert store.names("fits") == {"x"}, "no temporary file is left or listed"


def test_an_empty_file_counts_as_none(store: Store) -> None:
    store.replace("fits/x", b"")
    assert not store.exists("fits/x")
    assert store.names("fits") == store.tree("fits") == set()
    assert store.publish("fits/x", b"whole")
    assert store.read("fits/x") == b"whole"


def test_a_damaged_file_is_set_aside(store: Store) -> None:
    store.publish("fits/x", b"damaged")
    store.quarantine("fits/x")
    store.quarantine("fits/never-there")
    assert not store.exists("fits/x")
    assert store.read("damaged/fits/x") == b"damaged"
    assert store.publish("fits/x", b"whole")


def test_a_storage_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = Store(str(tmp_path / "file" / "inside"))
    for look in (lambda: store.names("fits"), lambda: store.tree("fits"), lambda: store.read("x")):
        with pytest.raises(InputError, match="cannot be read"):
            look()


def test_what_a_killed_writer_left_is_not_listed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.publish("fits/x", b"1")
    (tmp_path / "fits" / ".tmp-123").write_bytes(b"half")
    assert store.names("fits") == {"x"}


def test_relative_folder_is_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = pickle.loads(pickle.dumps(Store("./runs")))
    monkeypatch.chdir("/")
    store.publish("x", b"1")
    assert (tmp_path / "runs" / "x").read_bytes() == b"1"


def test_options_are_not_shown() -> None:
    assert "hunter2" not in repr(Store("s3://bucket/x", {"secret": "hunter2"}))


@pytest.mark.parametrize("kind", ["file in the way", "unknown scheme"])
def test_unwritable_storage_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    url = str(tmp_path / "file") if kind == "file in the way" else "nosuch://bucket/x"
    with pytest.raises(InputError) as caught:
        Store(url).check_writable()
    assert str(caught.value).startswith(f"storage = {url!r}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 300, "nu\0ll"])
def test_impossible_path_is_one_clear_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="storage"):
        Store(str(tmp_path / name)).check_writable()


def test_check_writable_leaves_nothing(tmp_path: Path) -> None:
    Store(str(tmp_path / "runs")).check_writable()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    Store(str(tmp_path / "kept")).check_writable()
    assert list((tmp_path / "kept").iterdir()) == []

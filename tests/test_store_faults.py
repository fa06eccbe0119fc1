"""Storages that are away, that may not be written to, or that are no place at all: one line, whatever is asked of them."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import yaml
from s3server import BUCKET, S3Server, free_ports
from test_plan import CATALOGUE, study
from test_results import row

from raystitch.cli import main
from raystitch.distributed.outcome import PAUSES_S, attempt
from raystitch.errors import InputError
from raystitch.plan import expand
from raystitch.results import encode_rows, load_results, publish_study
from raystitch.s3 import PatientS3FileSystem
from raystitch.store import Store

READS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("fits/x"),
    "read_many": lambda store: store.read_many(["fits/x", "fits/y"]),
    "exists": lambda store: store.exists("fits/x"),
    "names": lambda store: store.names("fits"),
    "tree": lambda store: store.tree("fits"),
    "folders": lambda store: store.folders("sweeps"),
}
WRITES: dict[str, Callable[[Store], object]] = {
    "publish": lambda store: store.publish("fits/new", b"1"),
    "replace": lambda store: store.replace("fits/new", b"1"),
    "remove": lambda store: store.remove("fits/x"),
    "quarantine": lambda store: store.quarantine("fits/x"),
    "check_writable": lambda store: store.check_writable(),
}


def check_is_one_line(store: Store, ask: Callable[[Store], object], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        ask(store)
    assert caught.value.where == "storage"
    assert str(caught.value).startswith(f"storage = {store.url!r}: cannot be ")
    assert "\n" not in str(caught.value)


@pytest.fixture
def nobody(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store on an endpoint where nobody listens."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    monkeypatch.setattr(sys.modules["raystitch.s3"], "FIRST_CONTACT_SECONDS", 0.0)
    monkeypatch.setattr(sys.modules["raystitch.s3"], "_answered", set())  # by others, whom other tests asked
    PatientS3FileSystem.clear_instance_cache()
    return Store(f"s3://{BUCKET}/faults/nobody")


@pytest.fixture
def read_only(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a study of which one fit is done, to be reached as somebody who may not write."""
    if s3.reader is None:
        pytest.skip("this server knows nobody who may only read")
    store, config = Store(f"s3://{BUCKET}/faults/read-only"), study()
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    store.publish(plan.fits[1].marker, encode_rows([row(plan.fits[1], 50.0)]))
    store.publish("fits/x", b"1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.reader[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.reader[1])
    PatientS3FileSystem.clear_instance_cache()
    return Store(store.url)


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_nobody_at_the_endpoint_is_one_line(nobody: Store, name: str) -> None:
    check_is_one_line(nobody, {**READS, **WRITES}[name], "Could not connect to the endpoint")


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("name", WRITES)
def test_what_may_not_be_written_is_one_line(read_only: Store, name: str) -> None:
    check_is_one_line(read_only, WRITES[name], "cannot be written to: Access Denied")
    assert read_only.read("fits/x") == b"1"


@pytest.mark.parametrize("name", WRITES)
def test_an_archive_can_be_read_but_not_written_to(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        archive.writestr("fits/x", "1")
    store = Store(f"zip://::{tmp_path}/runs.zip")
    assert store.read_many(["fits/x", "fits/y"]) == {"fits/x": b"1"}
    assert store.names("fits") == {"x"}
    check_is_one_line(store, WRITES[name], "cannot be written to")


def test_memory_that_runs_out_is_no_fault_of_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(path: Path, data: bytes) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr("raystitch.store.create", no_memory)
    with pytest.raises(MemoryError):
        Store(str(tmp_path)).publish("fits/x", b"1")


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("command", ["status", "results", "report", "compact"])
def test_commands_say_that_nobody_is_there(nobody: Store, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--storage", nobody.url]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"raystitch: storage = {nobody.url!r}: cannot be read: Could not connect")
    assert told.count("\n") == 1


@pytest.mark.xdist_group("s3")
def test_a_study_is_not_begun_where_nobody_is(
    nobody: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump(SMALL))
    for command in (["plan", str(config)], ["sweep", str(config)], ["validate", str(config)]):
        assert main([*command, "--storage", nobody.url]) == 2
        told = capsys.readouterr().err
        assert "Could not connect" in told
        assert told.count("\n") == 1


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("command", ["report", "compact"])
def test_commands_say_what_may_not_be_written(
    read_only: Store, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--storage", read_only.url]) == 0
    assert len(load_results(read_only.url)) == 1
    capsys.readouterr()
    assert main([command, "--storage", read_only.url]) == 2
    told = capsys.readouterr().err
    assert told == f"raystitch: storage = {read_only.url!r}: cannot be written to: Access Denied.\n"


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("name", ["read", "publish"])
def test_a_worker_waits_for_a_storage_that_is_away(nobody: Store, name: str) -> None:
    slept: list[float] = []
    outcome = attempt(lambda: {**READS, **WRITES}[name](nobody), slept.append)
    assert slept == list(PAUSES_S)
    assert outcome.outside
    assert outcome.error.startswith(f"InputError: storage = {nobody.url!r}: ")


SMALL = {
    "name": "small",
    "data": {"digits": {"source": "digits", "limit": {"train": 40, "test": 20}}},
    "models": {"net": {"arch": "resnet_mini", "args": {"width": 4}, "data": "digits", "untrained": True}},
    "settings": {"itself": {"front": "net/0", "end": "net/0"}},
    "points": [1],
    "fit": {"batch": 20, "init_images": 20},
}


@pytest.mark.parametrize("folder", ["new[1]", "a?b", "run*", "{x}"])
@pytest.mark.parametrize("kind", ["local", pytest.param("s3", marks=pytest.mark.xdist_group("s3"))])
def test_names_may_have_what_would_be_a_pattern(
    kind: str, folder: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "s3":
        request.getfixturevalue("s3")
    place = f"s3://{BUCKET}/patterns" if kind == "s3" else str(tmp_path)
    config = study()
    for name in (folder, "run1", "new1", "aab"):
        store, plan = Store(f"{place}/{name}"), expand(config, CATALOGUE)
        publish_study(store, config, plan, {"created": "now", "version": "1"})
        fit = next(fit for fit in plan.fits if fit.kind == "fit")
        store.publish(fit.marker, encode_rows([row(fit, 12.5 if name == folder else 80.0)]))
    store = Store(f"{place}/{folder}")
    assert store.read_many([fit.marker, "fits/none"]) == {fit.marker: store.read(fit.marker)}
    assert load_results(store.url)["agreement"].tolist() == [12.5]
    for command in ("status", "report", "compact"):
        assert main([command, "--storage", store.url]) in (0, 1)
    assert "No such file" not in capsys.readouterr().err


@pytest.mark.parametrize("url", ["s3://", "s3:///x/..", "gs://", "s3:/bucket/x", "https:/host/x"])
def test_a_url_that_is_written_wrongly_is_no_folder(url: str) -> None:
    with pytest.raises(InputError, match=r"names no bucket|did you mean|cannot be"):
        Store(url).names("sweeps")


@pytest.mark.xdist_group("s3")
def test_a_bucket_that_is_not_there_is_not_an_empty_storage(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--storage", "s3://no-such-bucket-here/x"]) == 2
    assert "holds no study" not in capsys.readouterr().err


def test_a_name_that_is_a_path_is_no_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish_study(Store(str(tmp_path)), study(), expand(study(), CATALOGUE), {"created": "now", "version": "1"})
    name = study().name
    assert main(["status", f"{name}/../{name}", "--storage", str(tmp_path)]) == 2
    assert "no such sweep" in capsys.readouterr().err

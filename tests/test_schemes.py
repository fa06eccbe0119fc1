"""Every scheme that fsspec knows, as a storage: it can be used, or one line says why not; nothing waits for a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NoReturn

import fsspec
import pytest
import yaml
from test_store_faults import SMALL

from raystitch.cli import main

# Google's client asks again for minutes before it says that it found nobody, and nothing but its own constants limits it.
PATIENT = {"gcs", "gs"}
SCHEMES = sorted(set(fsspec.available_protocols()) - PATIENT)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name leads anywhere."""
    monkeypatch.setattr(socket, "getaddrinfo", _refuse)
    monkeypatch.setattr("raystitch.s3.FIRST_CONTACT_SECONDS", 0.0)
    monkeypatch.setattr("raystitch.s3._answered", set())
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_of_use_or_one_line_says_why_not(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "results", "report", "compact"):
        assert main([command, "--storage", f"{scheme}://host/no-such/place"]) == 2
        told = capsys.readouterr().err
        assert told.startswith(("raystitch: storage = ", "raystitch: --storage = "))
        assert told.count("\n") == 1
        assert len(told) < 600


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("scheme", ["github", "ftp", "http", "reference", "zip"])
def test_no_study_is_planned_or_begun_there(scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump({**SMALL, "storage": f"{scheme}://host/no-such/place"}))
    for command in ("plan", "sweep"):
        assert main([command, str(config)]) == 2
        told = capsys.readouterr().err
        assert told.startswith("raystitch: storage = ")
        assert told.count("\n") == 1

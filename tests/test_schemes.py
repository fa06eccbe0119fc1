"""Every scheme that fsspec knows, as a storage: it can be used, or one line says why not; nothing waits for a network."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any, NoReturn

import fsspec
import pytest
import yaml
from test_store_faults import SMALL

from raystitch.cli import main

_sleep = asyncio.sleep


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def _no_pause(seconds: float, result: object = None) -> object:
    return await _sleep(0, result)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name leads anywhere; Google's client, which asks again for a minute, makes no pauses."""
    monkeypatch.setattr(asyncio, "sleep", _no_pause)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setattr(socket, "getaddrinfo", _refuse)
    monkeypatch.setattr("raystitch.s3.FIRST_CONTACT_SECONDS", 0.0)
    monkeypatch.setattr("raystitch.s3._answered", set())
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("scheme", sorted(fsspec.available_protocols()))
def test_a_scheme_is_of_use_or_one_line_says_why_not(
    scheme: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # without those of pytest, what clients log is shown
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

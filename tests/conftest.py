"""What every test may use: the shared reference data, and quiet single-threaded torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from s3server import S3Server, given_server, running_server

from raystitch.s3 import PatientS3FileSystem

torch.set_num_threads(1)

_OTHERS = ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_REGION", "AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_SESSION_TOKEN")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are counted, not spelled: files carry the time they were made at, and workers must collect the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public weights, images and reference values that lies beside the checkout."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"reference data are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3-compatible server with an empty bucket; nothing in this process points to it yet."""
    if given := given_server():
        yield given
        return
    with running_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, as the environment's object storage; what a test changes there is undone."""
    for name in _OTHERS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    PatientS3FileSystem.clear_instance_cache()
    return s3_server

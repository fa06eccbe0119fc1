"""Places that cannot be used, or must not be named so: one line each, nothing shown that is secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystitch.access import without_credentials
from raystitch.cli import main
from raystitch.config import server_url

SECRET = "sekretsekret"
QUICKSTART = str(Path(__file__).parents[1] / "configs" / "quickstart.yaml")


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET}@host/x.yaml",
        f"zip://a.zip::https://user:{SECRET}@host/x",
        f"gs://bucket/x?X-Goog-Signature={SECRET}",
        f"https://host/x?access_token={SECRET}",
        f"https://host/x?a=b&aws_secret_access_key={SECRET}",
        f"https://host/x#token={SECRET}",
        f"https://host/x?api_key={SECRET}",
        f"https://host/x?sig={SECRET}",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["plan", "URL"],
        ["status", "--storage", "URL"],
        ["data", "show", "URL"],
        ["data", "import", "URL", "target"],
        ["validate", QUICKSTART, "--set", "data.digits={source: webdataset, path: 'URL'}"],
        ["validate", QUICKSTART, "--set", "data.digits={source: folder, path: x, classes: 'URL'}"],
    ],
)
def test_credentials_are_refused_unseen_wherever_a_place_is_named(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([part.replace("URL", url) for part in command]) == 2
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert "credentials" in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["compact", "URL"], ["--storage", "URL", "status"], ["points", "resnet18", "--size", "URL"]]
)
def test_arguments_that_cannot_be_parsed_show_no_password(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([part.replace("URL", f"https://me:{SECRET}@host/x") for part in command])
    told = capsys.readouterr().err
    assert SECRET not in told
    assert "***" in told


def test_places_without_credentials_are_left_alone() -> None:
    for place in ("s3://bucket/a@b", "https://host/x?design=1", "C:/what?token=x", "runs/a@b", "zip://a::s3://b/c"):
        assert without_credentials(place) == place


@pytest.mark.parametrize("url", ["http://h:abc", "http://h:99999", "http://h:0", "http://[::1", "http://:80", "h:80"])
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="give the URL of a server"):
        server_url(url)


def test_servers_are_taken_as_they_are() -> None:
    for url in ("http://127.0.0.1:9000", "HTTPS://minio.lab", "http://[::1]:9000/"):
        assert server_url(url) == url


@pytest.mark.parametrize(
    ("storage", "told"),
    [("://x", "neither a folder nor a URL"), ("", "give a folder"), (" ", "give a folder"), ("~nobody-here/x", "home")],
)
def test_what_is_no_place_is_one_line(storage: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["status"], ["compact"]):
        assert main([*command, "--storage", storage]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1


def test_memory_is_refused_before_a_sweep_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART, "--storage", "memory://x"]) == 2
    assert "no worker reaches" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["data", "show", ""], ["data", "import", "", "target"]])
def test_no_dataset_at_all_is_one_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "give a folder or URL" in error
    assert error.count("\n") == 1

"""A real S3-compatible server for tests (SeaweedFS, from its PyPI wheel), on loopback, with keys of its own."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import pyarrow.fs

BUCKET = "bucket"  # one for a whole run: each file of tests keeps to folders that no other file names
_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")


@dataclass(frozen=True)
class S3Server:
    """Where the server listens, and with which keys it lets one in."""

    endpoint: str
    key: str
    secret: str
    reader: tuple[str, str] | None = None
    """Key and secret of one who may list and read, but not write; None where the server knows no such."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> pyarrow.fs.S3FileSystem:
        """Another client than the product's own, to look at what it wrote."""
        scheme, _, place = self.endpoint.partition("://")
        return pyarrow.fs.S3FileSystem(
            access_key=self.key, secret_key=self.secret, endpoint_override=place, scheme=scheme, region="us-east-1",
            allow_bucket_creation=True,
        )  # fmt: skip

    def files(self, prefix: str) -> dict[str, bytes]:
        """Every object below a prefix of the bucket."""
        fs, place = self.client(), f"{BUCKET}/{prefix}"
        found = fs.get_file_info(pyarrow.fs.FileSelector(place, recursive=True, allow_not_found=True))
        names = [info.path for info in found if info.type == pyarrow.fs.FileType.File]
        return {name.removeprefix(f"{place}/"): fs.open_input_file(name).readall() for name in names}


def given_server() -> S3Server | None:
    """The server that the environment names for tests, such as the one of ``tests/ceph_gateway.sh``."""
    if not os.environ.get("RAYSTITCH_TEST_S3"):
        return None
    return S3Server(
        os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    )


@contextmanager
def running_server(folder: Path) -> Iterator[S3Server]:
    """Start the server with its files in ``folder`` and an empty bucket; stop it at the end."""
    key, secret = f"key{token_hex(8)}", f"{token_hex(8)}/{token_hex(8)}+secret"  # in no file but the server's own
    reader = (f"key{token_hex(8)}", token_hex(16))
    identities = [
        _identity("t", key, secret, ["Admin", "Read", "Write", "List", "Tagging"]),
        _identity("reader", *reader, ["Read", "List"]),
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    named = [
        f"-{name.replace('.grpc', '')}.port{'.grpc' if name.endswith('.grpc') else ''}={ports[name]}" for name in _PORTS
    ]
    command = [
        str(Path(sys.executable).with_name("weed")), "-logtostderr=true", "server", f"-dir={folder}", "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1", *named, "-master.volumeSizeLimitMB=64", "-volume.max=100", "-master.telemetry=false",
        "-filer", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}",
    ]  # fmt: skip
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env={**os.environ, "HOME": str(folder)})
    try:
        server = S3Server(f"http://127.0.0.1:{ports['s3']}", key, secret, reader)
        _await_bucket(server, process, folder / "weed.log")
        yield server
    finally:
        process.kill()  # asked kindly, it takes half a minute
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        Path(f"/tmp/seaweedfs-filer-grpc-{ports['filer.grpc']}.sock").unlink(missing_ok=True)  # has no option


def _identity(name: str, key: str, secret: str, actions: list[str]) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


def _await_bucket(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            fs = server.client()
            fs.create_dir(BUCKET)
            with fs.open_output_stream(f"{BUCKET}/ready") as stream:
                stream.write(b"1")
            fs.delete_file(f"{BUCKET}/ready")
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, between those of Ray workers and of outgoing connections."""
    found: list[socket.socket] = []
    while len(found) < count:
        each = socket.socket()
        try:
            each.bind(("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)))
            found.append(each)
        except OSError:
            each.close()
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports

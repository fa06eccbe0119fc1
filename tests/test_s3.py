"""Object storage on a real S3-compatible server: faults are waited out, large files arrive, all clients find the same place."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from faulty_proxy import FaultyProxy, faulty_proxy
from s3server import BUCKET, S3Server, free_ports

from raystitch import access, s3
from raystitch.access import Access
from raystitch.errors import InputError
from raystitch.s3 import PatientS3FileSystem
from raystitch.store import Store

pytestmark = pytest.mark.xdist_group("s3")


def open_store(name: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    PatientS3FileSystem.clear_instance_cache()
    return Store(f"s3://{BUCKET}/s3/{name}")


def test_every_fault_of_five_in_a_hundred_is_waited_out(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_proxy(s3.endpoint) as proxy:
        store = open_store("faults", proxy.url, monkeypatch)
        wanted = {f"{n:03d}": str(n).encode() * 100 for n in range(150)}
        for name, data in wanted.items():
            store.publish(f"fits/{name}", data)
            assert store.exists(f"fits/{name}")
        assert store.names("fits") == set(wanted)
        assert list(store.read_many([f"fits/{name}" for name in wanted]).values()) == list(wanted.values())
        assert min(proxy.faults.values()) >= 3, proxy.faults
    assert s3.files("s3/faults/fits") == wanted, "nothing is lost, doubled or mixed up"


def test_a_server_that_is_away_is_waited_for(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_proxy(s3.endpoint) as proxy:
        store = open_store("away", proxy.url, monkeypatch)
        store.publish("fits/before", b"1")
        proxy.leave()
        threading.Timer(15, proxy.come_back).start()  # longer than botocore itself would try
        assert store.publish("fits/while", b"2")
        assert store.names("fits") == {"before", "while"}


def _spare_later_ones(proxy: FaultyProxy) -> None:
    """Faults end with the first."""
    while not sum(proxy.faults.values()):
        time.sleep(0.001)
    proxy.every = 1000


def test_an_answer_that_was_lost_is_no_error(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_proxy(s3.endpoint, every=1) as proxy:
        proxy.faults = {"lost": 0}
        store = open_store("lost", proxy.url, monkeypatch)
        threading.Thread(target=_spare_later_ones, args=(proxy,), daemon=True).start()
        store.publish("fits/x", b"whole")
        store.replace("fits/y", b"whole")
        assert proxy.faults["lost"] >= 1
    assert s3.files("s3/lost/fits") == {"x": b"whole", "y": b"whole"}


def test_a_large_file_goes_in_parts(s3: S3Server) -> None:
    data = os.urandom(1 << 20) * 101  # above 100 MB s3fs uploads parts, and the last request makes the file
    store = Store(f"s3://{BUCKET}/s3/large")
    assert store.publish("models/big", data)
    assert not store.publish("models/big", data[::-1])
    assert store.read("models/big") == data
    assert s3.files("s3/large/models")["big"] == data


def test_a_mistyped_endpoint_is_one_line_within_seconds(monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> None:
    store = open_store("x", f"http://127.0.0.1:{free_ports(1)[0]}", monkeypatch)
    monkeypatch.setattr(sys.modules["raystitch.s3"], "FIRST_CONTACT_SECONDS", 0.5)
    with pytest.raises(InputError, match=rf"storage = 's3://{BUCKET}/s3/x': cannot be written to: Could not connect"):
        store.check_writable()


@pytest.mark.parametrize(
    ("name", "problem"), [("AWS_SECRET_ACCESS_KEY", "[Ss]ignature"), ("AWS_ACCESS_KEY_ID", "[Aa]ccess")]
)
def test_wrong_keys_are_one_line_without_them(
    name: str, problem: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "wrong-and-private-value")
    PatientS3FileSystem.clear_instance_cache()
    with pytest.raises(InputError, match=f"cannot be written to: .*{problem}") as caught:
        Store(f"s3://{BUCKET}/s3/x").check_writable()
    text = str(caught.value)
    assert not any(secret in text for secret in ("wrong-and-private-value", s3.key, s3.secret))
    assert "\n" not in text


def test_a_store_that_was_used_still_travels_and_forks(s3: S3Server) -> None:
    store = Store(f"s3://{BUCKET}/s3/travel")
    store.publish("x", b"1")
    assert pickle.loads(pickle.dumps(store)).read("x") == b"1"
    child = os.fork()
    if not child:
        os._exit(0 if store.read("x") == b"1" else 1)
    assert os.waitpid(child, 0)[1] == 0


_LOOK = """
import os, pickle, sys
import pyarrow.fs
from raystitch.store import Store
assert not any(name.startswith("AWS_") for name in os.environ)
pickle.loads(bytes.fromhex(sys.argv[1])).apply()
assert Store("s3://bucket/s3/access").read("x") == b"1"
fs, place = pyarrow.fs.FileSystem.from_uri("s3://bucket/s3/access")
assert fs.open_input_file(f"{place}/x").readall() == b"1"
with fs.open_output_stream(f"{place}/y") as stream:
    stream.write(b"2")
assert Store("s3://bucket/s3/access").read("y") == b"2"
"""


@pytest.mark.parametrize("source", ["environment", "profile"])
def test_another_process_reaches_the_same_place_with_both_clients(
    source: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(f"s3://{BUCKET}/s3/access").publish("x", b"1")
    if source == "profile":
        (tmp_path / "keys").write_text(f"[lab]\naws_access_key_id = {s3.key}\naws_secret_access_key = {s3.secret}\n")
        (tmp_path / "config").write_text(f"[profile lab]\nregion = us-east-1\nendpoint_url = {s3.endpoint}\n")
        for name in s3.environment:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        access.fill_in(None, None, "lab")
    found = Access.of_this_process()
    assert s3.secret not in repr(found)
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-c", _LOOK, pickle.dumps(found).hex()]
    done = subprocess.run(command, env={**bare, "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_environment_says_comes_first(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    access.fill_in("http://of-the-study", "eu-west-1", None)
    assert "AWS_ENDPOINT_URL_S3" not in os.environ
    assert os.environ["AWS_DEFAULT_REGION"] == "eu-west-1"
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    access.fill_in("http://of-the-study", None, None)
    assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://of-the-study"


def test_credentials_are_taken_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret/of+mine")
    assert access.redact("denied for a-secret/of+mine, sorry") == "denied for ***, sorry"


def test_passwords_in_urls_are_taken_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:a%2Bpassword@lab.example/mlflow")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy-user:proxy-word@proxy:3128")
    assert access.redact("401 from https://me:a%2Bpassword@lab.example/x") == "401 from https://***@lab.example/x"
    assert access.redact("user me, password a+password, via proxy-word") == "user me, password ***, via ***"
    monkeypatch.setenv("MY_REPOSITORY", "https://ghp_hunterhunter@host/x?sig=a-signature")
    assert access.redact("ghp_hunterhunter failed, a-signature as well") == "*** failed, *** as well"
    assert access.redact("https://x.org/?max_tokens=5") == "https://x.org/?max_tokens=5"
    assert access.redact("http://b/c?X-Amz-Signature=abc&d=1 is gone") == "http://b/c?X-Amz-Signature=***&d=1 is gone"
    assert access.redact("https://lab.example/a?b=c, see me@lab") == "https://lab.example/a?b=c, see me@lab"


def test_pauses_grow_and_end() -> None:
    pauses = [s3._growing(attempt) for attempt in range(1, 60)]
    assert pauses[0] <= 0.1
    assert max(pauses) <= s3.LONGEST_PAUSE
    assert sum(pauses) > 60, "a request is repeated for a minute and longer"

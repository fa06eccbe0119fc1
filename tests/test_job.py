"""A study as a Ray job with its results on object storage: the same table as on a laptop, whatever happens on the way.

The keys are known to the job's driver alone, by a profile; the head and its workers are started without any.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest
from faulty_proxy import faulty_proxy
from ray_head import REPOSITORY, Head, environment, running_head, with_token
from s3server import BUCKET, S3Server
from waiting import wait_for

import raystitch

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(1200)]

CONFIG = "configs/quickstart.yaml"
SMALL = {
    "models.clean.train.epochs": 4,
    "models.pixel.train.epochs": 4,
    "models.clean.seeds": "0-1",
    "models.pixel.seeds": 1,
    "data.digits.limit.train": 720,
    "data.marked.limit.train": 720,
    "settings.cross-seed.front": "clean/1",
    "settings.cross-bias.front": "pixel/1",
    "points": [2, 4],
    "objectives": ["slm", "dm"],
    "iri.steps": 10,
    "fit.epochs": 2,
}
FITS = 3 * 2 * 2 * 2
ARGUMENTS = [CONFIG, *(part for key, value in SMALL.items() for part in ("--set", f"{key}={json.dumps(value)}"))]
UNITS = ("models", "iris", "fits", "predictions")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Head]:
    keys = tmp_path_factory.mktemp("aws") / "credentials"
    keys.write_text(f"[lab]\naws_access_key_id = {s3_server.key}\naws_secret_access_key = {s3_server.secret}\n")
    with running_head(AWS_SHARED_CREDENTIALS_FILE=str(keys)) as started:
        yield started


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of an undisturbed run of the same study on this machine."""
    storage = tmp_path_factory.mktemp("reference")
    command = [sys.executable, "-m", "raystitch.sweep", *ARGUMENTS, "--storage", str(storage)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return storage


def sweep(endpoint: str, prefix: str) -> list[str]:
    where = ["--storage", f"s3://{BUCKET}/{prefix}", "--endpoint", endpoint, "--set", "s3.profile=lab"]
    return ["python", "-m", "raystitch.sweep", *ARGUMENTS, *where]


def table(storage: str) -> pd.DataFrame:
    return raystitch.load_results(storage, "quickstart").drop(columns=["created", "wall_s", "version", "git_commit"])


def check_same(s3: S3Server, prefix: str, reference: Path) -> None:
    """The same table and the same files as of the undisturbed run: nothing is lost, nothing is there twice."""
    pd.testing.assert_frame_equal(table(f"s3://{BUCKET}/{prefix}"), table(str(reference)), check_exact=True)
    wanted = {str(p.relative_to(reference)) for kind in UNITS for p in (reference / kind).rglob("*") if p.is_file()}
    found = s3.files(prefix)
    assert {name for name in found if name.startswith(UNITS)} == wanted
    assert not [name for name in found if name.startswith(("failures/", ".tmp"))]


def wait_until(condition: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    """Wait until a condition holds while a job runs."""
    wait_for(lambda: condition() or job.poll() is not None, seconds=400, every=0.1)
    assert job.poll() is None, job.communicate()[0]


def drivers(storage: str) -> list[str]:
    """Command lines of sweeps that run now."""
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in processes.splitlines() if storage in line and "job submit" not in line]


def test_a_stopped_job_goes_on_and_gives_the_table_of_a_local_run(head: Head, s3: S3Server, reference: Path) -> None:
    command = sweep(s3.endpoint, "job")
    first = head.start(*command)
    wait_until(lambda: len(s3.files("job/fits")) >= 3, first)
    job = re.search(r"raysubmit_\w+", head.ray("list"))
    assert job is not None
    head.ray("stop", job[0])
    assert "was stopped" in head.ray("status", job[0])
    streamed = first.communicate(timeout=60)[0]
    assert re.search(r"model \d/3", streamed), "progress was shown while the job ran"
    assert not drivers(f"s3://{BUCKET}/job")
    kept = {name: data for kind in UNITS for name, data in s3.files(f"job/{kind}").items()}
    assert sum(name.endswith(".parquet") for name in kept) < FITS
    again = head.submit(*command)
    assert again.returncode == 0, again.stdout
    assert f"results  s3://{BUCKET}/job\n" in again.stdout
    check_same(s3, "job", reference)
    found = {name: data for kind in UNITS for name, data in s3.files(f"job/{kind}").items()}
    assert kept.items() <= found.items(), "what was done before the stop was not computed again"
    assert b"cross-bias" in s3.files("job/reports")["quickstart/index.html"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "fit.epochs=none"], "raystitch: fit.epochs = 'none': give an integer"),
        (["--storage", "./runs"], "raystitch: storage = './runs': would be deleted with the job's working directory"),
    ],
)
def test_a_job_says_what_is_wrong_and_that_it_failed(arguments: list[str], problem: str, head: Head) -> None:
    done = head.submit("python", "-m", "raystitch.sweep", CONFIG, *arguments)
    assert done.returncode != 0
    assert problem in done.stdout
    assert "exit code 2" in done.stdout


def test_nobody_submits_without_the_token(head: Head) -> None:
    before = head.ray("list").count("raysubmit_")
    for token in ("", "0" * 64):
        command = head.job("python", "-m", "raystitch.sweep", CONFIG)
        env = with_token(token) if token else environment()
        done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode != 0
        assert "Authentication" in done.stdout + done.stderr
    assert head.ray("list").count("raysubmit_") == before


def test_faults_and_an_absence_of_30_s_change_nothing(head: Head, s3: S3Server, reference: Path) -> None:
    with faulty_proxy(s3.endpoint) as proxy:
        job = head.start(*sweep(proxy.url, "faults"))
        wait_until(lambda: len(s3.files("faults/iris")) >= 2, job)
        proxy.leave()
        time.sleep(30)
        assert job.poll() is None
        proxy.come_back()
        shown = job.communicate(timeout=500)[0]
        assert job.returncode == 0, shown
        assert sum(proxy.faults.values()) >= 10, proxy.faults
    check_same(s3, "faults", reference)


def test_a_torn_shard_is_made_again(head: Head, s3: S3Server, reference: Path) -> None:
    """Runs on what the test before left: a shard is cut short, and the fits on it are lost."""
    fs, found = s3.client(), s3.files("faults")
    study = json.loads(found["sweeps/quickstart/study.json"])
    label = "pixel/1 point 4 on marked"
    shard = next(unit["id"] for unit in study["units"] if unit["label"] == label)
    name = f"iris/{shard}/shard-00001.tar"
    with fs.open_output_stream(f"{BUCKET}/faults/{name}") as stream:
        stream.write(found[name][:5000])
    lost = [unit["marker"] for unit in study["units"] if unit["kind"] == "fit" and shard in unit["parents"]]
    assert lost
    for marker in lost:
        fs.delete_file(f"{BUCKET}/faults/{marker}")
    command = sweep(s3.endpoint, "faults")
    first = head.submit(*command)
    assert first.returncode != 0
    assert "shard-00001.tar was damaged" in first.stdout
    assert "exit code 1" in first.stdout
    second = head.submit(*command)
    assert second.returncode == 0, second.stdout
    check_same(s3, "faults", reference)
    assert list(s3.files("faults/damaged")) == [name]


def test_no_secret_is_written_anywhere(head: Head, s3: S3Server, reference: Path) -> None:
    """Everything that the jobs above wrote: the storage with tables and reports, and all of Ray's session."""
    written = {
        str(path): path.read_bytes() for path in head.folder.rglob("*") if path.is_file() and not path.is_symlink()
    }
    written |= s3.files("")
    assert len([name for name in written if "job-driver" in name]) >= 2
    for secret in (s3.key, s3.secret, head.token):
        forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], base64.b64encode(secret.encode()).decode()}
        for form in forms:
            assert not [name for name, content in written.items() if form.encode() in content], form

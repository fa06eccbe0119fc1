"""Benchmarks: the command tells what is wrong in one line, leaves nothing running, and writes its tables."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from waiting import wait_for

ROOT = Path(__file__).parents[1]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "--threads", "1", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data", "nowhere"], "benchmarks: --data = 'nowhere': no such folder"),
        (["--data", ".", "--weights", "nowhere"], "benchmarks: --weights = 'nowhere': has no resnet20-12fca82f.th"),
        (["invert"], "benchmarks: no benchmark 'invert'; known: inversion_step,"),
        (["--threads", "0"], "benchmarks: --threads 0: give 1 to 1024"),
        (["--threads", "1000000"], "benchmarks: --threads 1000000: give 1 to 1024"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], told: str) -> None:
    found = run(*arguments)
    assert found.returncode == 2
    assert found.stderr.startswith(told)
    assert found.stderr.count("\n") == 1


def test_folder_without_images_is_one_line(tmp_path: Path, shared: Path) -> None:
    found = run("inversion_step", "--data", tmp_path, "--weights", shared / "models", "--output", tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith("benchmarks: data.cifar10.path = ")
    assert "no .parquet files of the train split" in found.stderr
    assert found.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def write_images(folder: Path, count: int) -> None:
    """Both splits, images of 28 pixels."""
    picture = BytesIO()
    Image.new("RGB", (28, 28)).save(picture, "PNG")
    rows = [{"image": {"bytes": picture.getvalue()}, "label": row % 10} for row in range(count)]
    for split in ("train", "test"):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize(("name", "few"), [("fitting", 20), ("actors", 100)])
def test_other_data_than_cifar_10_is_one_line(name: str, few: int, tmp_path: Path, shared: Path) -> None:
    """Actors ask for the number of images alone."""
    write_images(tmp_path, few)
    found = run(name, "--data", tmp_path, "--weights", shared / "models", "--output", tmp_path / "out")
    assert found.returncode == 2
    assert found.stderr.startswith(f"benchmarks: --data = '{tmp_path}': ")
    assert found.stderr.count("\n") == 1


def test_one_that_refuses_its_input_lets_the_others_run(tmp_path: Path, shared: Path) -> None:
    """Too few images for actors are enough to stream."""
    write_images(tmp_path, 70)
    out = tmp_path / "out"
    found = run("actors", "streaming", "--quick", "--data", tmp_path, "--weights", shared / "models", "--output", out)
    assert found.returncode == 2
    assert found.stderr.startswith(f"benchmarks: --data = '{tmp_path}': has fewer than ")
    assert found.stderr.count("\n") == 1
    (record,) = json.loads((out / "results.json").read_text())["benchmarks"]
    assert record["name"] == "streaming"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of children")
def test_tables_that_cannot_be_written_are_shown(tmp_path: Path, shared: Path) -> None:
    out = tmp_path / "out"
    process, _ = begin("streaming", "--quick", "--output", out, shared=shared)
    out.rename(tmp_path / "away")
    out.write_text("mine")
    shown, told = process.communicate(timeout=300)
    assert process.returncode == 1
    assert told == f"benchmarks: --output = '{out}': cannot be written: File exists\n"
    assert "| streaming | share of" in shown
    assert out.read_text() == "mine"


def test_tables_without_a_place_are_not_made(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "results.md").mkdir(parents=True)
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken", ""):
        found = run("scale", "--data", tmp_path, "--weights", shared / "models", "--output", place)
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr.startswith(f"benchmarks: --output = '{place}': give a folder")
        assert found.stderr.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def begin(
    *arguments: str | Path, shared: Path, environment: dict[str, str] | None = None
) -> tuple[subprocess.Popen[str], int]:
    """The command, and the process id of its first benchmark."""
    command = [sys.executable, "-m", "benchmarks", "--threads", "1", *map(str, arguments)]
    command += ["--data", str(shared / "data" / "cifar10"), "--weights", str(shared / "models")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(environment or {})}, **pipes)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(children.read_text)
    return process, int(children.read_text())


def session(leader: int) -> dict[int, str]:
    """Processes of a session that run, with their commands."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            state, _, _, number = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(number) == leader and state != "Z":
                found[int(path.name)] = (path / "cmdline").read_text()
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of children")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_benchmark_that_is_stopped_leaves_nothing_running(how: signal.Signals, tmp_path: Path, shared: Path) -> None:
    process, child = begin("scale", "--output", tmp_path, shared=shared)
    process.send_signal(how)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "benchmarks: stopped\n")
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of processes")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="actors need two cores")
@pytest.mark.xdist_group("ray")
def test_a_benchmark_that_is_killed_leaves_nothing_and_the_next_one_runs(tmp_path: Path, shared: Path) -> None:
    temporary, out = tmp_path / "t", tmp_path / "out"
    temporary.mkdir()
    environment = {"TMPDIR": str(temporary), "RAY_TMPDIR": "/tmp"}  # Ray's sockets have no room for long paths
    process, child = begin("actors", "streaming", "--quick", "--output", out, shared=shared, environment=environment)
    wait_for(lambda: any("ray::" in command for command in session(child).values()))
    os.kill(child, signal.SIGKILL)
    _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (1, "benchmarks: actors was ended by SIGKILL\n")
    assert not session(child)
    assert not list(temporary.glob("raystitch-benchmark-*"))
    (record,) = json.loads((out / "results.json").read_text())["benchmarks"]
    assert record["name"] == "streaming"


def test_quick_inversion_step_writes_finite_figures(tmp_path: Path, shared: Path) -> None:
    places = ["--data", shared / "data" / "cifar10", "--weights", shared / "models", "--output", tmp_path]
    found = run("inversion_step", "--quick", *places)
    assert found.returncode == 0, found.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    (record,) = results["benchmarks"]
    assert results["quick"]
    assert results["machine"]["threads"] == 1
    assert len(record["figures"]) == 10
    assert all(math.isfinite(figure["value"]) and figure["value"] > 0 for figure in record["figures"])
    assert record["peak_memory"]["process_mib"] > 100
    assert (
        record["notes"][1]
        == "Steps are compiled before they are timed, which takes some 10 s for each prefix and precision."
    )
    text = (tmp_path / "results.md").read_text()
    assert all(figure["name"] in text for figure in record["figures"])


def test_quick_streaming_goes_through_both_sets_every_way(tmp_path: Path, shared: Path) -> None:
    places = ["--data", shared / "data" / "cifar10", "--weights", shared / "models", "--output", tmp_path]
    found = run("streaming", "--quick", *places)
    assert found.returncode == 0, found.stderr
    (record,) = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    hidden, *gains = record["figures"]
    assert math.isfinite(hidden["value"])
    assert [math.isfinite(gain["value"]) and gain["value"] > 0 for gain in gains] == [True, True]
    ways = ["preparation alone", "prepared in the loop", "prepared ahead"]
    expected = [["–", "device's work alone"], *([kind, way] for kind in ("mapped", "in memory") for way in ways)]
    assert [row[:2] for row in record["tables"][0]["rows"]] == expected


@pytest.mark.xdist_group("ray")
def test_quick_scale_finds_every_row_before_and_after_merging(tmp_path: Path, shared: Path) -> None:
    places = ["--data", shared / "data" / "cifar10", "--weights", shared / "models", "--output", tmp_path]
    found = run("scale", "--quick", *places)
    assert found.returncode == 0, found.stderr
    (record,) = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    assert [figure["unit"] for figure in record["figures"]] == ["s", "ms", "MiB", "s"]
    assert all(math.isfinite(figure["value"]) and figure["value"] > 0 for figure in record["figures"])
    # 1 front, 4 points, 2 arms, 4 objectives, 5 seeds: 160 fits, and both ends of the curves unstitched
    assert record["notes"][0].startswith("2 models, 4 IRI sets, 162 rows")

"""A study on a cluster as others see it: in the storage, in the metrics of the node, and in the trackers that it names."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
import urllib.request
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray_head import Head, running_head
from tensorboardX.proto.event_pb2 import Event

import raystitch
from raystitch.heartbeat import Word, read_words
from raystitch.store import Store

pytestmark = pytest.mark.xdist_group("ray")

NET = {"arch": "resnet_mini", "args": {"width": 8}, "data": "digits"}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "limit": {"train": 160, "test": 64}}},
    "models": {
        "net": {**NET, "seeds": "0-1", "untrained": True},
        "bad": {**NET, "train": {"epochs": 1, "lr": 1e30, "augment": "none", "batch": 32}},
    },
    "settings": {"pair": {"front": "net/1", "end": "net/0"}, "lost": {"front": "bad", "end": "net/0"}},
    "points": [4],
    "objectives": ["dm", "fula@1+slm"],
    "seeds": 2,
    "iri": {"steps": 150, "shard_size": 40},
    "fit": {"epochs": 4, "batch": 32, "init_images": 100},
}
SHARDS, FITS = 160 // 40, 2 * 2
"""Of the one IRI set that can be made; two arms × two objectives of the one pair that can be fitted."""
WANDB_KEY = "5c0ffee5" * 5
RUNS = {f"net-1.4-net-0.4-{arm}-seed2" for arm in ("real", "iri")}


@dataclass
class Seen:
    """What was seen of a run from outside while it went on, and what it left."""

    storage: Path
    folder: Path
    shown: str = ""
    code: int | None = None
    words: list[Word] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    unheard: str = ""


def scrape(head: Head) -> dict[str, float]:
    """The sweep's metrics by ``name kind``, as Prometheus would collect them."""
    try:
        with urllib.request.urlopen(head.metrics, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:  # the node's agent is not there yet
        return {}
    found = (re.fullmatch(r'ray_raystitch_(\w+)\{(.*kind="([^"]+)".*)\} (\S+)', line) for line in lines)
    return {f"{m[1]} {m[3]}": float(m[4]) for m in found if m and 'sweep="tiny"' in m[2] and "le=" not in m[2]}


def trackers(folder: Path) -> dict[str, Any]:
    track: dict[str, Any] = {"tensorboard": True}
    if find_spec("wandb"):
        track["wandb"] = {"project": "stitching"}
    if find_spec("mlflow"):
        track["mlflow"] = {"uri": (folder / "mlruns").as_uri(), "experiment": "stitches"}
    return track


def holding(secret: str, folder: Path) -> list[Path]:
    """Files that hold a text."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if secret.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("tracked")
    config, result = folder / "study.yaml", Seen(folder / "runs", folder)
    config.write_text(yaml.safe_dump({**STUDY, "track": trackers(folder)}))
    offline = {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "MLFLOW_ALLOW_FILE_STORE": "true"}
    offline["WANDB_API_KEY"] = WANDB_KEY
    store = Store(str(result.storage))
    command = ["python", "-m", "raystitch.sweep", str(config), "--storage", str(result.storage)]
    with running_head(RAY_metrics_report_interval_ms="500", **offline) as head:
        job = head.start(*command)
        while job.poll() is None:
            result.words += read_words(store, "tiny").values()
            result.metrics |= scrape(head)
            time.sleep(0.5)
        result.metrics |= scrape(head)
        result.shown, result.code = job.communicate()[0], job.returncode
        place = result.storage / "sweeps" / "tiny" / "running"
        place.rmdir()  # it is empty: the sweep has ended
        place.write_text("a file where the folder should be")
        result.unheard = head.submit(*command).stdout
        result.secrets = [str(file) for place in (folder, head.folder) for file in holding(WANDB_KEY, place)]
    return result


def test_the_run_itself(seen: Seen) -> None:
    assert seen.code != 0
    assert "failed: model bad/0" in seen.shown
    table = raystitch.load_results(str(seen.storage))
    assert (table.objective != "none").sum() == FITS


def test_it_was_told_of_in_the_storage(seen: Seen) -> None:
    assert seen.words
    assert list(seen.words[0].state.kinds)[:3] == ["model", "IRI shard", "IRI set"]
    rows = {(row.kind, row.label): row.place for word in seen.words for row in word.state.at_work}
    assert rows, "it was heard of while workers were busy"
    labels = {
        "model": r"(net|bad)/\d",
        "IRI shard": r"net/1 point 4 on digits, images \d+ to \d+",
        "IRI set": r"net/1 point 4.*",
    }
    for (kind, label), place in rows.items():
        assert re.fullmatch(labels.get(kind, r"net/1:\d → net/0:\d .*"), label)
        assert re.fullmatch(rf"{re.escape(socket.gethostname())} pid \d+", place) or kind not in labels


def test_a_storage_that_refuses_word_stops_nothing(seen: Seen) -> None:
    assert seen.unheard.count("what is running cannot be told to the storage") == 1
    assert "failed: model bad/0" in seen.unheard, "the rerun went on to try what was missing"
    assert "model 0/1 (1 failed)" in seen.unheard


def test_metrics_of_ray(seen: Seen) -> None:
    assert seen.metrics["units_finished_total model"] == 2
    assert seen.metrics["units_failed_total model"] == 1
    assert seen.metrics["units_finished_total IRI shard"] == SHARDS
    assert seen.metrics["units_finished_total IRI set"] == 1
    assert seen.metrics["units_failed_total IRI set"] == 1
    assert seen.metrics["units_finished_total fit"] == FITS
    assert seen.metrics["units_failed_total fit"] == FITS
    assert seen.metrics["units_running fit"] == 0
    assert seen.metrics["unit_seconds_count fit"] == FITS
    assert seen.metrics["unit_seconds_sum fit"] > 0


def test_nothing_was_said_of_trackers_that_work(seen: Seen) -> None:
    assert "track." not in seen.shown


def test_no_secret_is_written_anywhere(seen: Seen) -> None:
    assert not seen.secrets


def expected(seen: Seen, run: str) -> dict[str, float]:
    """What a run's trial must have reported, from the results table."""
    table = raystitch.load_results(str(seen.storage))
    rows = table[(table.arm == run.split("-")[4]) & (table.objective != "none")]
    names = ["agreement", "kappa", "top1", "top1_end", "match_error", "train_loss"]
    names += ["iri_r_median", "iri_r_p90"] if "iri" in run else []
    words = {"dm": "dm", "fula@1+slm": "fula-1-slm"}
    found = {f"{words[row.objective]}/test/{name}": getattr(row, name) for row in rows.itertuples() for name in names}
    return {name: value for name, value in found.items() if value == value}


def scalars(file: Path) -> dict[str, float]:
    """The scalars of a TensorBoard file: records of a length, a checksum of it, an event, and a checksum."""
    data, found = file.read_bytes(), dict[str, float]()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
        found |= {value.tag: value.simple_value for value in event.summary.value}
    return found


def test_tensorboard(seen: Seen) -> None:
    folders = {path.name.rsplit("-", 1)[0]: path for path in (seen.storage / "tensorboard" / "tiny").iterdir()}
    assert set(folders) >= RUNS
    for run in RUNS:
        (file,) = folders[run].iterdir()
        found = scalars(file)
        wanted = expected(seen, run)
        assert ("dm/test/iri_r_median" in wanted) == ("iri" in run)
        assert {name: found[f"ray/tune/{name}"] for name in wanted} == pytest.approx(wanted, rel=1e-6)


@pytest.mark.skipif(not find_spec("mlflow"), reason="needs mlflow (raystitch[tracking])")
def test_mlflow(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient((seen.folder / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("stitches")
    assert experiment is not None
    runs = {run.data.params["arm"]: run for run in client.search_runs([experiment.experiment_id])}
    for run in RUNS:
        data, wanted = runs[run.split("-")[4]].data, expected(seen, run)
        assert data.params["front"] == "net/1"
        assert data.tags["sweep"] == "tiny"
        assert {name: data.metrics[name] for name in wanted} == pytest.approx(wanted)


def records(file: Path) -> list[bytes]:
    """The records of a W&B run file: those of a LevelDB log, in blocks of 32 KiB, after 7 bytes of header."""
    data, at, found, part = file.read_bytes(), 7, list[bytes](), b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(part)
            part = b""
    return found


@pytest.mark.skipif(not find_spec("wandb"), reason="needs wandb (raystitch[tracking])")
def test_wandb(seen: Seen) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, dict[str, float]] = {}
    for file in (seen.folder / "wandb").glob("offline-run-*/*.wandb"):
        told = [Record.FromString(record) for record in records(file)]
        (name,) = {record.run.display_name for record in told} - {""}
        items = [item for record in told for item in record.history.item]
        found[name.rsplit("-", 2)[0]] = {o.key or "/".join(o.nested_key): json.loads(o.value_json) for o in items}
    for run in RUNS:
        wanted = expected(seen, run)
        assert {name: found[run][name] for name in wanted} == pytest.approx(wanted)

"""What may happen to a study on a cluster of several nodes; each ends with the table of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from ray_cluster import Cluster, Namespace, Sweep, namespace, titled
from waiting import wait_for

import raystitch

pytestmark = pytest.mark.xdist_group("ray")

STUDY: dict[str, Any] = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "limit": {"train": 160, "test": 64}}},
    "models": {
        "net": {"arch": "resnet_mini", "args": {"width": 8}, "data": "digits", "seeds": "0-1", "untrained": True}
    },
    "settings": {"pair": {"front": "net/1", "end": "net/0"}},
    "points": [1, 4],
    "objectives": ["dm", "slm"],
    "seeds": 2,
    "iri": {"steps": 150, "shard_size": 20},
    "fit": {"epochs": 10, "batch": 32, "init_images": 100},
}
SHARDS, FITS = 2 * 8, 2 * 2 * 2 + 2
"""Of each of two points eight; two points × two arms × two objectives, and both unstitched ends."""


@pytest.fixture(scope="module")
def place() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(place: Namespace) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="raystitch-"))
    try:
        yield Cluster(place, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    return file


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def undisturbed(place: Namespace, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The table of a run on a Ray of its own."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    run = Sweep(place, folder / "study.yaml", folder / "runs", {})
    assert run.end() == 0, run.shown
    table = values(folder / "runs")
    assert len(table) == FITS
    assert len(shards(folder / "runs")) == SHARDS
    return table


def values(storage: Path) -> pd.DataFrame:
    """Everything in the table that must not depend on when and how it was computed."""
    return raystitch.load_results(str(storage), "tiny").drop(columns=["created", "wall_s", "version", "git_commit"])


def shards(storage: Path) -> list[Path]:
    return list(storage.glob("iris/*/shard-*.tar"))


def fits(storage: Path) -> list[Path]:
    return list(storage.glob("fits/*.parquet"))


def check(storage: Path, undisturbed: pd.DataFrame) -> None:
    """Nothing is lost, nothing there twice, nothing called failed, and every value the same."""
    pd.testing.assert_frame_equal(values(storage), undisturbed, check_exact=True)
    assert len(fits(storage)) == FITS
    assert len(shards(storage)) == SHARDS
    assert not list(storage.glob("failures/*.json"))


def test_killed_workers_are_replaced(
    place: Namespace, cluster: Cluster, config: Path, storage: Path, undisturbed: pd.DataFrame
) -> None:
    cluster.have_nodes(2)
    run = cluster.sweep(config, storage)
    run.wait_for(lambda: shards(storage))
    kill_one(place, "ray::Worker.run", run)
    assert len(shards(storage)) < SHARDS, "an IRI actor was killed in the midst of the inversions"
    kill_one(place, "ray::ResourceTrainable.train", run)
    assert len(fits(storage)) < FITS, "a trial was killed in the midst of the fits"
    assert run.end() == 0, run.shown
    assert run.shown.count("was killed or crashed") == 2, run.shown
    check(storage, undisturbed)


def kill_one(place: Namespace, title: str, run: Sweep) -> None:
    """SIGKILL a worker while it is at work."""
    os.kill(at_work(place, title, run), signal.SIGKILL)


def at_work(place: Namespace, title: str, run: Sweep) -> int:
    """A worker that runs the method of this title just now."""
    found: list[int] = []
    run.wait_for(lambda: found.extend(titled(place, title)) or found)
    assert found, run.shown
    return found[0]


def test_a_lost_node(
    place: Namespace, cluster: Cluster, config: Path, storage: Path, undisturbed: pd.DataFrame
) -> None:
    cluster.have_nodes(2)
    run = cluster.sweep(config, storage)
    run.wait_for(lambda: shards(storage))
    cluster.kill_node_of(at_work(place, "ray::Worker.run", run))
    assert len(shards(storage)) < SHARDS, "the node went in the midst of the inversions"
    cluster.have_nodes(2)
    assert run.end() == 0, run.shown
    assert "its node was lost" in run.shown
    check(storage, undisturbed)


def test_a_killed_driver_and_a_rerun(cluster: Cluster, config: Path, storage: Path, undisturbed: pd.DataFrame) -> None:
    cluster.have_nodes(2)
    run = cluster.sweep(config, storage)
    run.wait_for(lambda: shards(storage))
    run.kill()
    assert len(fits(storage)) < FITS
    kept = {path: path.stat().st_mtime_ns for path in (*shards(storage), *fits(storage))}
    assert kept
    again = cluster.sweep(config, storage)
    assert again.end() == 0, again.shown
    check(storage, undisturbed)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "what was done was not done again"


def test_two_sweeps_of_a_study_at_once(
    cluster: Cluster, config: Path, storage: Path, undisturbed: pd.DataFrame
) -> None:
    cluster.have_nodes(2)
    both = [cluster.sweep(config, storage) for _ in range(2)]
    assert [run.end() for run in both] == [0, 0], [run.shown for run in both]
    check(storage, undisturbed)


def test_an_autoscaler_adds_nodes_for_a_study_and_takes_them_away(
    tmp_path: Path, storage: Path, undisturbed: pd.DataFrame
) -> None:
    resources = {
        "iri": {"num_cpus": 0.5, "num_gpus": 1},
        "fit": {"num_cpus": 0.5, "num_gpus": 0.5, "custom": {"slot": 1}},
    }
    config, log, folder = tmp_path / "study.yaml", tmp_path / "nodes.log", Path(tempfile.mkdtemp(prefix="raystitch-"))
    config.write_text(yaml.safe_dump({**STUDY, "resources": resources}))
    worker = {"resources": {"CPU": 1, "GPU": 1, "slot": 2, "object_store_memory": 100_000_000}, "max_workers": 3}
    with namespace() as place:
        cluster = Cluster(place, folder, worker)
        cluster.watch_nodes(log)
        wait_for(lambda: counts(log), log.read_text)
        run = cluster.sweep(config, storage)
        assert run.end() == 0, run.shown
        wait_for(lambda: counts(log)[-1] == 0, log.read_text)
    shutil.rmtree(folder, ignore_errors=True)
    assert "resources.iri.gpus = 1.0: no node has that yet (now: 0 GPUs); waiting for one" in run.shown
    assert counts(log)[0] == 0
    assert max(counts(log)) >= 2, "both models are made at once, each on a GPU of its own"
    check(storage, undisturbed)


def counts(log: Path) -> list[int]:
    """How many worker nodes there were, one number for each change."""
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("nodes:")]

"""A study whose config, data, class list and weights lie on object storage is checked as one of local files is."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image
from s3server import BUCKET, S3Server

from raystitch.cli import main
from raystitch.config import DataConfig
from raystitch.data import load_images
from raystitch.errors import InputError
from raystitch.nets import build_net, save_weights
from raystitch.store import Store

pytestmark = pytest.mark.xdist_group("s3")

SIDE, PER_CLASS = 16, 20
NORM = ((0.5,) * 3, (0.5,) * 3)


def png(seed: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def parquet(first: int) -> bytes:
    images = [{"bytes": png(first + n), "path": None} for n in range(2 * PER_CLASS)]
    stream = io.BytesIO()
    pq.write_table(pa.table({"image": images, "label": [n % 2 for n in range(2 * PER_CLASS)]}), stream)
    return stream.getvalue()


def put(place: Store, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        place.publish(name, data)


def folder_files() -> dict[str, bytes]:
    names = [(s, c, n) for s in ("train", "test") for c in ("ant", "bee") for n in range(PER_CLASS)]
    return {
        f"{split}/{name}/{n:02d}.png": png(1000 * (split == "test") + 100 * (name == "bee") + n)
        for split, name, n in names
    }


def cifar_archive() -> bytes:
    """Three images of each of the five train batches and of the test batch, in the layout of the python version."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"]):
            pixels = np.random.default_rng(number).integers(0, 256, (3, 3072), dtype=np.uint8)
            meta = {"label_names": [f"class {n}" for n in range(10)]}
            content = pickle.dumps(meta if "meta" in name else {"data": pixels, "labels": [number, 8, 9]})
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("source", ["folder", "parquet", "cifar", "webdataset"])
def test_images_are_the_same_from_both_places(source: str, s3: S3Server, tmp_path: Path) -> None:
    files = {
        "folder": folder_files(),
        "webdataset": folder_files(),
        "parquet": {"train.parquet": parquet(0), "test.parquet": parquet(1000)},
        "cifar": {"cifar.tar.gz": cifar_archive()},
    }[source]
    places = [Store(str(tmp_path / "data")), Store(f"s3://{BUCKET}/inputs/{source}")]
    loaded = []
    for place in places:
        put(place, files)
        url = f"{place.url}/cifar.tar.gz" if source == "cifar" else place.url
        if source == "webdataset":
            assert main(["data", "import", url, f"{place.url}-shards"]) == 0
            url = f"{place.url}-shards"
        config = DataConfig(source=source, path=url)  # type: ignore[arg-type]
        loaded.append([load_images(config, split, "data.x") for split in ("train", "test")])
    for local, remote in zip(*loaded, strict=True):
        assert len(local.labels) > 0
        assert local.images.equal(remote.images)
        assert local.labels.equal(remote.labels)


def test_everything_a_study_names_may_be_on_object_storage(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Store(f"s3://{BUCKET}/inputs/study")
    put(place, {f"data/{name}": data for name, data in folder_files().items()})
    place.publish("classes.txt", b"bee\nant\n")
    for seed in (0, 1):
        place.publish(f"net-{seed}.safetensors", save_weights(build_net("resnet_mini", 2, {}, *NORM, seed=seed)))
    study = {
        "name": "far",
        "data": {"x": {"source": "folder", "path": f"{place.url}/data", "classes": f"{place.url}/classes.txt"}},
        "models": {
            "net": {
                "arch": "resnet_mini",
                "data": "x",
                "seeds": "0-1",
                "normalise": "half",
                "checkpoint": f"{place.url}/net-{{seed}}.safetensors",
            }
        },
        "settings": {"pair": {"front": "net/0", "end": "net/1"}},
        "fit": {"batch": 16, "init_images": 30},
        "storage": f"{place.url}/runs",
    }
    place.publish("far.yaml", yaml.safe_dump(study).encode())
    assert main(["validate", f"{place.url}/far.yaml"]) == 0
    assert "far is valid: 2 models" in capsys.readouterr().out
    assert main(["plan", f"{place.url}/far.yaml", "--endpoint", s3.endpoint]) == 0
    assert main(["data", "show", f"{place.url}/far.yaml"]) == 0
    broken = f"models.net.checkpoint={place.url}/net-{{seed}}.pt"
    assert main(["validate", f"{place.url}/far.yaml", "--set", broken]) == 2
    assert capsys.readouterr().err == f"raystitch: models.net.checkpoint = '{place.url}/net-0.pt': no such file\n"


class _Trap:
    """Unpickled carelessly, it leaves a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def test_weights_and_archives_that_would_run_code_are_data(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark, place = tmp_path / "it-ran", Store(f"s3://{BUCKET}/inputs/hostile")
    put(place, {f"data/{name}": data for name, data in folder_files().items()})
    stream = io.BytesIO()
    torch.save({"state_dict": _Trap(mark)}, stream)
    place.publish("net.pt", stream.getvalue())
    study = {
        "data": {"x": {"source": "folder", "path": f"{place.url}/data"}},
        "models": {"net": {"arch": "resnet_mini", "data": "x", "checkpoint": f"{place.url}/net.pt"}},
        "settings": {"pair": {"front": "net", "end": "net"}},
        "fit": {"batch": 16, "init_images": 30},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    assert main(["validate", str(tmp_path / "study.yaml")]) == 2
    assert "cannot be read as a torch (plain tensors only) file" in capsys.readouterr().err
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in (
            "cifar-10-batches-py/data_batch_1",
            "cifar-10-batches-py/batches.meta",
            "../../escaped",
            "/tmp/escaped",
        ):
            entry, content = tarfile.TarInfo(name), pickle.dumps(_Trap(mark))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    place.publish("cifar.tar.gz", archive.getvalue())
    with pytest.raises(InputError, match="data_batch_1"):
        load_images(DataConfig(source="cifar", path=f"{place.url}/cifar.tar.gz"), "train", "data.x")
    assert not mark.exists()
    assert not [path for path in (tmp_path.parent, Path("/tmp")) if (path / "escaped").exists()]

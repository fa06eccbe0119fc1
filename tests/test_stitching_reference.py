"""The reference fits of the method: ResNet-20 point 4 → ResNet-32 point 6 on 512 images or their IRIs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor

from raystitch.config import NORMALISATIONS, FitConfig
from raystitch.data import ImageSet
from raystitch.metrics import compare
from raystitch.nets import CutNet, build_net, cut, find_points, load_weights, read_weights
from raystitch.stitching import fit_stitches

ALL = ("hlm", "slm", "fula", "dm")
TOLERANCE = 1.5


def first_rows(shared: Path, split: str, count: int) -> ImageSet:
    table = pq.read_table(next((shared / "data" / "cifar10").glob(f"{split}-*.parquet"))).slice(0, count)
    pictures = [np.asarray(Image.open(io.BytesIO(cell["bytes"])).convert("RGB")) for cell in table["img"].to_pylist()]
    return ImageSet(
        torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2), torch.tensor(table["label"].to_pylist()), 10
    )


def public_net(shared: Path, depth: int) -> CutNet:
    file = next((shared / "models").glob(f"resnet{depth}-*.th"))
    net = build_net(f"cifar_resnet{depth}", 10, {}, *NORMALISATIONS["imagenet"])
    load_weights(net, read_weights(file.read_bytes(), file.name), file.name)
    return cut(net.eval(), find_points(net, 32))


@torch.no_grad()
def batched(net: CutNet, z: Tensor, start: int, stop: int) -> Tensor:
    return torch.cat([net.run(part, start, stop) for part in z.split(250)])


@pytest.mark.parametrize("arm", ["real", "iri"])
def test_fits_are_the_reference(shared: Path, arm):
    front, end = public_net(shared, 20), public_net(shared, 32)
    train, test = first_rows(shared, "train", 1012), first_rows(shared, "test", 1000)
    images = train.images[:512]
    if arm == "iri":
        images = torch.from_numpy(np.load(shared / "reference" / "iris_point4.npz")["iris"])
    fits = fit_stitches(
        front, end, 4, 6, ALL, ImageSet(images, train.labels[:512], 10), train.images[512:], FitConfig(epochs=9),
        "matched", arm, seed=1,
    )  # fmt: skip
    expected = json.loads((shared / "reference" / "fits_point4.json").read_text())["rows"]
    pixels = test.images.float() / 255
    z, own = batched(front, pixels, 0, 4), batched(end, pixels, 0, end.n + 1)
    measured = {}
    for name, fitted in fits.items():
        with torch.no_grad():
            logits = batched(fitted.end, fitted.stitch(z), 6, end.n + 1)
        measured[name] = compare(logits, own, test.labels)
    for row in (row for row in expected if row["arm"] == arm):
        for metric in ("agreement", "top1"):
            assert measured[row["objective"]][metric] == pytest.approx(row[metric], abs=TOLERANCE), row

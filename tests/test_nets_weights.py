"""Weights: public files load and classify as known; wrong files get one clear line."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms.functional import pil_to_tensor

from raystitch.config import NORMALISATIONS
from raystitch.errors import InputError
from raystitch.nets import NormalisedNet, build_net, fingerprint, load_weights, read_weights, save_weights


def mini(num_classes=4, **args):
    return build_net("resnet_mini", num_classes, {"width": 4, **args}, *NORMALISATIONS["cifar10"], seed=1)


def torch_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.fixture(scope="module")
def cifar_test(shared):
    rows = next(pq.ParquetFile(shared / "data/cifar10/test-00000-of-00001.parquet").iter_batches(2000)).to_pydict()
    images = [pil_to_tensor(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows["img"]]
    return torch.stack(images).float() / 255, torch.tensor(rows["label"])


@pytest.mark.parametrize(
    ("depth", "file", "top1"), [(20, "resnet20-12fca82f.th", 82.0), (32, "resnet32-d509ac18.th", 83.4)]
)
def test_public_cifar_weights_classify_as_published(shared, cifar_test, depth, file, top1):
    net = build_net(f"cifar_resnet{depth}", 10, {}, *NORMALISATIONS["imagenet"]).eval()
    load_weights(net, read_weights((shared / "models" / file).read_bytes(), file), file)
    images, labels = cifar_test
    with torch.inference_mode():
        right = sum(
            int((net(x).argmax(1) == y).sum()) for x, y in zip(images.split(250), labels.split(250), strict=True)
        )
    assert 100 * right / 2000 == pytest.approx(top1, abs=0.05)


def test_half_precision_imagenet_weights_classify_photographs(shared):
    file = "tf_efficientnet_lite0.fp16.safetensors"
    weights = read_weights((shared / "models" / file).read_bytes(), file)
    assert all(tensor.dtype is torch.float32 for tensor in weights.values() if tensor.is_floating_point())
    net = build_net("tf_efficientnet_lite0", 1000, {}, *NORMALISATIONS["half"]).eval()
    load_weights(net, weights, file)
    rows = pq.read_table(shared / "data/imagenet_sample/validation-00000-of-00001.parquet").slice(0, 30).to_pydict()
    column = next(name for name in rows if isinstance(rows[name][0], dict))
    images = [Image.open(io.BytesIO(row["bytes"])).convert("RGB").resize((224, 224), 3) for row in rows[column]]
    with torch.inference_mode():
        guess = net(torch.stack([pil_to_tensor(image) for image in images]).float() / 255).argmax(1)
    assert (guess == torch.tensor(rows["label"])).float().mean() > 0.75  # known: 0.90 on all 200


def test_saved_weights_come_back_exactly_and_give_the_same_bytes():
    net, other = mini(), build_net("resnet_mini", 4, {"width": 4}, *NORMALISATIONS["cifar10"], seed=2)
    data = save_weights(net)
    load_weights(other, read_weights(data, "mini.safetensors"), "mini.safetensors")
    assert fingerprint(other) == fingerprint(net)
    assert save_weights(other) == data


def test_a_net_whose_own_names_look_like_prefixes_comes_back_too():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(3, 2)

    net, other = NormalisedNet(Wrapped(), (0,) * 3, (1,) * 3), NormalisedNet(Wrapped(), (0,) * 3, (1,) * 3)
    load_weights(other, read_weights(save_weights(net), "w.safetensors"), "w")
    assert fingerprint(other) == fingerprint(net)


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict", "net"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module.", "backbone."])
def test_wrappers_and_prefixes_are_removed(wrapper, prefix):
    net = mini()
    state = {prefix + key: tensor for key, tensor in net.net.state_dict().items()}
    found = read_weights(torch_file({wrapper: state, "epoch": 3}), "old.pth")
    assert found.keys() == net.net.state_dict().keys()


def test_old_files_without_batchnorm_counters_load():
    net = mini()
    state = {k: t for k, t in net.net.state_dict().items() if not k.endswith("num_batches_tracked")}
    load_weights(mini(), state, "old.pth")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "a.pth"),
        (b"nonsense", "a.pth"),
        (b"nonsense", "a.safetensors"),
        (torch_file({"net": nn.Linear(2, 2)}), "whole_module.pth"),
    ],
    ids=["empty", "text", "text_safetensors", "module"],  # the bytes of the last differ from process to process
)
def test_unreadable_files(data, name):
    with pytest.raises(InputError, match=r"cannot be read as a .* file of weights") as error:
        read_weights(data, name)
    assert str(error.value).startswith(name)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("content", [{}, {"epoch": 3}, [1, 2], {"state_dict": {"a": 1}}])
def test_files_without_a_state_dict(content):
    with pytest.raises(InputError, match="holds no state dict"):
        read_weights(torch_file(content), "a.pth")


def changed(**tensors):
    return {**mini().net.state_dict(), **tensors}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": torch.zeros(1)}, "w.pth: does not fit resnet_mini: lacks conv1.weight, bn1.weight, bn1.bias and "),
        (changed(extra=torch.zeros(1)), "has unknown extra"),
        (mini(9).net.state_dict(), "w.pth: its classifier 'fc' has 9 classes, the dataset has 4"),
        (changed(**{"fc.weight": torch.zeros(4, 3)}), "fc.weight (4, 3) instead of (4, 16)"),
        (changed(**{"fc.bias": torch.tensor([0.0, float("nan"), 0.0, 0.0])}), "fc.bias holds NaN"),
        (changed(**{"bn1.running_var": torch.full((4,), float("inf"))}), "bn1.running_var holds NaN or infinite"),
    ],
)
def test_weights_that_do_not_fit_leave_the_net_unchanged(weights, message):
    net = mini()
    before = fingerprint(net)
    with pytest.raises(InputError) as error:
        load_weights(net, weights, "w.pth")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250
    assert fingerprint(net) == before

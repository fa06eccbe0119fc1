"""Damaged and odd weights, code of the user that fails, and nets that are no classifiers of the data: one line each."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from raystitch.errors import InputError
from raystitch.nets import NormalisedNet, build_net, find_points, load_weights, read_weights

HALF = (0.5,) * 3, (0.5,) * 3
NAN = float("nan")


def mini() -> NormalisedNet:
    return build_net("resnet_mini", 4, {"width": 4}, *HALF)


def torch_file(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def line(call: Any, *arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_flipped_bit_in_a_torch_file_is_noticed() -> None:
    data = torch_file(mini().net.state_dict())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entry = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
        place = data.index(archive.read(entry))
    damaged = bytearray(data)
    damaged[place] ^= 1
    assert "is damaged: the checksum of" in line(read_weights, bytes(damaged), "w.pth")
    read_weights(data, "w.pth")


ODD: dict[str, Callable[[], torch.Tensor]] = {
    "int64": lambda: torch.ones(4, 16, dtype=torch.int64),
    "uint8": lambda: torch.ones(4, 16, dtype=torch.uint8),
    "bool": lambda: torch.ones(4, 16, dtype=torch.bool),
    "complex": lambda: torch.ones(4, 16, dtype=torch.complex64),
    "sparse": lambda: torch.ones(4, 16).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4, 16), 0.1, 0, torch.qint8),
    "values": lambda: torch.ones(4, 16, device="meta"),
    "float8": lambda: torch.ones(4, 16).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_are_refused_without_a_warning(kind: str) -> None:
    net = mini()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = torch_file({**net.net.state_dict(), "fc.weight": ODD[kind]()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = line(load_weights, net, read_weights(data, "w.pth"), "w.pth")
    assert text.startswith("w.pth: fc.weight ")
    assert kind in text


@pytest.mark.parametrize("value", [1e300, NAN])
def test_numbers_that_do_not_fit_are_refused(value: float) -> None:
    state = mini().net.state_dict()
    weights = {**state, "fc.bias": torch.full((4,), value, dtype=torch.float64)}
    assert "fc.bias holds NaN or infinite" in line(load_weights, mini(), weights, "w.pth")
    counter = {**state, "bn1.num_batches_tracked": torch.tensor(NAN)}
    assert "bn1.num_batches_tracked holds NaN" in line(load_weights, mini(), counter, "w.pth")


MODULES = {
    "bad_syntax": "def net(:",
    "exits": "import sys\nsys.exit(3)",
    "raises": "{}['missing']",
    "fine": (
        "import sys\nfrom torch import nn\n"
        "def keyed(num_classes): return {}['missing']\n"
        "def leaves(num_classes): sys.exit('bye\\nbye')\n"
        "def mute(num_classes): raise AssertionError\n"
        "def empty(num_classes): return nn.Flatten()\n"
        "def lazy(num_classes): return nn.LazyLinear(num_classes)\n"
    ),
}


@pytest.mark.parametrize(
    ("arch", "parts"),
    [
        ("bad_syntax:net", ["failed", "SyntaxError"]),
        ("exits:net", ["failed", "SystemExit: 3"]),
        ("raises:net", ["failed", "KeyError: 'missing'"]),
        ("fine:keyed", ["failed: KeyError: 'missing'"]),
        ("fine:leaves", ["failed: SystemExit: bye bye"]),
        ("fine:mute", ["failed: AssertionError"]),
        ("fine:empty", ["has no parameters"]),
        ("fine:lazy", ["has lazy layers"]),
        ("fine:absent", ["cannot be imported"]),
        ("..:x", ["module:function"]),
        (".fine:keyed", ["module:function"]),
        (":x", ["module:function"]),
        ("fine:", ["module:function"]),
        ("fine/keyed:x", ["module:function"]),
    ],
)
def test_code_of_the_user_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, parts: list[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in MODULES.items():
        (tmp_path / f"bad_input_{name}.py").write_text(code)
    arch = f"bad_input_{arch}" if arch[0].isalpha() else arch
    text = line(build_net, arch, 4, {}, *HALF)
    assert text.startswith(f"arch = '{arch}': ")
    for part in parts:
        assert part in text


class Net(nn.Module):
    """Two points and logits, which a function may change."""

    def __init__(self, last: Any = None) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()) for _ in range(2)))
        self.head = nn.Linear(3, 4)
        self.last = last

    def forward(self, x: torch.Tensor) -> Any:
        logits = self.head(self.blocks(x).mean((2, 3)))
        return logits if self.last is None else self.last(logits)


def leave(logits: torch.Tensor) -> None:
    raise SystemExit(1)


def fail(logits: torch.Tensor) -> None:
    raise KeyError("missing")


@pytest.mark.parametrize(
    ("last", "part"),
    [
        (lambda z: z[:1], "of shape (1, 4)"),
        (lambda z: z[:, :, None], "of shape (2, 4, 1)"),
        (lambda z: (z, z), "not one tensor of logits"),
        (lambda z: z[:, :3], "returns 3 logits per image, but the data has 4 classes"),
        (lambda z: z.argsort(1), "dtype torch.int64"),
        (lambda z: z / 0, "NaN or infinite logits"),
        (leave, "does not take 8×8 images"),
        (fail, "'missing'"),
    ],
)
def test_an_output_that_is_no_logits_of_the_data(last: Any, part: str) -> None:
    assert part in line(find_points, NormalisedNet(Net(last), *HALF), 8, None, 4)


def test_points_with_and_without_the_number_of_classes() -> None:
    net = NormalisedNet(Net(), *HALF)
    assert find_points(net, 8) == find_points(net, 8, num_classes=4)
    assert "returns 4 logits per image, but the data has 5 classes" in line(find_points, net, 8, None, 5)


def test_nan_weights_and_normalisations_are_called_so() -> None:
    net = NormalisedNet(Net(), *HALF)
    net.net.blocks[1][0].bias.data[1] = NAN
    assert line(find_points, net, 8) == "arch = 'Net': blocks.1.0.bias holds NaN or infinite values"
    for mean, std in (((NAN, 0, 0), (1, 1, 1)), ((0, 0, 0), (1, float("inf"), 1))):
        assert line(find_points, NormalisedNet(Net(), mean, std), 8).startswith("normalise = 'Net': its mean or std")
    assert "check its weights and normalise" in line(find_points, NormalisedNet(Net(), (0.5,) * 3, (0,) * 3), 8)


def test_nan_inside_is_not_called_overwriting() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block1 = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Threshold(1e9, NAN))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block1(x).nan_to_num().mean((2, 3))

    assert "computes NaN or infinite values inside" in line(find_points, NormalisedNet(Masked(), *HALF), 8)


def test_points_may_come_in_any_order_but_once() -> None:
    net = NormalisedNet(Net(), *HALF)
    found = find_points(net, 8, ["blocks.1", "blocks.0"])
    assert [(point.index, point.module) for point in found] == [(1, "blocks.0"), (2, "blocks.1")]
    text = line(find_points, net, 8, ["blocks.1", "blocks.0", "blocks.1"])
    assert text == "points = 'blocks.1': is named twice; name each module once, in any order"

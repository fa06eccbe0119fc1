"""Fronts that a search cannot compile, or cannot invert at all: the first go on as written, the others say why in one line."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from inversion_nets import needs_compiler
from torch import Tensor, nn

from raystitch.config import IriConfig
from raystitch.iris import Inverter, invert, make_shards, residual
from raystitch.iris.compiling import can_compile
from raystitch.iris.passes import reason_of
from raystitch.iris.start import uniform_start

IMAGES = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
CONFIG = IriConfig(optimiser="adam", steps=5, batch=3, levels=(0.5,), compile=False)


def _branching(x: Tensor) -> Tensor:
    """Which operations it runs depends on what is in the tensor."""
    return x.sin() if x.mean() > 0 else x.cos()


@needs_compiler
def test_a_front_that_does_not_compile_is_inverted_as_written(caplog: pytest.LogCaptureFixture) -> None:
    config = CONFIG.model_copy(update={"compile": True})
    with caplog.at_level(logging.WARNING, logger="raystitch"):
        found = invert(_branching, IMAGES, range(5), config)
    plain = invert(torch.sin, IMAGES, range(5), CONFIG)  # pixels are positive: that branch is never left
    for own, other in ((found, plain), (found.levels[0], plain.levels[0])):
        torch.testing.assert_close(own.images, other.images)
        assert torch.equal(own.steps, other.steps)
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("raystitch")]
    assert line.startswith("iri.compile: goes on without")
    assert line.endswith("Data-dependent branching")
    inverter = Inverter(_branching, config)
    inverter(IMAGES, range(5))
    assert not inverter.compiled


def test_a_warning_names_what_began_it() -> None:
    error = RuntimeError("Hard failure")
    error.__cause__ = ValueError("because of this\nand more")
    assert reason_of(error) == "because of this"
    assert reason_of(KeyError()) == "KeyError"
    error.__cause__.__cause__ = error
    assert reason_of(error) == "because of this"


@needs_compiler
def test_a_compiler_that_fails_costs_speed_only(tmp_path: Path) -> None:
    for name in ("g++", "clang++", "c++"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'fatal error: Python.h: No such file' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CXX": "g++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    code = (
        "import torch; from raystitch.config import IriConfig; from raystitch.iris import invert;"
        "image = torch.full((1, 3, 4, 4), 0.5);"
        "config = IriConfig(steps=100, compile=True);"
        "print(invert(torch.sin, image, [1], config).residual.item() < 0.05)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200)
    assert done.stdout == "True\n", done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_of_the_front_itself_is_its_own() -> None:
    calls = []

    def broken(x: Tensor) -> Tensor:
        calls.append(len(x))
        if len(calls) > 2:
            raise ZeroDivisionError("mine")
        return x.sin()

    with pytest.raises(ZeroDivisionError, match="mine"):
        invert(broken, IMAGES, range(5), CONFIG.model_copy(update={"compile": can_compile(torch.device("cpu"))}))


@pytest.mark.parametrize("batch", [2, "auto"])
@pytest.mark.parametrize(
    ("front", "told"),
    [
        (lambda x: x.detach() * 2, "has no gradient to its images"),
        (lambda x: torch.ones(len(x), 4), "has no gradient to its images"),
        (lambda x: (x, x), "given 1, it gave tuple"),
        (lambda x: x.sum(), r"given 1, it gave torch.float32 of shape \(\)"),
        (lambda x: torch.cat([x, x]), r"given 1, it gave torch.float32 of shape \(2, 3, 4, 4\)"),
        (lambda x: x.mean(0, keepdim=True), r"given 2, it gave torch.float32 of shape \(1, 3, 4, 4\)"),
        (lambda x: x - x.mean(0, keepdim=True) / 2, "depends on the images beside it"),
        (lambda x: nn.Linear(48, 2)(x.detach().flatten(1)), "has no gradient to its images"),
        (torch.fft.fft2, "given 1, it gave torch.complex64"),
        (nn.BatchNorm2d(3), "depends on the images beside it"),
    ],
)
def test_what_cannot_be_inverted_is_one_line(front: Any, told: str, batch: Any) -> None:
    with pytest.raises(ValueError, match=f"^the front.*{told}"):
        invert(front, IMAGES, range(5), CONFIG.model_copy(update={"batch": batch}))


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(3), nn.GroupNorm(1, 3), nn.LayerNorm((3, 4, 4))])
def test_an_image_of_a_single_colour_comes_first_before_layers_that_normalise_it(norm: nn.Module) -> None:
    images = torch.cat([torch.full((1, 3, 4, 4), 0.3), IMAGES])
    found = invert(norm.eval().requires_grad_(False), images, range(len(images)), CONFIG)
    alone = invert(norm, IMAGES, range(1, len(images)), CONFIG)
    torch.testing.assert_close(found.residual[1:], alone.residual)


@pytest.mark.parametrize("factor", [1e-21, 1e-24, 1e-30])
def test_representations_too_small_to_measure_are_told(factor: float) -> None:
    with pytest.raises(FloatingPointError, match="too small for float32"):
        invert(lambda x: factor * x, IMAGES, range(5), CONFIG)
    exact = invert(lambda x: x, IMAGES, range(5), CONFIG)
    smallest = invert(lambda x: 1e-14 * x, IMAGES, range(5), CONFIG)
    torch.testing.assert_close(smallest.residual, exact.residual)
    at_once = invert(lambda x: 1e-14 * x, uniform_start(range(5), (3, 4, 4)), range(5), CONFIG)
    assert not at_once.residual.any(), "each search starts at its target"


@pytest.mark.parametrize(
    ("images", "seeds", "error", "told"),
    [
        (torch.ones(2, 3, 4, 4, dtype=torch.uint8), [1, 2], TypeError, "floats in .*not torch.uint8"),
        (torch.ones(2, 3, 4), [1, 2], ValueError, r"\(N, 3, H, W\), not \(2, 3, 4\)"),
        (torch.ones(2, 1, 4, 4), [1, 2], ValueError, r"\(N, 3, H, W\), not \(2, 1, 4, 4\)"),
        (torch.ones(2, 3, 0, 4), [1, 2], ValueError, r"\(N, 3, H, W\), not"),
        (torch.ones(2, 3, 4, 4), [1, 2.5], TypeError, "float.*integer"),
        (torch.ones(2, 3, 4, 4), [1, -1], ValueError, "seeds must lie in .*found -1"),
        (torch.ones(2, 3, 4, 4), [2**64, 1], ValueError, "seeds must lie in"),
    ],
)
def test_images_and_seeds_of_another_kind_are_told(images: Tensor, seeds: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        invert(torch.sin, images, seeds, CONFIG)


@pytest.mark.parametrize("mode", [torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)])
def test_modes_of_the_caller_change_nothing(mode: Any) -> None:
    layer, labels = nn.Conv2d(3, 4, 3).requires_grad_(False), torch.arange(5)
    pixels = (IMAGES * 255).to(torch.uint8)

    def made() -> tuple[Any, ...]:
        found = invert(layer, IMAGES.clone(), range(5), CONFIG)
        shard = make_shards(Inverter(layer, CONFIG), pixels, labels, 0)[None]
        assert not found.images.is_inference()
        return found.images, torch.from_numpy(shard.residual), residual(layer, found.images, layer(IMAGES).float())

    expected = made()
    with mode:
        found = made()
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    torch.testing.assert_close(found[2], expected[2], atol=1e-2, rtol=0)  # its target is the caller's


def test_an_inverter_is_for_one_size() -> None:
    inverter = Inverter(torch.sin, CONFIG)
    inverter(IMAGES, range(5))
    with pytest.raises(ValueError, match=r"images \(3, 4, 4\), not \(3, 8, 8\)"):
        inverter(torch.rand(2, 3, 8, 8), range(2))


def test_shards_are_made_of_stored_images_and_their_labels() -> None:
    with pytest.raises(TypeError, match="uint8, not torch"):
        make_shards(Inverter(torch.sin, CONFIG), IMAGES, torch.arange(5), 0)
    with pytest.raises(ValueError, match="5 images need as many labels, not 4"):
        make_shards(Inverter(torch.sin, CONFIG), (IMAGES * 255).to(torch.uint8), torch.arange(4), 0)


@pytest.mark.parametrize("image", [torch.full((1, 3, 4, 4), 0.5), IMAGES[:1]])
def test_a_front_in_train_mode_is_found_whatever_the_image(image: Tensor) -> None:
    with pytest.raises(ValueError, match="depends on the images beside it"):
        invert(nn.BatchNorm2d(3), image, [0], CONFIG)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_no_images_are_an_empty_shard_at_every_level(dtype: Any) -> None:
    inverter = Inverter(torch.sin, CONFIG.model_copy(update={"dtype": dtype}))
    none = torch.empty(0, 3, 4, 4, dtype=torch.uint8)
    shards = make_shards(inverter, none, torch.empty(0, dtype=torch.int64), 7)
    assert {level: shard.images.shape for level, shard in shards.items()} == dict.fromkeys((None, 0.5), (0, 3, 4, 4))
    assert all(len(shard.residual) == 0 and str(shard.images.dtype) == dtype for shard in shards.values())

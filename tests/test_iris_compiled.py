"""Compiled steps do what plain ones do, and a set is compiled where that pays and can be done."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from inversion_nets import deep_cut, needs_compiler, random_cut, random_images, sample_seeds
from torch import nn
from torch._dynamo.utils import counters

from raystitch.config import IriConfig
from raystitch.errors import InputError
from raystitch.iris import Inverter, invert, residual
from raystitch.iris.compiling import can_compile, worth_compiling
from raystitch.nets import SoftPrefix, fold_batchnorm


@needs_compiler
@pytest.mark.parametrize("optimiser", ["spectral_adam", "sign_pgd"])
def test_compiled_steps_do_what_plain_ones_do(optimiser: Any) -> None:
    net, images = deep_cut(), random_images(10)
    # few steps: later, differences in the last digit have grown; two batches, the second smaller
    config = IriConfig(optimiser=optimiser, steps=4, batch=6, levels=(0.99,), compile=False)
    plain = invert(SoftPrefix(net, 1), images, sample_seeds(10), config)
    fast = invert(SoftPrefix(net, 1), images, sample_seeds(10), config.model_copy(update={"compile": True}))
    for own, other in ((plain, fast), (plain.levels[0], fast.levels[0])):
        torch.testing.assert_close(other.images, own.images, atol=1e-4, rtol=0)
        torch.testing.assert_close(other.residual, own.residual, atol=1e-4, rtol=0)
        assert torch.equal(other.steps, own.steps)


@needs_compiler
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_search_in_pixels_compiles_one_step_and_no_more(precision: Any) -> None:
    # Gradients of a folded net come channels-last; were images and moments to take that up, steps would compile thrice.
    net = random_cut(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(256, 2))
    )
    prefix = SoftPrefix(fold_batchnorm(net), 1)
    before = counters["stats"]["unique_graphs"]
    invert(prefix, random_images(6), sample_seeds(6), IriConfig(steps=8, batch=6, precision=precision, compile=True))
    assert counters["stats"]["unique_graphs"] - before == 1


@needs_compiler
def test_compiled_search_refills_and_measures_mixed_precision_again() -> None:
    net, images = deep_cut(), random_images(14)
    config = IriConfig(steps=40, batch=6, tolerance=0.35, precision="mixed", compile=True)
    found = invert(SoftPrefix(net, 1), images, sample_seeds(14), config)
    target = net.run(images, 0, 1)
    torch.testing.assert_close(found.residual, residual(lambda x: net.run(x, 0, 1), found.images, target))
    assert (found.steps < 40).any()


@needs_compiler
def test_a_search_says_whether_it_is_compiled() -> None:
    for compile in (True, False):
        inverter = Inverter(SoftPrefix(deep_cut(), 1), IriConfig(steps=1, compile=compile))
        assert not inverter.compiled
        inverter(random_images(2), sample_seeds(2))
        assert inverter.compiled == compile


@needs_compiler
def test_images_of_another_size_are_compiled_too() -> None:
    # torch takes a size that was another in this process for variable, and the matrices of a transform are made for one size
    for size in (8, 12, 10):
        inverter = Inverter(SoftPrefix(deep_cut(), 1), IriConfig(steps=2, batch=4, compile=True))
        inverter(random_images(6, size), sample_seeds(6))
        assert inverter.compiled


def test_only_large_sets_are_worth_compiling() -> None:
    cpu, config = torch.device("cpu"), IriConfig(steps=100)
    able = can_compile(cpu)
    enough = 2e13 / (3 * 100)  # a backward pass costs two forward ones
    assert worth_compiling(config, 1.01 * enough, cpu) == able
    assert not worth_compiling(config, 0.99 * enough, cpu)
    assert not worth_compiling(config.model_copy(update={"compile": False}), 100 * enough, cpu)
    assert not worth_compiling(config, 1e30, torch.device("meta"))


@pytest.mark.parametrize(("variable", "value"), [("PATH", ""), ("CXX", "no-such-compiler -O2")])
def test_compiling_without_a_compiler_is_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=r"iri\.compile.*C\+\+ compiler"):
        worth_compiling(IriConfig(compile=True), 1, torch.device("cpu"))
    assert not worth_compiling(IriConfig(), 1e30, torch.device("cpu"))

"""Profiles of the hot loops: counts are those done by hand, every operation has a group, the loop is the product's own."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from test_benchmarks import images, small_net
from test_benchmarks_run import run

from benchmarks import inverting
from benchmarks.ceilings import Ceilings, measure
from benchmarks.counting import Count, count
from benchmarks.fitting import OBJECTIVES, SEED
from benchmarks.inversion_step import SEARCHES
from benchmarks.profiles import Profile, Size, training_loop
from benchmarks.shares import BETWEEN, FORWARD, GROUPS, SEARCH, STITCH, group_of, shares
from raystitch.config import FitConfig
from raystitch.data import ImageSet
from raystitch.iris.compiling import can_compile
from raystitch.iris.optimisers import OPTIMISERS
from raystitch.stitching import fit_stitches
from raystitch.stitching.stitch import Stitch


def digits() -> ImageSet:
    return ImageSet((images(8, 8) * 255).round().to(torch.uint8), torch.arange(8) % 5, 5)


@pytest.mark.parametrize(("weight_too", "passes", "moved"), [(False, 2, 1004 + 1004), (True, 3, 1004 + 1496)])
def test_convolution_is_counted_as_by_hand(weight_too: bool, passes: int, moved: int) -> None:
    x, weight = images(2, 8).requires_grad_(), torch.ones(4, 3, 3, 3, requires_grad=weight_too)
    grad = torch.ones(2, 4, 8, 8)
    wanted = [x, weight] if weight_too else [x]
    found = count(lambda: torch.autograd.grad(F.conv2d(x, weight, padding=1), wanted, grad))
    # 27 multiplies and adds for each of 2·4·8·8 outputs, forwards and for each gradient
    assert found.flops == passes * 2 * 27 * 512
    # image 384, weight 108, output 512 elements; a gradient for the image alone does not read the image
    assert found.bytes == 4 * moved


def test_linear_layer_is_counted_as_by_hand() -> None:
    x, weight, bias = torch.ones(2, 3), torch.ones(5, 3), torch.ones(5)
    assert count(lambda: F.linear(x, weight, bias)) == Count(2 * 2 * 3 * 5, 4 * (2 * 3 + 5 * 3 + 5 + 2 * 5))


ROW, TARGET = torch.ones(100), torch.ones(100, 100)


@pytest.mark.parametrize(
    ("work", "elements"),
    [
        (lambda: TARGET.view(50, 200).t(), 0),
        (lambda: torch.empty(1000), 0),
        (lambda: ROW[:1].expand(100) + ROW, 1 + 100 + 100),
        (lambda: TARGET.add_(ROW), 10_000 + 100 + 10_000),
        (lambda: TARGET.copy_(ROW), 100 + 10_000),
        (lambda: torch.add(ROW, ROW, out=ROW.clone()), 200 + 200 + 100),
    ],
)
def test_what_is_not_read_or_not_moved_is_free(work: object, elements: int) -> None:
    assert count(work) == Count(0, 4 * elements)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lineage", "group"),
    [
        (["aten::mkldnn_convolution", "aten::_convolution", "aten::conv2d"], "convolution forward"),
        (["aten::convolution_backward", "ConvolutionBackward0"], "convolution backward"),
        (["aten::copy_", "aten::contiguous", "aten::convolution"], "copies"),
        (["aten::empty", "aten::convolution"], "convolution forward"),
        (["aten::clamp_min", "aten::relu"], "elementwise"),
        (["aten::leaky_relu_backward", "_LeakyBackwardBackward"], "elementwise"),
        (["AddBackward0", "autograd::engine::evaluate_function: AddBackward0"], "elementwise"),
        (["autograd::engine::evaluate_function: AddBackward0"], "rest"),
        (["aten::linalg_vector_norm"], "reductions"),
        (["aten::_to_copy", "aten::to"], "copies"),
        (["aten::bmm", "aten::matmul", "benchmark search"], "search"),
        (["aten::convolution_backward", "benchmark stitch"], "stitch"),
        (["aten::_foreach_lerp_", "Optimizer.step#Adam.step"], "stitch"),
        (["aten::never_heard_of"], "rest"),
    ],
)
def test_operations_have_their_group(lineage: list[str], group: str) -> None:
    assert group_of(lineage) == group


def checked(found: dict[str, float], groups: set[str], absent: str) -> None:
    assert tuple(found) == GROUPS
    assert sum(found.values()) == pytest.approx(100)
    assert all(found[group] > 0 for group in groups)
    assert found[absent] == 0


@pytest.mark.parametrize("name", SEARCHES)
def test_shares_of_an_inversion_sum_to_all_of_it(name: str) -> None:
    before, prefix = dict(OPTIMISERS), inverting.prefix_of(small_net(0), 2)
    found = shares(lambda: inverting.run(prefix, images(4, 8), SEARCHES[name], 2), "cpu")
    checked(found, {FORWARD, "convolution backward", "elementwise", "reductions", SEARCH, BETWEEN}, STITCH)
    assert before == OPTIMISERS


def test_shares_of_fitting_sum_to_all_of_it() -> None:
    before = Stitch.apply_trainable
    loop = training_loop(small_net(0), small_net(1), 1, 1, digits(), Size(images=8, epochs=2), "cpu")
    found = shares(loop, "cpu")
    checked(found, {FORWARD, "convolution backward", "elementwise", "reductions", STITCH, BETWEEN}, SEARCH)
    assert Stitch.apply_trainable is before


def test_labels_of_a_stitch_hold_all_its_passes() -> None:
    loop = training_loop(small_net(0), small_net(1), 1, 1, digits(), Size(images=8, epochs=1), "cpu")
    fits, feed, *others = loop.args
    place = [fit.result.objective for fit in fits].index("dm")  # compares right behind the stitch
    alone = replace(feed, streams=lambda shown: [*feed.streams(shown)][:1])
    found = shares(lambda: loop.func([fits[place]], alone, *others), "cpu")
    assert found[FORWARD] == found["convolution backward"] == 0
    assert found[STITCH] > 0


def test_training_loop_is_that_of_fit_stitches() -> None:
    front, end, data = small_net(0), small_net(1), digits()
    loop = training_loop(front, end, 1, 1, data, Size(images=8, epochs=3), "cpu")
    loop()
    config = FitConfig(epochs=3, batch=8, init_images=8)
    fitted = fit_stitches(front, end, 1, 1, OBJECTIVES, data, data.images, config, "matched", "real", SEED)
    for one in loop.args[0]:
        assert one.result.train_loss == pytest.approx(fitted[one.result.objective].train_loss, rel=1e-4)


def test_rates_are_relative_to_the_best_of_the_machine() -> None:
    ceilings = Ceilings({"float32": {2: 100.0, 4: 400.0}, "bfloat16": {2: 800.0, 4: 700.0}}, copy=1000.0)
    profile = Profile("inversion", "1", "float32", (0.25, 0.5, 1.0), Count(flops=50, bytes=100), {})
    assert profile.of_products(ceilings) == pytest.approx(25)
    assert profile.of_copy(ceilings) == pytest.approx(20)
    assert profile.compiled_of_products(ceilings) is None
    assert replace(profile, compiled=(0.2, 0.25, 0.9)).compiled_of_products(ceilings) == pytest.approx(50)
    assert ceilings.product("bfloat16") == 800


def test_ceilings_are_rates() -> None:
    found = measure((16, 32), 1 << 16, rounds=2, device="cpu")
    assert {dtype: set(rates) for dtype, rates in found.products.items()} == {"float32": {16, 32}, "bfloat16": {16, 32}}
    assert all(0 < rate < math.inf for rates in found.products.values() for rate in rates.values())
    assert 0 < found.copy < math.inf


def test_quick_profiles_writes_finite_figures(tmp_path: Path, shared: Path) -> None:
    places = ["--data", shared / "data" / "cifar10", "--weights", shared / "models", "--output", tmp_path]
    found = run("profiles", "--quick", *places)
    assert found.returncode == 0, found.stderr
    (record,) = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    assert len(record["figures"]) == 3 + 3 * 2
    assert all(math.isfinite(figure["value"]) and figure["value"] > 0 for figure in record["figures"])
    _, rates, *where = record["tables"]
    assert len(rates["rows"]) == sum(len(table["rows"]) for table in where) == 2 * 3 + 3
    for table in where:
        for row in table["rows"]:
            assert sum(row[2:]) == pytest.approx(100, abs=0.5)  # each is rounded to 0.1
    loops = [row[0].partition(",")[0] for row in rates["rows"] if (row[-2] is None) == (row[-1] is None)]
    assert loops == ["inversion"] * 6 + ["fitting"] * 3
    assert [row[-1] is None for row in rates["rows"]] == [not can_compile(torch.device("cpu"))] * 6 + [True] * 3
    inversions = {row[1]: row[3] for row in rates["rows"] if row[0] == "inversion, float32"}
    assert list(inversions) == ["1 (act1)", "5 (layer2.0)", "10 (layer3.2)"]
    # 8 images, 2 steps and the first and last look; two probes, of one image there and back and of two, one image that chooses
    # the optimiser, which transforms twice a step, and 16 and one of noise that say how wide the steps of the ReLUs are
    passes, once = 8 * 3 * 4 * resnet20_multiplies(), (2 + 2 + 1 + 16 + 1) * 2 * resnet20_multiplies()
    transforms = 8 * 2 * 2 * 6 * 32**2 * 67
    assert inversions["10 (layer3.2)"] == pytest.approx((passes + once + transforms) / 3 / 1e9, rel=0.005)


def resnet20_multiplies() -> int:
    """Of the convolutions of a ResNet-20 on one 32×32 image: the first, then three stages of six."""
    first = 32 * 32 * 16 * 3 * 9
    stages = [(32, 16, 16), (16, 16, 32), (8, 32, 64)]
    return first + sum(side**2 * width * 9 * (before + 5 * width) for side, before, width in stages)

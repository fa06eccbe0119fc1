"""Benchmarks: the baseline does the method's work by the published passes, turns alternate, tables hold targets and figures."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from inversion_nets import needs_compiler
from torch import Tensor, nn

from benchmarks import inverting, published
from benchmarks.actors import Gate
from benchmarks.alternatives import Problem, gauss_newton, lbfgs
from benchmarks.outcome import Figure, Target
from benchmarks.report import FILES, put_aside, write
from benchmarks.turns import geometric_mean, in_turns, ratios, summary
from raystitch.catalogue import inspect
from raystitch.config import FitConfig, IriConfig, parse_config
from raystitch.data import ImageSet
from raystitch.iris import invert
from raystitch.iris.start import uniform_start
from raystitch.metrics import compare
from raystitch.nets import CutNet, Point, build_net, cut, find_points, freeze
from raystitch.plan import expand
from raystitch.stitching import fit_stitches

PIXELS = 3 * 4 * 4
RECORD = {
    "name": "bench", "seconds": 1.0, "peak_memory": {"process_mib": 100.4}, "machine": {"cpu": "x", "gpu": None},
    "figures": [], "tables": [], "notes": ["One note."], "facts": {"rounds": 2},
}  # fmt: skip


def linear_net(matrix: Tensor) -> CutNet:
    """x ↦ W x at point 1, then a head."""
    first = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, len(matrix), bias=False))
    first[1].weight.data.copy_(matrix)
    point = Point(1, "first", "vector", (len(matrix),))
    return freeze(CutNet([point], [first, nn.Linear(len(matrix), 3)]))


def small_net(seed: int) -> CutNet:
    net = freeze(build_net("resnet_mini", 5, {"width": 4, "blocks": [1, 1]}, (0.5,) * 3, (0.5,) * 3, seed=seed))
    return freeze(cut(net, find_points(net, 8)))


def images(count: int, side: int, seed: int = 0) -> Tensor:
    return torch.rand((count, 3, side, side), generator=torch.Generator().manual_seed(seed))


def test_published_step_of_a_linear_net_is_the_closed_form() -> None:
    matrix = torch.randn((7, PIXELS), generator=torch.Generator().manual_seed(3))
    originals, x = images(5, 4), images(5, 4, seed=1)
    after, r = published.inversion_step(linear_net(matrix), 1, x, originals)
    # r = |W d| / |W x0| with d = x - x0, so its gradient is a positive multiple of Wᵀ W d
    direction = ((x - originals).flatten(1).double() @ matrix.double().T @ matrix.double()).sign().view_as(x)
    expected = (x.double() - direction / 255).clamp(0, 1)
    torch.testing.assert_close(after.double(), expected, rtol=0, atol=1e-7)
    error = (expected - originals.double()).flatten(1) @ matrix.double().T
    target = originals.double().flatten(1) @ matrix.double().T
    torch.testing.assert_close(r.double(), error.norm(dim=1) / target.norm(dim=1), rtol=1e-5, atol=0)


def test_published_inversion_takes_the_steps_of_sign_pgd() -> None:
    net, originals, seeds = small_net(0), images(3, 8), [5, 6, 7]
    theirs, r = published.invert(net, 2, originals, uniform_start(seeds, (3, 8, 8)), steps=6)
    ours = invert(lambda x: net.run(x, 0, 2), originals, seeds, IriConfig(optimiser="sign_pgd", steps=6))
    last = ours.steps == 6  # where the last iterate is the best
    assert last.any()
    torch.testing.assert_close(ours.images[last], theirs[last], rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.residual[last], r[last], rtol=1e-4, atol=0)


def test_published_steps_run_whole_nets_four_and_three_times() -> None:
    front, end, x = small_net(0), small_net(1), images(2, 8)
    calls: list[str] = []
    for name, net in (("front", front), ("end", end)):
        net.segments[-1].register_forward_hook(lambda *_, name=name: calls.append(name))
    published.inversion_step(front, 1, x, images(2, 8, seed=1))
    assert calls == ["front"] * 4
    calls.clear()
    stitch = published.initial_stitch(front, end, 1, 1, x)
    calls.clear()
    published.streams(front, stitch, end, 1, 1, x)
    assert calls == ["front", "end", "end"]


def test_published_runs_end_where_raystitch_ends() -> None:
    front, end = small_net(0), small_net(1)
    data = ImageSet((images(24, 8) * 255).round().to(torch.uint8), torch.arange(24) % 5, 5)
    shown = images(16, 8, seed=2)
    floats = data.images.float() / 255
    recipe = published.Recipe(epochs=3, batch=8, lr=1e-2)
    config = FitConfig(epochs=3, batch=8, lr=1e-2, init_images=12)
    fitted = fit_stitches(
        front, end, 1, 1, ("hlm", "slm", "dm", "fula"), data, data.images[:12], config, "matched", "real", 4
    )
    for name, ours in fitted.items():
        theirs = published.fit(name, (front, end), (1, 1), (floats, data.labels), floats[:12], recipe, 4)
        torch.testing.assert_close(theirs.weight.detach()[:, :, 0, 0], ours.stitch.matrix, rtol=1e-2, atol=1e-3)
        agreement = published.agreement(theirs, (front, end), (1, 1), shown, batch=5)
        with torch.no_grad():
            found = compare(ours.logits(shown), end(shown), torch.zeros(16, dtype=torch.int64))["agreement"]
        assert agreement == pytest.approx(found, abs=0.05)


def test_works_take_turns() -> None:
    order: list[str] = []
    now = iter(range(100))
    works = {name: lambda name=name: order.append(name) for name in "ABC"}  # type: ignore[misc]
    found = in_turns(works, rounds=2, clock=lambda: float(next(now)))
    assert "".join(order) == "ABC" + "ABCABC"
    assert found == dict.fromkeys("ABC", (1.0, 1.0))


def test_ratios_and_means_are_taken_round_by_round() -> None:
    gains = [ratios((8.0, 9.0), (2.0, 3.0)), ratios((1.0, 27.0), (1.0, 1.0))]
    assert gains == [(4.0, 3.0), (1.0, 27.0)]
    assert geometric_mean(gains) == pytest.approx((2.0, 9.0))
    assert summary((4.0, 1.0, 3.0, 2.0, 5.0)) == (3.0, 2.0, 4.0)
    assert summary((7.0,)) == (7.0, 7.0, 7.0)


@needs_compiler
def test_compiled_floors_are_compiled_however_many_there_are() -> None:
    for factor in range(10):  # torch compiles a code eight times, unless each has a cache of its own
        floor = inverting.CompiledFloor(lambda z, by=factor + 2: (z * by).sin(), images(2, 4), IriConfig(), pairs=1)
        floor()
        assert floor.compiled


@pytest.mark.parametrize(
    ("sense", "value", "verdict"),
    [("at least", 2.0, "met"), ("at least", 1.9, "not met"), ("at most", 2.1, "not met"), ("at most", None, "not met")],
)
def test_targets_have_a_verdict(sense: str, value: float | None, verdict: str) -> None:
    assert Figure("speed", "×", value, target=Target(sense, 2.0)).verdict == verdict  # type: ignore[arg-type]
    assert Figure("speed", "×", value).verdict == ""


def test_tables_show_targets_beside_figures(tmp_path: Path) -> None:
    figures = [
        {"name": "speed", "unit": "×", "value": 3.0, "low": 2.5, "high": 3.5,
         "target": {"sense": "at least", "bound": 2.0}, "verdict": "met"},
        {"name": "steps", "unit": "steps", "value": None, "low": None, "high": None,
         "target": {"sense": "at most", "bound": 50}, "verdict": "not met"},
        {"name": "memory", "unit": "MiB", "value": 1004.4, "low": 999.6, "high": 2e9,
         "target": {"sense": "at most", "bound": 2048}, "verdict": "met"},
        {"name": "r", "unit": "", "value": 0.03614, "low": 0.03, "high": 0.04, "target": None, "verdict": ""},
    ]  # fmt: skip
    record = {**RECORD, "figures": figures}
    write(tmp_path / "new", [record], quick=False)
    text = (tmp_path / "new" / "results.md").read_text()
    assert "| bench | speed | 3 × (2.5–3.5) | at least 2 | met |" in text
    assert "| bench | steps | not reached | at most 50 | not met |" in text
    assert "| bench | memory | 1004 MiB (1000–2e+09) | at most 2048 | met |" in text
    assert "| bench | r | 0.0361 (0.03–0.04) |" in text
    assert "| bench | 100 | – | – | 1.0 |" in text
    assert json.loads((tmp_path / "new" / "results.json").read_text())["benchmarks"] == [record]


def test_gate_times_no_start_up() -> None:
    study = {
        "name": "gate",
        "data": {"digits": {"source": "digits", "limit": {"train": 160, "test": 10}}},
        "models": {"net": {"arch": "resnet_mini", "data": "digits", "untrained": True}},
        "settings": {"self": {"front": "net", "end": "net", "points": [1]}},
        "arms": "iri", "seeds": 1, "iri": {"shard_size": 20}, "fit": {"batch": 2, "init_images": 2},
    }  # fmt: skip
    plan = expand(config := parse_config(study), inspect(config))
    gate = Gate(plan, frozenset(model.id for model in plan.models), actors=2, shards=3)
    assert gate.next_task() is None, "no actor has started"
    gate.team = SimpleNamespace(running=2)  # type: ignore[assignment]
    first, second = gate.next_task(), gate.next_task()
    assert first
    assert second
    assert gate.next_task() is None, "both actors warm up"
    gate.finished(first)
    assert gate.next_task() is None, "one still does"
    gate.finished(second)
    timed = [gate.next_task() for _ in range(3)]
    assert all(timed)
    assert not gate.tasks_left
    assert gate.next_task() is None
    for task in timed:
        assert not gate.over.is_set()
        gate.finished(task)  # type: ignore[arg-type]
    assert gate.over.is_set()
    assert gate.seconds > 0


def test_tables_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    record = {**RECORD, "name": "first"}
    write(tmp_path, [record], quick=False)
    stamps = {(tmp_path / name).stat().st_mtime for name in FILES}
    kept = list(put_aside(tmp_path))
    assert list(put_aside(tmp_path)) == []
    assert [path.suffix for path in kept] == [".json", ".md"]
    assert {path.stat().st_mtime for path in kept} == stamps
    write(tmp_path, [{**RECORD, "name": "second"}], quick=True)
    found = [json.loads(path.read_text())["benchmarks"][0]["name"] for path in (kept[0], tmp_path / "results.json")]
    assert found == ["first", "second"]


def test_tables_that_cannot_be_written_leave_the_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [RECORD], quick=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(path: Path, text: str) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, [RECORD, RECORD], quick=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("search", [lbfgs, gauss_newton])
def test_second_order_searches_stay_on_the_device_of_the_images(search: Callable[..., Tensor]) -> None:
    """Tensors of the meta device mix with no others; it holds no values, so one step each is all that it can show."""
    x = torch.rand(3, 3, 4, 4, device="meta")
    problem = Problem(torch.sin, torch.rand(3, 3, 4, 4, device="meta"))
    with suppress(NotImplementedError):  # ``nonzero`` asks for values
        assert search(problem, x, 2).device.type == "meta"


def test_a_search_without_a_compiler_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    search = inverting.Search(lambda x: x.sin(), images(2, 4), IriConfig(compile=True), steps=2)
    floor = inverting.CompiledFloor(lambda x: x.sin() * 1.5, images(2, 4), IriConfig(), pairs=1)
    assert len(search().residual) == 2
    floor()
    assert not search.compiled
    assert not floor.compiled
    assert "at points 3, 4: there they ran as they are written" in inverting.on_compiling([3, 4])

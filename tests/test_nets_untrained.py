"""Controls without training: untrained nets from their seed, and settings with capacities of their own, on a real bench."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from bench_runs import run_study

from raystitch.catalogue import inspect
from raystitch.config import parse_config
from raystitch.errors import InputError
from raystitch.nets import build_net, fingerprint, load_weights, read_weights
from raystitch.plan import Plan, expand
from raystitch.store import Store

MINI = {"arch": "resnet_mini", "args": {"width": 4, "blocks": [1, 1]}, "data": "digits", "normalise": "half"}


def study(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "controls",
        "data": {"digits": {"source": "digits", "limit": {"train": 128, "test": 64}}},
        "models": {"raw": {**MINI, "seeds": "3-4", "untrained": True}},
        "settings": settings,
        "points": [2],
        "arms": "real",
        "objectives": ["dm"],
        "seeds": 1,
        "fit": {"epochs": 2, "batch": 64, "init_images": 100},
        **more,
    }


def ran(config: dict[str, Any], folder: Path) -> tuple[Plan, Store, pd.DataFrame]:
    """Everything the study plans, computed here; and its rows, as the units name them."""
    bench, plan = run_study(parse_config(config), folder)
    tables = []
    for row in plan.rows:
        table = pd.read_parquet(io.BytesIO(bench.store.read(row.unit.marker)))
        tables.append(table.assign(setting=row.setting))
    return plan, bench.store, pd.concat(tables, ignore_index=True)


def test_an_untrained_model_is_the_seeded_net_as_it_was_built(tmp_path: Path) -> None:
    plan, store, rows = ran(study({"pair": {"front": "raw/4", "end": "raw/3"}}), tmp_path)
    assert sorted(model.ref for model in plan.models) == ["raw/3", "raw/4"]
    for model in plan.models:
        kept, fresh = (
            build_net("resnet_mini", 10, MINI["args"], (0.5,) * 3, (0.5,) * 3, seed=n) for n in (0, model.seed)
        )
        load_weights(kept, read_weights(store.read(model.weights), model.weights), model.weights)
        assert fingerprint(kept) == fingerprint(fresh)
        assert not store.exists(model.training)
    assert len(rows) == 3, "both unstitched ends and one fit"
    assert rows["agreement"].between(0, 100).all()


def test_an_untrained_net_stitched_to_itself_agrees_fully(tmp_path: Path) -> None:
    settings = {"self": {"front": "raw/3", "end": "itself", "fit": {"stitch": "identity"}}}
    _, _, rows = ran(study(settings), tmp_path)
    fitted = rows[rows["objective"] == "dm"]
    assert fitted["agreement"].tolist() == [100]
    assert fitted["match_error"].tolist() == [0]
    assert fitted["stitch"].tolist() == ["identity"]


def test_another_seed_is_another_untrained_net_and_training_is_another_model() -> None:
    def ids(**model: Any) -> dict[str, str]:
        config = study({"pair": {"front": "raw/4", "end": "raw/3"}})
        config["models"]["raw"] = {**MINI, "seeds": "3-4", **model}
        parsed = parse_config(config)
        return {unit.ref: unit.id for unit in expand(parsed, inspect(parsed)).models}

    raw, trained = ids(untrained=True), ids(train={"batch": 64})
    assert len({*raw.values(), *trained.values()}) == 4
    assert ids(untrained=True) == raw


@pytest.mark.parametrize("more", [{"train": {}}, {"checkpoint": "w.pt"}])
def test_untrained_excludes_weights_from_elsewhere(more: dict[str, Any]) -> None:
    config = study({"pair": {"front": "raw/4", "end": "raw/3"}})
    config["models"]["raw"] |= more
    with pytest.raises(InputError, match=r"exactly one of checkpoint, train .* and untrained"):
        parse_config(config)


def test_each_setting_has_its_own_capacity(tmp_path: Path) -> None:
    pair = {"front": "raw/4", "end": "raw/3"}
    settings = {
        "affine": pair,
        "identity": {**pair, "fit": {"stitch": "identity"}},
        "low-rank": {**pair, "fit": {"stitch": {"kind": "low_rank", "rank": 2}}, "objectives": ["dm", "dm_exact"]},
        "mlp": {**pair, "fit": {"stitch": {"kind": "mlp", "width": 12}}},
        "exact": {**pair, "objectives": "dm_exact"},
    }
    plan, _, rows = ran(study(settings), tmp_path)
    assert len(plan.models) == 2
    assert len(plan.fits) == 2 + 6, "the unstitched ends are shared, the fits are not"
    fits = rows[rows["objective"] != "none"].set_index(["setting", "objective"])
    assert fits["stitch"].to_dict() == {
        ("affine", "dm"): "affine",
        ("identity", "dm"): "identity",
        ("low-rank", "dm"): "low_rank:2",
        ("low-rank", "dm_exact"): "low_rank:2",
        ("mlp", "dm"): "mlp:12",
        ("exact", "dm_exact"): "affine",
    }
    assert fits.loc[("low-rank", "dm_exact"), "stitch_rank"] <= 2
    # over the training images a solution is at least as good as any map that it could have been
    loss = fits["train_loss"]
    assert loss[("exact", "dm_exact")] <= min(loss[("affine", "dm")], loss[("low-rank", "dm_exact")]) + 1e-6
    assert loss[("exact", "dm_exact")] <= loss[("identity", "dm")] + 1e-6
    assert fits["agreement"].notna().all()


def test_a_capacity_without_a_closed_form_is_refused_for_its_setting() -> None:
    settings = {
        "s": {
            "front": "raw/4",
            "end": "raw/3",
            "objectives": "dm_exact",
            "fit": {"stitch": {"kind": "mlp", "width": 4}},
        }
    }
    with pytest.raises(InputError, match="an mlp stitch has no closed-form") as error:
        parse_config(study(settings))
    assert "settings.s" in str(error.value)


def test_a_rank_that_restricts_nothing_names_setting_and_points() -> None:
    settings = {"s": {"front": "raw/4", "end": "raw/3", "fit": {"stitch": {"kind": "low_rank", "rank": 99}}}}
    config = parse_config(study(settings))
    with pytest.raises(InputError, match=r"settings\.s: front 'raw' point 2 .* use a rank up to 4, or affine"):
        inspect(config)


def test_random_state_is_left_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    ran(study({"self": {"front": "raw/3", "end": "itself"}}), tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)

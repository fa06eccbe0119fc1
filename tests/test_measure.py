"""Units from config to storage without Ray: attacked training and evaluation, single-sided arms, similarity, predictions."""

from __future__ import annotations

import copy
from pathlib import Path

import pandas as pd
import pytest
import torch
from bench_runs import run_study

import raystitch
from raystitch.config import parse_config
from raystitch.execute import Bench
from raystitch.metrics import compare, linear_cka
from raystitch.plan import Plan
from raystitch.schedule import find_done
from raystitch.store import Store

STUDY = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "limit": {"train": 256, "test": 60}, "cue": "pixel"}},
    "models": {
        "clean": {
            "arch": "resnet_mini",
            "args": {"width": 8, "blocks": [1, 1]},
            "data": "digits",
            "seeds": "0-1",
            "train": {"epochs": 15, "augment": "none", "batch": 32},
        }
    },
    "settings": {
        "robust": {
            "front": "clean/1", "end": "clean/0", "eval": ["test", "apgd_ce_dlr"], "arms": ["real", "iri"],
            "attack": {"steps": 2}, "objectives": ["slm", "fula"],
        },
        "sided": {
            "front": "clean/1", "end": "clean/0", "eval": ["test", "shuffled"],
            "arms": ["real", "iri_front", "iri_end"], "objectives": ["slm", "dm"],
        },
        "itself": {"front": "clean/0", "end": "itself", "arms": ["real"], "objectives": "dm"},
    },
    "points": [1],
    "seeds": 1,
    "iri": {"steps": 10, "shard_size": 100},
    "fit": {"epochs": 2, "batch": 32, "init_images": 64},
    "robust": {"steps": 3, "images": 40},
    "similarity": {"images": 64},
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Plan]:
    """Every unit of the study, computed in this process."""
    return run_study(parse_config(copy.deepcopy(STUDY)), tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def table(finished: tuple[Bench, Plan]) -> pd.DataFrame:
    return raystitch.load_results(finished[0].store.url, "tiny")


def test_every_unit_is_done_and_every_row_there(finished: tuple[Bench, Plan], table: pd.DataFrame) -> None:
    bench, plan = finished
    assert find_done(plan, bench.store).units == {unit.id for unit in plan.units}
    fits = table[table.objective != "none"]
    assert len(fits[fits.setting == "robust"]) == 2 * 2 * 2  # arms, objectives, evaluation sets
    assert len(fits[fits.setting == "sided"]) == 3 * 2 * 2
    assert len(fits[fits.setting == "itself"]) == 1
    assert len(table) == 8 + 12 + 1 + 2 * (2 + 2 + 1) + 3  # the two ends of each curve on each set, three similarities


def test_columns_say_what_was_trained_on_and_shown(table: pd.DataFrame) -> None:
    fits = table[table.objective != "none"]
    assert set(fits.inputs[fits.setting == "robust"]) == {"adversarial"}
    assert set(fits.inputs[fits.setting != "robust"]) == {"clean"}
    assert set(table.inputs[table.objective == "none"]) == {"none"}
    assert set(fits.arm[fits.setting == "sided"]) == {"real", "iri_front", "iri_end"}
    attacked = table.eval_set == "apgd_ce_dlr"
    assert table.eps.notna().eq(attacked).all()
    assert set(table.eps[attacked]) == {8 / 255}
    assert set(table.n_eval[attacked]) == {40}
    assert set(table.n_eval[~attacked & (table.eval_set != "train")]) == {60}
    assert fits.iri_r_median.notna().eq(fits.arm != "real").all(), "an IRI score never stands without its residual"
    assert table.iri_level.isna().all()


def test_attacks_take_accuracy_away_from_each_net(table: pd.DataFrame) -> None:
    robust = table[(table.setting == "robust") & (table.eval_set != "train")]
    keys = ["objective", "arm", "front_point"]
    pairs = robust.pivot(index=keys, columns="eval_set", values="top1")
    assert len(pairs) == 4 + 2
    assert (pairs["apgd_ce_dlr"] < pairs["test"]).all()
    own = robust[(robust.objective == "none") & (robust.eval_set == "apgd_ce_dlr")].set_index("front_point")
    assert own.loc[0, "agreement"] == pytest.approx(100), "the end on images made against the end"
    assert own.loc[0, "top1"] == own.loc[0, "top1_end"]


def test_arms_differ_in_what_they_train_on_alone(finished: tuple[Bench, Plan], table: pd.DataFrame) -> None:
    sided = table[(table.setting == "sided") & (table.objective == "dm") & (table.eval_set == "test")]
    assert len(sided.agreement.unique()) == 3


def test_similarity_of_a_pair_of_points(finished: tuple[Bench, Plan], table: pd.DataFrame) -> None:
    bench, plan = finished
    rows = table[table.eval_set == "train"].set_index("setting")
    for column, value in {"objective": "none", "arm": "none", "stitch": "none", "seed": 0, "n_eval": 64}.items():
        assert set(rows[column]) == {value}
    pair = ["cka", "cka_iri", "stir", "stir_front", "iri_r_median", "iri_r_p90"]
    assert rows.loc[["robust", "sided"], pair].notna().all().all()
    assert rows.loc["itself", "cka"] == pytest.approx(1)
    assert rows.loc["itself", pair[1:]].isna().all()
    unit = next(unit for unit in plan.fits if unit.kind == "similarity" and unit.iris is not None)
    front, end = bench.shelf.net(unit.front), bench.shelf.net(unit.end)
    x = bench.shelf.images("digits", "train", "test").images[::4].float() / 255
    iri = bench.shelf.iri_set(unit.iris, None)[0].images[::4].float() / 255
    with torch.no_grad():
        f, f_iri, g, g_iri = (net.run(z, 0, 1) for net in (front, end) for z in (x, iri))
    expected = {"cka": (f, g), "cka_iri": (f_iri, g_iri), "stir": (g, g_iri), "stir_front": (f, f_iri)}
    for name, (a, b) in expected.items():
        assert rows.loc["sided", name] == pytest.approx(linear_cka(a, b), abs=1e-6), name


def test_kept_predictions_give_the_table_back(finished: tuple[Bench, Plan], table: pd.DataFrame) -> None:
    storage = finished[0].store.url
    whole = table[table.eval_set != "train"]
    ends = whole[(whole.objective == "none") & (whole.front_point == 0)].set_index(["setting", "eval_set"])
    assert len(whole) == 31
    for _, row in whole.iterrows():
        kept = raystitch.load_predictions(storage, row.unit, row.eval_set)
        attacked = row.eval_set == "apgd_ce_dlr"
        assert (kept.end is not None) == (kept.front is not None) == attacked
        own = raystitch.load_predictions(storage, ends.loc[(row.setting, row.eval_set)].unit, row.eval_set)
        h, g, labels = map(torch.from_numpy, (kept.h, kept.end if attacked else own.h, kept.labels))
        found = compare(h, g, labels)
        for name in ("agreement", "agreement_top1", "top1", "top1_end"):
            assert found[name] == pytest.approx(row[name], abs=0.02), name
        assert found["kappa"] == pytest.approx(row.kappa, abs=2e-4)


def test_predictions_come_before_the_marker_and_are_made_again_when_lost(
    finished: tuple[Bench, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, plan = finished
    unit = next(unit for unit in plan.fits if unit.kind == "unstitched")
    store = bench.store
    before, marker = store.read(unit.predictions), store.read(unit.marker)
    store.remove(unit.predictions)
    assert unit.id not in find_done(plan, store).units
    bench.fit([unit])
    assert store.read(unit.predictions) == before
    assert store.read(unit.marker) == marker
    published: list[str] = []
    publish = Store.publish
    monkeypatch.setattr(
        Store, "publish", lambda self, name, data: (published.append(name), publish(self, name, data))[1]
    )
    for name in unit.files:
        store.remove(name)
    bench.fit([unit])
    assert published == [unit.predictions, unit.marker]


def test_damaged_predictions_leave_the_table_whole(finished: tuple[Bench, Plan], table: pd.DataFrame) -> None:
    store, plan = finished[0].store, finished[1]
    unit = next(unit for unit in plan.fits if unit.kind == "fit")
    whole = store.read(unit.predictions)
    store.replace(unit.predictions, whole[: len(whole) // 2])
    again = raystitch.load_results(store.url, "tiny")
    store.replace(unit.predictions, whole)
    assert len(again) == len(table)

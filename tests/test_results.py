import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_plan import CATALOGUE, study

import raystitch
from raystitch.errors import InputError
from raystitch.plan import expand
from raystitch.results import MEASURED, encode_rows, load_results, load_table, publish_study
from raystitch.store import Store

REQUIRED = [
    "unit",
    "sweep",
    "setting",
    "dataset",
    "front",
    "end",
    "front_arch",
    "end_arch",
    "front_point",
    "end_point",
    "front_module",
    "end_module",
    "objective",
    "arm",
    "protocol",
    "seed",
    "eval_set",
    "n_eval",
    "agreement",
    "agreement_top1",
    "agreement_correct",
    "kappa",
    "kappa_soft",
    "top1",
    "top5",
    "loss",
    "top1_end",
    "top1_front",
    "match_error",
    "iri_r_median",
    "iri_r_p90",
    "wall_s",
    "device",
    "created",
    "version",
    "git_commit",
]


def row(unit, agreement: float) -> dict:
    return {"unit": unit.id, "objective": unit.objective, "arm": unit.arm, "seed": unit.seed, "eval_set": "test",
            "n_eval": 360, "agreement": agreement}  # fmt: skip


def parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def test_table_has_the_promised_columns_also_when_empty(tmp_path: Path) -> None:
    table = load_results(str(tmp_path))
    assert len(table) == 0
    assert set(REQUIRED) <= set(table.columns)


def test_units_are_joined_with_the_names_of_each_study(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for name in ("first", "second"):
        config = study(name=name)
        publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    plan = expand(study(), CATALOGUE)
    done = [fit for fit in plan.fits if fit.front_point == 2][:3]
    for n, unit in enumerate(done):
        store.publish(unit.marker, encode_rows([row(unit, 90.0 + n)]))
    store.publish("fits/.tmp-half", b"not parquet")
    one = raystitch.load_results(str(tmp_path), "first")
    assert sorted(one["agreement"]) == [90, 91, 92]
    assert set(one["setting"]) == {"identical"}
    assert set(one["front_module"]) == {"block2"}
    assert set(one["front"]) == {"clean/0"}
    both = raystitch.load_results(str(tmp_path))
    assert len(both) == 6
    assert set(both["sweep"]) == {"first", "second"}


def test_a_damaged_file_is_named_and_left_out(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), study(name="first")
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    store.publish(plan.fits[1].marker, encode_rows([row(plan.fits[1], 50.0)]))
    store.publish(plan.fits[2].marker, encode_rows([row(plan.fits[2], 60.0)])[:50])
    (tmp_path / "sweeps" / "half").mkdir()
    with pytest.warns(UserWarning, match=plan.fits[2].marker):
        table = load_results(str(tmp_path))
    assert table["agreement"].tolist() == [50.0]


WRONG_TYPES = {
    "words for numbers": pa.table({"agreement": ["high"]}),
    "lists for numbers": pa.table({"agreement": [[50.0]]}),
    "numbers for lists": pa.table({"match_error_later": [0.5]}),
    "part of a whole number": pa.table({"seed": [1.5]}),
    "a column twice": pa.table([[50.0], [60.0]], names=["agreement", "agreement"]),
}


@pytest.mark.parametrize("content", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_file_with_columns_of_another_type_is_named_and_left_out(tmp_path: Path, content: pa.Table) -> None:
    store, config = Store(str(tmp_path)), study(name="first")
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    store.publish(plan.fits[1].marker, encode_rows([row(plan.fits[1], 50.0)]))
    whole = content.append_column("unit", [[plan.fits[2].id]])
    store.publish(plan.fits[2].marker, parquet(whole))
    named: list[str] = []
    assert load_table(store, "first", named.append)["agreement"].tolist() == [50.0]
    assert named == [plan.fits[2].marker]


@pytest.mark.parametrize(
    "names", [pa.table({"unit": ["x"], "front_point": ["one"]}), pa.table({"setting": ["x"]}), pa.table({"a": [1]})]
)
def test_names_of_another_type_or_of_no_unit_are_damage_too(tmp_path: Path, names: pa.Table) -> None:
    store, config = Store(str(tmp_path)), study(name="first")
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    store.publish(plan.fits[1].marker, encode_rows([row(plan.fits[1], 50.0)]))
    store.replace("sweeps/first/rows.parquet", parquet(names))
    with pytest.warns(UserWarning, match=r"sweeps/first/rows.parquet is damaged"):
        assert len(load_results(str(tmp_path), "first")) == 0


@pytest.mark.parametrize("sweep", ["first", None])
def test_a_study_without_its_rows_is_damage_of_one_line(tmp_path: Path, sweep: str | None) -> None:
    store = Store(str(tmp_path))
    for name in ("first", "second"):
        config = study(name=name)
        publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    plan = expand(study(), CATALOGUE)
    store.publish(plan.fits[1].marker, encode_rows([row(plan.fits[1], 50.0)]))
    store.remove("sweeps/first/rows.parquet")
    with pytest.warns(UserWarning, match=r"sweeps/first/rows.parquet is damaged or missing.*run the sweep again"):
        table = load_results(str(tmp_path), sweep)
    assert table["sweep"].tolist() == ([] if sweep else ["second"])
    named: list[str] = []
    load_table(store, "first", named.append)
    assert named == ["sweeps/first/rows.parquet"]


@pytest.mark.parametrize(
    "record",
    ["", "{", "[]", "3", "null", "{}", '{"config": {}}', '{"config": [], "units": []}', '{"config": {}, "units": {}}',
     '{"config": {}, "units": [{"id": 1, "kind": 2, "marker": 3, "label": 4}]}', '{"config": {}, "units": [["id", "kind"]]}',
     '{"config": {}, "units": []}', '{"config": {"name": "other"}, "units": []}', '{"config": {"name": "first"}, "units": [3]}',
     '{"config": {}, "units": [3]}', '{"config": {}, "units": [{"id": "x"}]}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_record_of_a_study_is_one_line(tmp_path: Path, record: str) -> None:
    store = Store(str(tmp_path))
    store.replace("sweeps/first/study.json", record.encode())
    with pytest.raises(InputError, match=r"first/study.json: is damaged; run the sweep again"):
        load_results(str(tmp_path), "first")


def test_unknown_sweep_is_named(tmp_path: Path) -> None:
    config = study(name="first")
    publish_study(Store(str(tmp_path)), config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    with pytest.raises(InputError, match="did you mean 'first'"):
        load_results(str(tmp_path), "frist")


def test_files_have_exactly_the_schema() -> None:
    table = pq.read_table(io.BytesIO(encode_rows([{"unit": "x"}])))
    assert table.schema.equals(MEASURED)


def test_files_of_an_older_version_lack_columns_and_still_load(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), study(name="first")
    plan = expand(config, CATALOGUE)
    publish_study(store, config, plan, {"created": "now", "version": "1"})
    old = pa.Table.from_pylist([{"unit": plan.fits[1].id, "agreement": 50}])
    store.publish(plan.fits[1].marker, parquet(old))
    table = load_results(str(tmp_path), "first")
    assert table["agreement"].tolist() == [50.0]
    assert pd.isna(table["kappa"][0])

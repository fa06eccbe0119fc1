"""The numbers of a report against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from report_study import curves, ends, row

from raystitch.report.frame import in_order, tidy, with_excess
from raystitch.report.gaps import Gap, Interval, gap_rows
from raystitch.report.panels import Panel, make_panels
from raystitch.report.statistics import curve, grid, residuals, unstitched
from raystitch.report.tables import gap_table, percent, raua_table, residual, signed


def panels(rows: list[dict[str, object]]) -> list[Panel]:
    return make_panels(with_excess(tidy(pd.DataFrame(rows))), ())


def only_panel(rows: list[dict[str, object]]) -> Panel:
    (panel,) = panels(rows)
    return panel


def r(median: float) -> dict[str, float]:
    return {"iri_r_median": median, "iri_r_p90": 2 * median}


def test_a_curve_is_the_mean_and_range_over_fronts_and_seeds() -> None:
    scores = {("a/1", 1): 90.0, ("a/1", 2): 94.0, ("a/2", 1): 80.0, ("a/2", 2): 84.0}
    panel = only_panel([row("s", front, 3, "slm", "real", score, seed=seed) for (front, seed), score in scores.items()])
    assert curve(panel, "slm", "real").to_dict("index") == {3: {"mean": 87.0, "low": 80.0, "high": 94.0, "runs": 4}}
    assert curve(panel, "slm", "iri").empty


def test_the_unstitched_nets_are_points_0_and_n_plus_1() -> None:
    rows = [row("s", f"a/{i}", 1, "slm", "real", 90.0) for i in (1, 2)]
    panel = only_panel(rows + ends("s", "a/1", 4, 94.0) + ends("s", "a/2", 4, 96.0))
    assert unstitched(panel)["mean"].to_dict() == {0: 100.0, 5: 95.0}


def test_gaps_are_those_of_runs_that_both_arms_have() -> None:
    panel = only_panel(
        [
            row("s", "a/1", 2, "slm", "real", 95.0, seed=1),
            row("s", "a/1", 2, "slm", "real", 93.0, seed=2),
            row("s", "a/2", 2, "slm", "real", 10.0, seed=1),  # its IRI twin is not done: it must not move the gap
            row("s", "a/1", 2, "slm", "iri", 60.0, seed=1, **r(0.1)),
            row("s", "a/1", 2, "slm", "iri", 70.0, seed=2, **r(0.1)),
        ]
    )
    (line,) = gap_rows(panel, ["slm"])
    gap = line.gaps[0]
    assert (gap.means, gap.pairs) == ({"real": 94.0, "iri": 65.0}, 2)
    assert gap.gaps == {"iri": Interval(29.0, 23.0, 35.0)}  # of two runs drawn, both are the same one half of the time
    assert (line.front_point, line.end_point, line.r_median, line.r_p90) == (2, 2, 0.1, 0.2)


def test_without_pairs_each_arm_stands_for_itself_and_there_is_no_gap() -> None:
    panel = only_panel([row("s", "a/1", 2, "dm", "real", 95.0), row("s", "a/2", 2, "dm", "iri", 60.0, **r(0.3))])
    (line,) = gap_rows(panel, ["dm", "slm"])
    assert line.gaps == (Gap({"real": 95.0, "iri": 60.0}), Gap())


def test_a_point_with_real_images_only_has_no_residual() -> None:
    panel = only_panel([row("s", "a/1", 1, "slm", "real", 95.0), row("s", "a/1", 2, "slm", "iri", 60.0, **r(0.3))])
    assert [line.r_median for line in gap_rows(panel, ["slm"])] == [None, 0.3]


def test_an_iri_set_counts_once_however_many_fits_use_it() -> None:
    many = [row("s", "a/1", 1, objective, "iri", 50.0, **r(0.1)) for objective in ("slm", "dm", "fula")]
    panel = only_panel([*many, row("s", "a/2", 1, "slm", "iri", 50.0, **r(0.3))])
    assert residuals(panel).loc[1].to_dict() == pytest.approx({"median": 0.2, "p90": 0.4})


def test_excess_agreement_is_marked_minus_shuffled_per_run() -> None:
    rows = [
        row("s", "a/1", 1, "slm", "real", score, seed=seed, eval_set=eval_set)
        for seed, eval_set, score in (
            (1, "test", 90.0),
            (1, "shuffled", 30.0),
            (2, "test", 80.0),
            (2, "shuffled", 50.0),
        )
    ]
    rows.append(row("s", "a/1", 1, "slm", "real", 70.0, seed=3, eval_set="test"))
    excess = panels(rows)[-1]
    assert excess.eval_set == "excess"
    assert curve(excess, "slm", "real").loc[1].to_dict() == {"mean": 45.0, "low": 30.0, "high": 60.0, "runs": 2.0}


def test_a_map_has_end_points_as_rows_and_gaps_where_nothing_is_done() -> None:
    panel = only_panel(
        [row("s", "a/1", i, "slm", "real", 10.0 * i + j, end_point=j) for i, j in ((1, 1), (1, 2), (2, 2))]
    )
    assert panel.is_map
    values = grid(panel, "slm", "real")
    assert values.index.tolist() == [1, 2]
    np.testing.assert_array_equal(values.to_numpy(), [[11.0, np.nan], [12.0, 22.0]])


def test_paired_points_of_nets_with_different_depth_are_a_curve() -> None:
    panel = only_panel([row("s", "a/1", i, "slm", "real", 90.0, end_point=j) for i, j in ((1, 1), (2, 4), (3, 6))])
    assert not panel.is_map
    assert [line["point"] for line in gap_table(gap_rows(panel, ["slm"]), panel.arms)["lines"]] == [
        "1",
        "2 → 4",
        "3 → 6",
    ]


def test_what_must_not_be_averaged_becomes_panels_named_by_what_differs() -> None:
    found = panels(
        [
            row("s", "clean/1", 1, "slm", "real", 90.0),
            row("s", "pixel/1", 1, "slm", "real", 50.0),
            row("s", "pixel/1", 1, "slm", "real", 40.0, protocol="paper"),
            row("t", "clean/1", 1, "slm", "real", 90.0, eval_set="clean"),
            row("t", "clean/1", 1, "slm", "real", 90.0),
        ]
    )
    assert [(panel.label, panel.slug) for panel in found] == [
        ("s · clean → clean · matched", "s.clean-clean.matched"),
        ("s · pixel → clean · matched", "s.pixel-clean.matched"),
        ("s · pixel → clean · paper", "s.pixel-clean.paper"),
        ("t · test", "t"),
        ("t · clean", "t.clean"),
    ]
    assert [len(panel.rows) for panel in found] == [1, 1, 1, 1, 1]


def test_unstitched_rows_that_leave_the_protocol_open_belong_to_every_panel_of_their_nets() -> None:
    rows = [row("s", "a/1", 1, "slm", "real", 90.0, protocol=name) for name in ("matched", "paper")]
    rows += [row("s", "b/1", 1, "slm", "real", 90.0)]
    found = panels(rows + ends("s", "a/1", 1, 95.0))
    assert {panel.label: len(panel.ends) for panel in found} == {
        "s · a → clean · matched": 2,
        "s · a → clean · paper": 2,
        "s · b → clean · matched": 0,
    }


@pytest.mark.parametrize(
    ("names", "slugs"),
    [
        (["a/b", "a b", "A-b"], ["A-b", "a-b-2", "a-b-3"]),
        (["overview"], ["overview-2"]),
        (["../../etc"], ["etc"]),
        (["v1.2"], ["v1.2"]),
        (["交叉"], ["setting"]),
    ],
)
def test_file_names_are_safe_and_differ(names: list[str], slugs: list[str]) -> None:
    assert sorted(panel.slug for panel in panels([row(name, "a/1", 1, "slm", "real", 1.0) for name in names])) == slugs


def test_tidy_keeps_finished_rows_only_and_does_not_depend_on_their_order() -> None:
    frame = curves(["cross-seed"], fronts=(1,), seeds=(1,))
    frame.loc[0, "agreement"] = np.nan
    pd.testing.assert_frame_equal(tidy(frame), tidy(frame.sample(frac=1, random_state=0)))
    assert len(tidy(frame)) == len(frame) - 1
    assert tidy(pd.DataFrame()).empty


def test_order_is_the_wanted_one_then_the_alphabet() -> None:
    assert in_order(["z", "slm", "a", "hlm"], ("hlm", "dm", "slm")) == ["hlm", "slm", "a", "z"]


@pytest.mark.parametrize(
    ("value", "shown"), [(12.34, "+12.3"), (-0.44, "−0.4"), (0.01, "0.0"), (-0.01, "0.0"), (None, "–")]
)
def test_signed(value: float | None, shown: str) -> None:
    assert signed(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(93.04, "93.0"), (100.0, "100.0"), (-3.2, "−3.2"), (None, "–")])
def test_percent(value: float | None, shown: str) -> None:
    assert percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0523, "0.052"),
        (1.2, "1.200"),
        (0.0041, "0.0041"),
        (2e-5, "2.0e-05"),
        (0.0, "0.000"),
        (None, "–"),
        (np.nan, "–"),
    ],
)
def test_residual(value: float | None, shown: str) -> None:
    assert residual(value) == shown


def test_stitches_inputs_test_data_and_attacks_are_panels_of_their_own() -> None:
    attacked = {"eval_set": "apgd_ce_dlr", "eps": 8 / 255}
    rows = [
        row("s", "a/1", 1, "slm", "real", 90.0, inputs="clean", stitch="affine"),
        row("s", "a/1", 1, "slm", "real", 50.0, inputs="clean", stitch="affine", **attacked),
        row("s", "a/1", 1, "slm", "real", 60.0, inputs="adversarial", stitch="affine", **attacked),
        row(
            "t",
            "a/1",
            1,
            "slm",
            "real",
            60.0,
            stitch="mlp:8",
            eval_set="autoattack",
            eps=0.5 / 255,
            test_dataset="c100",
        ),
        row(
            "t",
            "a/1",
            1,
            "slm",
            "real",
            60.0,
            stitch="affine",
            eval_set="autoattack",
            eps=0.5 / 255,
            test_dataset="c10",
        ),
    ]
    found = panels(rows)
    assert [(panel.label.replace("\u00a0", " "), panel.slug) for panel in found] == [
        ("s · trained on clean images · test", "s.clean"),
        ("s · trained on adversarial images · attacked: APGD, ε 8/255", "s.adversarial.apgd_ce_dlr"),
        ("s · trained on clean images · attacked: APGD, ε 8/255", "s.clean.apgd_ce_dlr"),
        ("t · tested on c10 · stitch affine · attacked: AutoAttack, ε 0.5/255", "t.c10.affine"),
        ("t · tested on c100 · stitch mlp:8 · attacked: AutoAttack, ε 0.5/255", "t.c100.mlp-8"),
    ]
    assert [len(panel.rows) for panel in found] == [1, 1, 1, 1, 1]


def test_unstitched_rows_know_no_stitch_and_no_inputs_but_their_attack() -> None:
    rows = [
        row("s", "a/1", 1, "slm", "real", 50.0, inputs=inputs, stitch="affine", eval_set=name, eps=eps)
        for inputs in ("clean", "adversarial")
        for name, eps in (("test", None), ("apgd_ce_dlr", 8 / 255))
    ]
    alone = {"inputs": "none", "stitch": "none"}
    rows += ends("s", "a/1", 1, 95.0, **alone)
    rows += [
        {**each, "agreement": 40.0, "eval_set": "apgd_ce_dlr", "eps": 8 / 255}
        for each in ends("s", "a/1", 1, 0.0, **alone)
    ]
    found = {(panel.key["inputs"], panel.eval_set): unstitched(panel)["mean"].to_dict() for panel in panels(rows)}
    clean, attacked = {0: 100.0, 2: 95.0}, {0: 40.0, 2: 40.0}
    assert found == {
        (inputs, name): ends_of
        for inputs in ("clean", "adversarial")
        for name, ends_of in (("test", clean), ("apgd_ce_dlr", attacked))
    }


def test_every_arm_but_real_needs_its_residual_and_has_its_own_gap() -> None:
    rows = [row("s", "a/1", 1, "slm", "real", value, seed=seed) for seed, value in ((1, 95.0), (2, 93.0))]
    rows += [row("s", "a/1", 1, "slm", "iri", value, seed=seed, **r(0.1)) for seed, value in ((1, 60.0), (2, 70.0))]
    rows += [row("s", "a/1", 1, "slm", "iri_front", 75.0, seed=1, **r(0.1))]
    panel = only_panel(rows)
    assert panel.arms == ["real", "iri", "iri_front"]
    assert panel.iri_arms == ["iri", "iri_front"]
    (line,) = gap_rows(panel, ["slm"])
    # seed 2 has no run of the front alone, so that all values are those of seed 1
    assert line.gaps[0] == Gap(
        {"real": 95.0, "iri": 60.0, "iri_front": 75.0}, {"iri": Interval(35.0), "iri_front": Interval(20.0)}, 1
    )
    (cells,) = gap_table([line], panel.arms)["lines"][0]["cells"]
    assert cells["values"] == [
        {"mean": "95.0", "gap": ""},
        {"mean": "60.0", "gap": ""},
        {"mean": "75.0", "gap": "gap +20.0"},
    ]
    assert (cells["gap"], cells["spread"]) == ("+35.0", "")
    single = only_panel([row("s", "a/1", 1, "slm", "iri_end", 75.0)])
    assert residuals(single)["median"].isna().tolist() == [True]


def test_raua_is_the_mean_over_points_per_arm_and_objective_with_its_largest_residual() -> None:
    attacked = {"eval_set": "apgd_ce_dlr", "eps": 8 / 255}
    rows = [
        row("s", front, point, "slm", "iri", value, **r(0.1 * point), **attacked, iri_level=level)
        for front, values in (("a/1", (60.0, 20.0)), ("a/2", (50.0, 10.0)))
        for point, value, level in zip((1, 2), values, (None, 0.2), strict=True)
    ]
    rows += [row("s", "a/1", 1, "slm", "real", 80.0, **attacked), *ends("s", "a/1", 2, 0.0, **attacked)]
    (panel,) = panels(rows)
    real, iri = raua_table(panel, ["slm", "dm"])
    assert (real["mean"], real["interval"], real["runs"], real["points"], real["r"]) == ("80.0", "", "1", "1 of 2", "–")
    # 40 and 30: of two pairs drawn, both are the same one half of the time
    assert (iri["mean"], iri["interval"], iri["runs"], iri["points"]) == ("35.0", "30.0 … 40.0", "2", "2")
    assert iri["r"] == "0.200"

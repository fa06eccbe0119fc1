"""Representation metrics beside agreement: one table, at the smallest residual, and never taken for scores of stitches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from report_study import OBJECTIVES, curves, ends, row
from report_study_full import similarities

from raystitch.report.frame import similarity_rows, tidy
from raystitch.report.look import figure_look
from raystitch.report.panels import Panel, make_panels
from raystitch.report.similarity import Similarity, find_similarities, similarity_table
from raystitch.report.similarity_figure import similarity_figure
from raystitch.report.statistics import unstitched


def alike(front: str, point: int, level: float | None, r: float, **values: Any) -> dict[str, Any]:
    own = {
        "eval_set": "train",
        "iri_level": level,
        "iri_r_median": r,
        "iri_r_p90": 2 * r,
        "inputs": "none",
        "stitch": "none",
    }
    return row("s", front, point, "none", "none", np.nan, seed=0, **{**own, **values})


def both(rows: list[dict[str, Any]]) -> tuple[list[Panel], list[Similarity]]:
    frame = pd.DataFrame(rows)
    panels = make_panels(tidy(frame), ())
    return panels, find_similarities(similarity_rows(frame), panels, ())


def test_the_table_has_the_metrics_at_the_smallest_residual_beside_agreement() -> None:
    rows = [
        row("s", "a/1", 1, "slm", "real", 90.0),
        row("s", "a/2", 1, "slm", "real", 80.0),
        row("s", "a/1", 1, "slm", "iri", 60.0, iri_r_median=0.1, iri_r_p90=0.2),
        row("s", "a/1", 1, "dm", "real", 70.0),
        alike("a/1", 1, 0.4, 0.4, cka=0.9, cka_iri=0.8, stir=0.7, stir_front=0.6),
        alike("a/1", 1, None, 0.1, cka=0.9, cka_iri=0.5, stir=0.4, stir_front=0.95),
        alike("a/2", 1, None, 0.3, cka=0.7, cka_iri=0.3, stir=0.2, stir_front=0.85),
        alike("a/1", 2, None, 0.2, cka=0.8, cka_iri=0.4, stir=-0.01, stir_front=0.9),
    ]
    _, (each,) = both(rows)
    table = similarity_table(each, OBJECTIVES)
    assert table["columns"] == [("SLM", "real", "real"), ("SLM", "iri", "IRI"), ("DM", "real", "real")]
    assert table["lines"] == [
        {
            "point": "1",
            "metrics": ["0.80", "0.40", "0.30", "0.90"],
            "r": "0.200",
            "agreement": ["85.0", "60.0", "70.0"],
        },
        {"point": "2", "metrics": ["0.80", "0.40", "−0.01", "0.90"], "r": "0.200", "agreement": ["–", "–", "–"]},
    ]


def test_metrics_are_no_unstitched_ends_and_no_panels() -> None:
    fits = [row("s", "a/1", p, "slm", "real", 90.0) for p in (1, 2)]
    rows = [*fits, *ends("s", "a/1", 2, 95.0), *(alike("a/1", p, None, 0.1, cka=0.9) for p in (1, 2))]
    (panel,), _ = both(rows)
    assert panel.eval_set == "test"
    assert unstitched(panel)["mean"].to_dict() == {0: 100.0, 3: 95.0}


def test_on_real_images_alone_there_is_cka_and_nothing_else() -> None:
    rows = [row("s", "a/1", 1, "slm", "real", 90.0), alike("a/1", 1, None, np.nan, cka=0.9)]
    _, (each,) = both(rows)
    assert each.metrics == ["cka"]
    assert not similarity_table(each, OBJECTIVES)["has_iris"]
    with figure_look():
        assert [ax.get_title(loc="left") for ax in similarity_figure(each, OBJECTIVES).axes] == [
            "representation metrics",
            "agreement",
        ]


def test_metrics_are_shown_before_any_fit_is_done() -> None:
    panels, (each,) = both([alike("a/1", 1, None, 0.1, cka=0.9, cka_iri=0.5)])
    assert panels == []
    assert similarity_table(each, OBJECTIVES)["lines"][0]["metrics"] == ["0.90", "0.50"]
    with figure_look():
        assert len(similarity_figure(each, OBJECTIVES).axes) == 2  # metrics and their residuals


def test_pairs_of_models_stand_apart() -> None:
    _, found = both([alike("a/1", 1, None, 0.1, cka=0.9), alike("b/1", 1, None, 0.1, cka=0.8)])
    assert [(each.label, each.slug) for each in found] == [
        ("s · a → clean · cifar10", "s.a-clean.cifar10"),
        ("s · b → clean · cifar10", "s.b-clean.cifar10"),
    ]


def test_the_figure_has_the_means_and_the_residuals_below() -> None:
    frame = pd.concat([curves(["cross-bias"], (1, 2), (1,)), similarities()])
    (each,) = find_similarities(similarity_rows(frame), make_panels(tidy(frame), ()), ())
    with figure_look():
        metrics, agreement, strip, _ = similarity_figure(each, OBJECTIVES).axes
    lines = {str(line.get_gid()): line for line in metrics.get_lines()}
    assert set(lines) == {"metric-cka", "metric-cka_iri", "metric-stir", "metric-stir_front"}
    np.testing.assert_allclose(lines["metric-cka"].get_ydata(), [0.98 - 0.02 * point for point in range(1, 10)])
    assert "curve-iri-slm" in {line.get_gid() for line in agreement.get_lines()}
    r = next(line for line in strip.get_lines() if line.get_gid() == "metrics-r-median")
    # the mean of two fronts, at the best level
    np.testing.assert_allclose(np.asarray(r.get_ydata())[:2], [0.012 * 1.075, 0.03 * 1.075])


def test_a_map_has_a_map_per_metric() -> None:
    (each,) = find_similarities(similarity_rows(similarities(fronts=(1,), cross=True)), [], ())
    with figure_look():
        axes = similarity_figure(each, OBJECTIVES).axes
    assert [ax.get_title(loc="left") for ax in axes[:4]] == [
        "CKA, real images",
        "CKA, IRIs",
        "STIR",
        "STIR of the front with itself",
    ]
    values = axes[0].collections[0].get_array()
    np.testing.assert_allclose(values[:2, :2], [[0.96, 0.89], [0.91, 0.94]])  # type: ignore[index]

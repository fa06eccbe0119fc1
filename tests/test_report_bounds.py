"""Reports of numbers and names out of all proportion: they take no longer, and every file has a name that can be written."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image
from report_study import row

from raystitch.report import StudyFacts, write_report
from raystitch.report.axes import label_points
from raystitch.report.frame import tidy
from raystitch.report.look import figure_look
from raystitch.report.panels import make_panels, unique
from raystitch.report.render import LARGEST_SIDE, to_png

SETTING = "information identical"


def results(**changes: Any) -> pd.DataFrame:
    """Curves on both arms with two residual levels, unstitched ends and representation metrics; the fifth row is changed."""
    rows = [row(SETTING, "clean/0", point, "fula", "real", 90.0 - point) for point in (1, 2, 3)]
    for point in (1, 2, 3):
        for level, r in ((np.nan, 0.1), (0.5, 0.5)):
            rows.append(
                row(SETTING, "clean/0", point, "fula", "iri", 50.0, iri_level=level, iri_r_median=r, iri_r_p90=2 * r)
            )
        rows.append(row(SETTING, "clean/0", point, "none", "none", np.nan, cka=0.5, stir=0.4, iri_r_median=0.1))
    rows += [row(SETTING, "clean/0", point, "none", "none", 95.0) for point in (0, 4)]
    rows[4] |= changes
    return pd.DataFrame(rows)


@pytest.mark.parametrize("value", [2.0**62, -np.inf, 5e-324])
@pytest.mark.parametrize(
    "column", ["front_point", "end_point", "seed", "n_eval", "eps", "iri_level", "agreement", "iri_r_median", "cka"]
)
def test_no_number_stops_a_report(column: str, value: float) -> None:
    written: dict[str, bytes] = {}
    study = StudyFacts("study", settings=[SETTING], published="information")
    write_report(results(**{column: value}), study, written.__setitem__)
    assert "index.html" in written
    assert any(name.startswith("figures/information-identical") for name in written)


def test_a_point_far_away_has_few_ticks() -> None:
    (panel,) = make_panels(tidy(pd.DataFrame([row("far", "clean/0", 10**14, "fula", "real", 50.0)])), ())
    ax = Figure().subplots()
    label_points(ax, panel)
    assert len(ax.get_xticks()) < 30


def test_every_point_of_a_shallow_net_has_a_tick() -> None:
    rows = [row("near", "clean/0", point, "fula", "real", 50.0) for point in range(1, 10)]
    (panel,) = make_panels(tidy(pd.DataFrame([*rows, row("near", "clean/0", 10, "none", "none", 95.0)])), ())
    ax = Figure().subplots()
    label_points(ax, panel)
    assert ax.get_xticks().tolist() == list(range(11))


@pytest.mark.parametrize("length", [80, 100_000])
def test_long_names_make_files_that_can_be_written(tmp_path: Path, length: int) -> None:
    """The longest names that a config may have, and longer ones; panels that differ in their last letters stay apart."""
    end = "x" * (length - 1)
    rows = [
        {**row(end + name, f"{end}a/0", 1, "fula", "real", 50.0), "dataset": end + dataset, "test_dataset": end + "c"}
        for name in "ab"
        for dataset in "de"
    ]

    def out(name: str, data: bytes) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)

    write_report(pd.DataFrame(rows), StudyFacts("study"), out)
    assert len(list((tmp_path / "figures").glob("x*.svg"))) == 4


def test_a_name_of_a_file_is_cut_only_where_it_is_too_long() -> None:
    used: set[str] = set()
    assert unique("cross-seed.plain", used) == "cross-seed.plain"
    one, two = unique("x" * 300 + "a", used), unique("x" * 300 + "b", used)
    assert one != two
    assert len(one) == len(two) == 150


def test_a_picture_of_very_many_settings_can_be_drawn() -> None:
    with figure_look():
        picture = Image.open(BytesIO(to_png(Figure(figsize=(1, 500)))))
        small = Image.open(BytesIO(to_png(Figure(figsize=(1, 2)))))
    assert picture.size[1] == LARGEST_SIDE
    assert small.size == (200, 400)

"""The page as a file: complete at any stage of a study, self-contained, safe against what names contain."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report_study import RESIDUALS, cross_map, curves, ends, facts, row

from raystitch.report import GalleryEntry, IriLevel, StudyFacts, write_report

PAYLOAD = "<script>alert('x')</script>"


class Page(HTMLParser):
    """The parts of a page that tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text, self._in_cell = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._in_cell = True
        elif tag == "small" and self._in_cell:
            self.tables[-1][-1][-1] += "|"

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            self.tables[-1][-1][-1] += data

    def values(self, attribute: str) -> list[str]:
        return [str(attrs[attribute]) for _, attrs in self.tags if attribute in attrs]


def write(frame: pd.DataFrame, study: StudyFacts) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    write_report(frame, study, files.__setitem__)
    return files


def page_of(frame: pd.DataFrame, study: StudyFacts) -> Page:
    return Page(write(frame, study)["index.html"].decode())


@pytest.fixture(scope="module")
def full() -> dict[str, bytes]:
    return write(curves(fronts=(1, 2), seeds=(1, 2)), facts())


@pytest.fixture(scope="module")
def page(full: dict[str, bytes]) -> Page:
    return Page(full["index.html"].decode())


def test_every_setting_has_its_figures_and_so_has_the_overview(full: dict[str, bytes]) -> None:
    names = [f"figures/{name}.{kind}" for name in ("cross-seed", "cross-bias", "overview") for kind in ("svg", "png")]
    assert sorted(full) == sorted(["index.html", *names])
    for name in names:
        start = b"<?xml" if name.endswith("svg") else b"\x89PNG"
        assert full[name].startswith(start)


def test_the_page_needs_nothing_from_elsewhere(full: dict[str, bytes], page: Page) -> None:
    for link in page.values("src") + page.values("href") + page.values("xlink:href"):
        assert link.startswith(("data:", "#", "figures/")), link
    assert {link for link in page.values("href") if link.startswith("figures/")} == set(full) - {"index.html"}
    assert "script" not in {tag for tag, _ in page.tags}
    text = full["index.html"].decode()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_ids_are_unique_and_links_inside_the_page_lead_somewhere(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    inside = [link[1:] for link in page.values("href") + page.values("xlink:href") if link.startswith("#")]
    assert set(inside) <= set(ids)


def test_the_gap_table_shows_the_hand_computed_values() -> None:
    rows = [
        row("s", "a/1", 2, "slm", "real", 95.0, seed=1),
        row("s", "a/1", 2, "slm", "real", 93.0, seed=2),
        row("s", "a/1", 2, "slm", "iri", 60.0, seed=1, iri_r_median=0.1, iri_r_p90=0.25),
        row("s", "a/1", 2, "slm", "iri", 70.0, seed=2, iri_r_median=0.1, iri_r_p90=0.25),
        row("s", "a/1", 2, "dm", "real", 50.0, seed=1),
        row("s", "a/1", 2, "dm", "iri", 52.5, seed=1, iri_r_median=0.1, iri_r_p90=0.25),
    ]
    table = page_of(pd.DataFrame(rows), StudyFacts("s", objectives=("slm", "dm"))).tables[0]
    assert table[:2] == [
        ["Point", "SLM", "DM", "IRI residual"],
        ["real", "IRI", "gap", "real", "IRI", "gap", "median r", "p90"],
    ]
    slm, dm = ["94.0", "65.0", "+29.0|+23.0 … +35.0"], ["50.0", "52.5", "−2.5|1 of 2 pairs"]
    assert table[2] == ["2|layer2.0", *slm, *dm, "0.100", "0.250"]


def test_the_table_of_iri_sets_has_residuals_before_and_after_rounding(page: Page) -> None:
    table = next(table for table in page.tables if table[0][0] == "Front")
    assert len(table) == 2 + 18
    assert table[2] == [
        *("pixel/1", "cifar10", "1", "layer1.1", "50,000", "adam", "400", "uint8"),
        *("0.011", "0.019", "0.047", "0.012", "0.020", "0.048"),
    ]


def test_the_gallery_holds_the_very_pixels_and_each_residual(page: Page) -> None:
    entry = facts().gallery[1]
    sources = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(sources) == 8 + 3 * 8  # the images once, then the IRIs of three points
    image, iri = (str(sources[place]["src"]).removeprefix("data:image/png;base64,") for place in (2, 16 + 2))
    for shown, pixels in ((image, entry.images[2]), (iri, entry.iris[2])):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(shown)))), pixels)
    assert page.text.count(f"r {RESIDUALS[3]:.3f}") == 8


def gallery_heads(page: Page) -> list[str]:
    return [line[0] for table in page.tables for line in table if line[0].startswith("point ")]


def test_sets_of_one_point_say_how_each_was_made_and_a_set_alone_does_not() -> None:
    shown, made = facts().gallery, facts().iri_sets[0]
    recipes = [("sign", 200), ("adam", 400), ("adam", 100)]
    several = [replace(shown[0], made=replace(made, optimiser=name, steps=steps)) for name, steps in recipes]
    study = StudyFacts("s", gallery=[*several, replace(shown[1], made=made)])
    assert gallery_heads(page_of(pd.DataFrame(), study)) == [
        *("point 1|adam, 100 steps", "point 1|adam, 400 steps", "point 1|sign, 200 steps"),
        "point 4",
    ]


@pytest.mark.parametrize(
    ("other", "heads"),
    [
        ({"dtype": "float16"}, ["float16", "uint8"]),
        ({"levels": [IriLevel(0.4, 8, 0.39), IriLevel(0.2, 5, 0.19)]}, ["uint8", "uint8, levels 0.4, 0.2"]),
        ({}, ["uint8, a1", "uint8, b2"]),
    ],
)
def test_sets_of_one_recipe_are_told_apart_by_what_else_they_differ_in(other: dict[str, Any], heads: list[str]) -> None:
    shown, made = facts().gallery[0], replace(facts().iri_sets[0], id="a1")
    study = StudyFacts("s", gallery=[replace(shown, made=each) for each in (replace(made, id="b2", **other), made)])
    found = gallery_heads(page_of(pd.DataFrame(), study))
    assert sorted(found) == [f"point 1|adam, 400 steps, {each}" for each in heads]


def test_the_table_of_iri_sets_says_of_each_level_how_many_images_reached_it() -> None:
    made = facts().iri_sets[0]
    levels = [IriLevel(0.45, 50_000, 0.446), IriLevel(0.15, 0, 0.21)]
    table = page_of(pd.DataFrame(), StudyFacts("s", iri_sets=[made, replace(made, point=2, levels=levels)])).tables[0]
    assert [len(line) for line in table[2:]] == [14, 14, 1]
    text = "0.45 reached by 50,000 images, median r 0.446; 0.15 reached by 0 images, median r 0.210"
    assert table[4] == [f"|Residual levels of this set: {text}."]


def test_a_gallery_too_large_for_a_page_is_cut_and_says_so() -> None:
    pixels = np.zeros((1, 4, 4, 3), np.uint8)
    many = [GalleryEntry(f"a/{i}", "digits", 1, pixels, pixels, np.zeros(1)) for i in range(30)]
    page = page_of(pd.DataFrame(), StudyFacts("s", gallery=many))
    assert "Shown are 12 of 30 groups" in page.text
    assert sum(tag == "img" for tag, _ in page.tags) == 24


@pytest.mark.parametrize("frame", [pd.DataFrame(), curves(["cross-seed"], (1,), (1,)).iloc[:0]])
def test_an_empty_study_says_that_nothing_is_done(frame: pd.DataFrame) -> None:
    files = write(frame, StudyFacts("early", settings=("a",), objectives=("slm",)))
    assert list(files) == ["index.html"]
    assert "Nothing is done yet" in files["index.html"].decode()


def test_unstitched_rows_alone_are_nothing_yet() -> None:
    assert "Nothing is done yet" in page_of(pd.DataFrame(ends("s", "a/1", 3, 90.0)), StudyFacts("early")).text


def test_settings_without_a_fit_are_named_as_waiting() -> None:
    frame = pd.DataFrame([row("s", "a/1", 1, "slm", "real", 90.0)])
    assert "No finished fits yet: later, last." in page_of(frame, StudyFacts("x", settings=("s", "later", "last"))).text


@pytest.mark.parametrize(("arm", "columns"), [("real", ["real"]), ("iri", ["IRI", "median r", "p90"])])
def test_one_arm_and_one_objective_are_a_page(arm: str, columns: list[str]) -> None:
    frame = curves(["cross-bias"], (1,), (1,))
    frame = frame[(frame["arm"] == arm) & (frame["objective"] == "fula")]
    page = page_of(frame, facts(iri_sets=(), gallery=(), failures=()))
    assert page.tables[0][1] == columns
    assert len(page.tables[0]) == 2 + 9
    assert "there is no gap to show" in page.text


def test_any_part_of_a_running_sweep_is_a_page() -> None:
    frame = pd.concat([curves(), cross_map(4)])
    for size, seed in ((1, 0), (20, 2)):
        page_of(frame.sample(size, random_state=seed), facts(gallery=()))


def test_columns_of_residuals_may_be_missing_but_the_page_says_so() -> None:
    frame = pd.DataFrame([row("s", "a/1", 4, "slm", "iri", 90.0)]).drop(columns=["iri_r_median", "iri_r_p90"])
    assert "No residual is recorded for the IRIs of point 4" in page_of(frame, StudyFacts("s")).text


def test_excess_agreement_has_a_figure_of_its_own() -> None:
    rows = [
        row("s", "a/1", 1, "slm", "real", value, eval_set=name) for name, value in (("test", 90.0), ("shuffled", 25.0))
    ]
    files = write(pd.DataFrame(rows), StudyFacts("s"))
    assert {"figures/s.svg", "figures/s.shuffled.svg", "figures/s.excess.svg"} <= set(files)
    assert Page(files["index.html"].decode()).tables[2][2] == ["1|layer1.1", "65.0"]


def test_whatever_users_write_is_shown_as_text() -> None:
    frame = pd.DataFrame(
        [row(PAYLOAD, f"{PAYLOAD}/1", 1, PAYLOAD, "real", 90.0, front_module=PAYLOAD, dataset=PAYLOAD)]
    )
    study = facts(
        name=PAYLOAD, title=PAYLOAD, created=PAYLOAD, version=PAYLOAD, protocol=PAYLOAD, storage=PAYLOAD,
        settings=(PAYLOAD, "later" + PAYLOAD),
        iri_sets=[replace(facts().iri_sets[0], front=PAYLOAD, dataset=PAYLOAD, module=PAYLOAD, optimiser=PAYLOAD)],
        gallery=[replace(facts().gallery[0], front=PAYLOAD, dataset=PAYLOAD)],
        failures=[{PAYLOAD: PAYLOAD, "error": f"{PAYLOAD}\n{PAYLOAD}"}],
    )  # fmt: skip
    files = write(frame, study)
    page = Page(files["index.html"].decode())
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(PAYLOAD) > 15
    assert not [name for name in files if not re.fullmatch(r"index\.html|figures/[A-Za-z0-9._-]+\.(svg|png)", name)]
    assert all(b"<script" not in content for content in files.values())


def test_failures_show_short_fields_and_fold_long_ones(page: Page) -> None:
    assert "1 unit failed" in page.text
    assert "error: MemoryError: 8 GiB" in page.text
    assert "fit-0a1b2c" in page.text


def test_the_same_results_in_any_order_give_the_same_bytes() -> None:
    frame = curves(["cross-bias"], (1, 2), (1,))
    frame = frame[frame["objective"].isin(["none", "slm"])]
    assert write(frame, facts()) == write(frame.sample(frac=1, random_state=3), facts())


def test_the_facts_count_what_is_done(page: Page) -> None:
    assert "576 of 1,440 planned" in page.text  # 2 settings × 2 fronts × 2 seeds × 2 arms × 4 objectives × 9 points
    assert "18 with 900,000 images" in page.text
    assert "10,000" in page.text

"""The page of a study that has all that a report can show: levels, attacks, published values, representation metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from report_study import ends, facts, row
from report_study_full import everything
from test_plan import CATALOGUE, study
from test_report_page import PAYLOAD, Page, write

from raystitch.plan import expand
from raystitch.report import StudyFacts
from raystitch.reporting import publish_report
from raystitch.results import publish_study
from raystitch.store import Store

NOTES = "Our nets are <b>smaller</b>.\n\nThey see fewer images."


def some() -> pd.DataFrame:
    """Three points of the study."""
    frame = everything()
    return frame[frame["front_point"].isin([0, 1, 5, 9, 10]) & ~frame["objective"].isin(["hlm", "dm"])]


def told(**other: object) -> StudyFacts:
    return facts(**{"published": "information", "notes": NOTES, "gallery": (), "failures": (), "iri_sets": (), **other})


@pytest.fixture(scope="module")
def full() -> dict[str, bytes]:
    return write(some(), told())


@pytest.fixture(scope="module")
def page(full: dict[str, bytes]) -> Page:
    return Page(full["index.html"].decode())


def test_every_part_has_its_figures(full: dict[str, bytes]) -> None:
    panels = [
        "at-to-at-attacked",
        "cross-bias",
        "cross-seed",
        "pixel-class",
        "pixel-class.excess",
        "pixel-class.shuffled",
    ]
    extra = ["levels/cross-bias", "levels/cross-seed", "similarity/cross-bias", "published", "overview"]
    names = {f"figures/{name}.{kind}" for name in panels + extra for kind in ("svg", "png")}
    assert set(full) == names | {"index.html"}


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(full: dict[str, bytes], page: Page) -> None:
    ids, links = page.values("id"), page.values("href") + page.values("xlink:href") + page.values("src")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert {link for link in links if link.startswith("figures/")} == set(full) - {"index.html"}
    assert all(link.startswith(("#", "data:", "figures/")) for link in links)
    assert "script" not in {tag for tag, _ in page.tags}


def test_notes_stand_beside_the_published_values_as_text(page: Page) -> None:
    assert "Our nets are <b>smaller</b>." in page.text
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.text.index("Beside the published values\nOur nets") < page.text.index("Does the shape hold?")


def test_levels_are_said_and_their_trend_is_a_table(page: Page) -> None:
    assert page.text.count("the level with the smallest median r alone") == 2
    table = next(table for table in page.tables if table[1][:2] == ["smallest", "largest"])
    assert table[0] == ["Trained on", "Point", "median r", "SLM", "FuLA"]
    assert [line[:2] for line in table[2:5]] == [["IRIs", "1"], ["IRIs", "5"], ["IRIs", "9"]]
    assert "at least 1.25 times as large" in page.text


def test_attacked_sets_are_named_and_have_their_raua(page: Page) -> None:
    assert "at-to-at attacked · attacked: APGD, ε\u00a08/255" in page.text
    assert "within ε = 8/255 per pixel" in page.text
    assert "The stitch was trained on adversarial images" in page.text
    table = next(table for table in page.tables if "rAuA" in table[0])
    assert [line[:2] for line in table[1:]] == [
        ["real images", "SLM"],
        ["real images", "FuLA"],
        ["IRIs", "SLM"],
        ["IRIs", "FuLA"],
    ]


def test_representation_metrics_have_one_table_with_agreement(page: Page) -> None:
    table = next(table for table in page.tables if "CKA, IRIs" in table[1])
    assert table[0] == ["Point", "Similarity", "median r", "Agreement (%)"]
    assert table[1][4:] == ["SLM real", "SLM IRI", "FuLA real", "FuLA IRI"]
    assert len(table) == 2 + 3


def test_the_example_does_not_mix_levels(page: Page) -> None:
    assert "& df.iri_level.isna()]" in page.text
    assert "by_residual(df)" in page.text


def test_the_same_results_in_any_order_give_the_same_bytes() -> None:
    frame = some()
    frame = frame[(frame["setting"] == "cross-bias") & (frame["objective"] != "fula")]
    assert write(frame.sample(frac=1, random_state=5), told()) == write(frame, told())


def test_notes_without_published_values_are_notes_of_the_study() -> None:
    text = Page(
        write(pd.DataFrame(ends("s", "a/1", 3, 90.0)), StudyFacts("early", notes=NOTES))["index.html"].decode()
    ).text
    assert "Notes\nOur nets are <b>smaller</b>." in text
    assert "Beside the published values" not in text


@pytest.mark.parametrize("published", ["information", "shortcuts", "robustness"])
def test_published_values_are_shown_before_anything_is_done(published: str) -> None:
    files = write(pd.DataFrame(), StudyFacts("early", published=published))
    assert list(files) == ["index.html"]
    text = Page(files["index.html"].decode()).text
    assert "No finished setting of this study stands for a published one yet." in text
    assert "not measured" in text


def test_whatever_users_write_is_shown_as_text() -> None:
    setting = f"{PAYLOAD} cross-bias"
    named = {"front_module": PAYLOAD, "dataset": PAYLOAD, "inputs": PAYLOAD, "stitch": PAYLOAD, "test_dataset": PAYLOAD}
    rows = [
        row(setting, f"{PAYLOAD}/1", 1, name, "iri", 90.0, iri_level=level, iri_r_median=r, iri_r_p90=r, **named)
        for name in (PAYLOAD, "fula")
        for level, r in ((0.4, 0.4), (None, 0.1))
    ]
    rows += [row(setting, f"{PAYLOAD}/1", 1, "none", "none", float("nan"), cka=0.5, eval_set="train", **named)]
    files = write(pd.DataFrame(rows), told(notes=PAYLOAD, settings=(setting,)))
    assert len(files) == 1 + 2 * 5  # overview, panel, levels, similarity, published
    page = Page(files["index.html"].decode())
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(PAYLOAD) > 15
    assert all(b"<script" not in content for content in files.values())
    safe = r"index\.html|figures/(levels/|similarity/)?[A-Za-z0-9._-]+\.(svg|png)"
    assert not [name for name in files if not re.fullmatch(safe, name)]


def test_the_report_of_a_stored_study_says_its_notes_protocols_and_published_values(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    config = study(published="robustness", notes=NOTES)
    publish_study(store, config, expand(config, CATALOGUE), {"created": "now", "version": "1"})
    publish_report(store, config.name)
    text = Page((tmp_path / "reports" / config.name / "index.html").read_text(encoding="utf-8")).text
    assert "Our nets are <b>smaller</b>." in text
    assert "On IRIs every objective falls to 35 or less" in text
    assert "matched: no augmentation and frozen BatchNorm on both arms" in text

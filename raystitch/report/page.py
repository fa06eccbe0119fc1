"""Write a study's report: one self-contained page, and every figure beside it as SVG and PNG.

The page needs no network and runs no script; every text that comes from a study is escaped by the template engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from raystitch.analysis import HALVING_FROM
from raystitch.report import beside, levels, tables
from raystitch.report.beside_figure import beside_figure
from raystitch.report.facts import StudyFacts
from raystitch.report.figures import overview_figure, panel_figure
from raystitch.report.frame import NO_VALUE, in_order, similarity_rows, tidy, with_excess
from raystitch.report.gaps import gap_rows
from raystitch.report.levels_figure import levels_figure
from raystitch.report.look import ARM_HEADS, ARM_NAMES, figure_look, objective_name
from raystitch.report.panels import Panel, make_panels
from raystitch.report.published import READING_ERROR, SETTINGS, SOURCE
from raystitch.report.render import inline_svg, to_png, to_svg
from raystitch.report.similarity import Similarity, find_similarities, similarity_table
from raystitch.report.similarity_figure import similarity_figure
from raystitch.report.statistics import residuals, unstitched

Out = Callable[[str, bytes], None]
FOLD_ROWS_OVER = 40
"""Longer tables are folded at first."""
GALLERY_LIMIT = 12
"""How many groups of images a page shows at most: a large study has more than a browser should load."""


def write_report(results: pd.DataFrame, study: StudyFacts, out: Out) -> None:
    """Write ``index.html`` and, as ``.svg`` and ``.png`` each, the figures:

    - ``figures/overview``, and ``figures/<setting>``. A setting with several model pairs, datasets, protocols, stitches,
      training inputs or evaluation sets has one for each, named ``<setting>.<what tells it apart>``;
    - ``figures/levels/<the same name>``: agreement against r, where IRIs come at several residual levels;
    - ``figures/similarity/<setting>``: representation metrics beside agreement, where they are measured;
    - ``figures/published``: the study's curves over the published ones, where it stands for one of the paper's studies.

    The same results and facts give the same bytes.

    Args:
        results: the results table, complete or not, also without any row or column.
        study: what the table does not tell.
        out: called with each file's path relative to the report's folder, and its content.
    """
    frame = with_excess(tidy(results))
    panels = make_panels(frame, study.settings)
    objectives = [name for name in in_order(frame["objective"], study.objectives) if name != NO_VALUE]
    similarities = find_similarities(similarity_rows(results), panels, study.settings)
    with figure_look():
        parts = {
            "sections": [_section(panel, study, out) for panel in panels],
            "overview": _overview(panels, study.objectives, out),
            "beside": _beside(panels, study, objectives, out),
            "similarities": [_similarity(each, study.objectives, out) for each in similarities],
        }
    page = _environment().get_template("page.html")
    text = page.render(
        study=study,
        title=study.title or study.name,
        facts=tables.study_facts(frame, panels, study) if panels else [],
        objectives=[objective_name(name) for name in objectives],
        waiting=[name for name in study.settings if name not in {panel.setting for panel in panels}],
        notes=beside.paragraphs(study.notes),
        iri_sets=tables.iri_table(study.iri_sets),
        gallery=tables.gallery_tables(study.gallery),
        gallery_limit=GALLERY_LIMIT,
        halving=f"{HALVING_FROM:g}",
        failures=tables.failure_list(study.failures),
        storage=repr(study.storage),
        sweep=repr(study.name),
        **parts,
    )
    out("index.html", text.encode("utf-8"))


def _environment() -> Environment:
    loader = PackageLoader("raystitch.report", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _section(panel: Panel, study: StudyFacts, out: Out) -> dict[str, Any]:
    """Everything the template shows of one panel; its figures are written on the way."""
    objectives = in_order(panel.rows["objective"], study.objectives)
    rows = gap_rows(panel, objectives)
    ends = unstitched(panel)["mean"]
    seen, unreached = levels.reached(panel, study.iri_sets)
    return {
        "panel": panel,
        "arm_names": {arm: ARM_NAMES.get(arm, arm) for arm in panel.arms},
        "arm_heads": {arm: ARM_HEADS.get(arm, arm) for arm in panel.arms},
        "objectives": [objective_name(name) for name in objectives],
        "figure": _draw(
            panel_figure(panel, objectives), panel.slug, f"Agreement over stitch points: {panel.label}", out
        ),
        "table": tables.gap_table(rows, panel.arms),
        "folded": len(rows) > FOLD_ROWS_OVER,
        "runs": _runs(panel),
        "ends": [("end alone" if p == 0 else "front alone", tables.percent(float(v))) for p, v in ends.items()],
        "no_residual": _points_without_residual(panel),
        "raua": tables.raua_table(panel, objectives) if panel.attacked else [],
        "levels": _levels(seen, objectives, out),
        "unreached": unreached,
    }


def _levels(panel: Panel, order: Sequence[str], out: Out) -> dict[str, Any] | None:
    """Agreement against r: the figure, and the value at the smallest r with its trend; nothing for a single level."""
    if not panel.has_levels:
        return None
    objectives = in_order(panel.levels["objective"], order)
    lines = levels.trend_table(panel, objectives)
    name, label = f"levels/{panel.slug}", f"Agreement against the residual of the IRIs: {panel.label}"
    has_places = bool(levels.places(panel))  # a map may have no equal points
    return {
        "name": name,
        "figure": _draw(levels_figure(panel, objectives), name, label, out) if has_places else None,
        "objectives": [objective_name(each) for each in objectives],
        "lines": lines,
        "folded": len(lines) > FOLD_ROWS_OVER,
    }


def _similarity(each: Similarity, order: Sequence[str], out: Out) -> dict[str, Any]:
    label = f"Representation metrics over stitch points: {each.label}"
    name = f"similarity/{each.slug}"
    table = similarity_table(each, order)
    return {
        "each": each,
        "name": name,
        "figure": _draw(similarity_figure(each, order), name, label, out),
        "table": table,
        "folded": len(table["lines"]) > FOLD_ROWS_OVER,
    }


def _beside(panels: Sequence[Panel], study: StudyFacts, objectives: Sequence[str], out: Out) -> dict[str, Any] | None:
    """The study's curves and the published ones, and what became of each published statement."""
    if study.published is None:
        return None
    matches = beside.find_matches(panels, study.published, objectives)
    pairs = beside.find_pairs(matches, study.published)
    label = "Curves of this study over the published ones"
    return {
        "study": study.published,
        "source": SOURCE,
        "error": f"{READING_ERROR:g}",
        "names": SETTINGS[study.published],
        "matched": bool(matches),
        "figure": _draw(beside_figure(pairs, objectives), "published", label, out) if pairs else None,
        "tables": beside.pair_tables(pairs),
        "statements": beside.statement_tables(matches, study.published),
    }


def _overview(panels: Sequence[Panel], objectives: Sequence[str], out: Out) -> Markup | None:
    """The figure with all panels, but of the evaluation sets only those that carry a score of the method."""
    first = {panel.setting: panel.eval_set for panel in reversed(panels)}
    shown = [panel for panel in panels if panel.attacked or panel.eval_set in (first[panel.setting], "excess")]
    if not shown:
        return None
    svg = _draw(overview_figure(shown, objectives), "overview", "Agreement over stitch points, all settings", out)
    return svg if len(shown) > 1 else None


def _draw(figure: Figure, name: str, label: str, out: Out) -> Markup:
    """Write a figure under its name, and return it for the inside of the page."""
    svg = to_svg(figure)
    out(f"figures/{name}.svg", svg)
    out(f"figures/{name}.png", to_png(figure))
    return inline_svg(svg, f"svg-{name.replace('/', ':')}", label)


def _runs(panel: Panel) -> str:
    """``9``, or ``3–9`` where points have different numbers of runs."""
    counts = panel.rows.groupby(["objective", "arm", "front_point", "end_point"]).size()
    return str(counts.max()) if counts.min() == counts.max() else f"{counts.min()}–{counts.max()}"


def _points_without_residual(panel: Panel) -> list[int]:
    medians = residuals(panel)["median"]
    return [int(point) for point in medians.index[medians.isna()]]

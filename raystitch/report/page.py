"""Write a study's report: one self-contained page, and every figure beside it as SVG and PNG.

The page needs no network and runs no script; every text that comes from a study is escaped by the template engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from raystitch.report import tables
from raystitch.report.facts import StudyFacts
from raystitch.report.figures import overview_figure, panel_figure
from raystitch.report.look import figure_look, objective_name
from raystitch.report.panels import NO_VALUE, Panel, in_order, make_panels, tidy, with_excess
from raystitch.report.render import inline_svg, to_png, to_svg
from raystitch.report.statistics import gap_rows, residuals, unstitched

Out = Callable[[str, bytes], None]
FOLD_ROWS_OVER = 40
"""Longer gap tables are folded at first."""
GALLERY_LIMIT = 12
"""How many groups of images a page shows at most: a large study has more than a browser should load."""


def write_report(results: pd.DataFrame, study: StudyFacts, out: Out) -> None:
    """Write ``index.html``, ``figures/<setting>.svg`` and ``.png``, and ``figures/overview.svg`` and ``.png``.

    A setting with several model pairs, datasets, protocols or evaluation sets has one figure for each, named
    ``<setting>.<what tells it apart>``. The same results and facts give the same bytes.

    Args:
        results: the results table, complete or not, also without any row or column.
        study: what the table does not tell.
        out: called with each file's path relative to the report's folder, and its content.
    """
    frame = with_excess(tidy(results))
    panels = make_panels(frame, study.settings)
    with figure_look():
        sections = [_section(panel, study, out) for panel in panels]
        overview = _overview(panels, study.objectives, out)
    page = _environment().get_template("page.html")
    text = page.render(
        study=study,
        title=study.title or study.name,
        facts=tables.study_facts(frame, panels, study) if panels else [],
        objectives=[objective_name(name) for name in _objectives(frame, study)],
        sections=sections,
        overview=overview,
        waiting=[name for name in study.settings if name not in {panel.setting for panel in panels}],
        iri_sets=tables.iri_table(study.iri_sets),
        gallery=tables.gallery_tables(study.gallery),
        gallery_limit=GALLERY_LIMIT,
        failures=tables.failure_list(study.failures),
        storage=repr(study.storage),
        sweep=repr(study.name),
    )
    out("index.html", text.encode("utf-8"))


def _environment() -> Environment:
    loader = PackageLoader("raystitch.report", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _objectives(frame: pd.DataFrame, study: StudyFacts) -> list[str]:
    return [name for name in in_order(frame["objective"], study.objectives) if name != NO_VALUE]


def _section(panel: Panel, study: StudyFacts, out: Out) -> dict[str, Any]:
    """Everything the template shows of one panel; its figure is written on the way."""
    objectives = in_order(panel.rows["objective"], study.objectives)
    rows = gap_rows(panel, objectives)
    ends = unstitched(panel)["mean"]
    return {
        "panel": panel,
        "objectives": [objective_name(name) for name in objectives],
        "figure": _draw(panel, objectives, out),
        "table": tables.gap_table(rows),
        "folded": len(rows) > FOLD_ROWS_OVER,
        "runs": _runs(panel),
        "ends": [("end alone" if p == 0 else "front alone", tables.percent(float(v))) for p, v in ends.items()],
        "no_residual": _points_without_residual(panel),
    }


def _draw(panel: Panel, objectives: Sequence[str], out: Out) -> Markup:
    figure = panel_figure(panel, objectives)
    svg = to_svg(figure)
    out(f"figures/{panel.slug}.svg", svg)
    out(f"figures/{panel.slug}.png", to_png(figure))
    return inline_svg(svg, f"svg-{panel.slug}", f"Agreement over stitch points: {panel.label}")


def _overview(panels: Sequence[Panel], objectives: Sequence[str], out: Out) -> Markup | None:
    """The figure with all panels, but of the evaluation sets only those that carry a score of the method."""
    first = {panel.setting: panel.eval_set for panel in reversed(panels)}
    shown = [panel for panel in panels if panel.eval_set in (first[panel.setting], "excess")]
    if not shown:
        return None
    figure = overview_figure(shown, objectives)
    svg = to_svg(figure)
    out("figures/overview.svg", svg)
    out("figures/overview.png", to_png(figure))
    return inline_svg(svg, "svg-overview", "Agreement over stitch points, all settings") if len(shown) > 1 else None


def _runs(panel: Panel) -> str:
    """``9``, or ``3–9`` where points have different numbers of runs."""
    counts = panel.rows.groupby(["objective", "arm", "front_point", "end_point"]).size()
    return str(counts.max()) if counts.min() == counts.max() else f"{counts.min()}–{counts.max()}"


def _points_without_residual(panel: Panel) -> list[int]:
    medians = residuals(panel)["median"]
    return [int(point) for point in medians.index[medians.isna()]]

"""How objectives and stitches are written: one spelling for one meaning, units that stay what they were, clear refusals."""

from __future__ import annotations

import pytest
from test_plan import CATALOGUE, study

from raystitch.config import FitConfig, StudyConfig, canonical_objective
from raystitch.errors import InputError
from raystitch.plan import expand
from raystitch.report.look import line_style, objective_name


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        *((name, name) for name in ("hlm", "slm", "dm", "fula", "dm_exact", "fula@2", "fula+slm", "0.5*fula+2*slm")),
        ("SLM + FuLA", "fula+slm"),
        ("fula@0", "dm"),
        ("2*fula@0+dm", "3*dm"),
        ("1.0*slm", "slm"),
        (".50*slm+0.5*slm", "slm"),
        ("fula+fula@10+fula@2", "fula@2+fula@10+fula"),
        ("1e-3*hlm+1e+2*dm", "100*dm+0.001*hlm"),
    ],
)
def test_one_spelling_for_one_meaning(written, canonical):
    assert canonical_objective(written) == canonical
    assert canonical_objective(canonical) == canonical
    assert study(objectives=[written]).objectives == (canonical,)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("fulla", "unknown objective 'fulla'; did you mean 'fula'?"),
        ("slm@2", "slm has no depth"),
        ("fula@-1", "'fula@-1' is not an objective"),
        ("fula+", "'' is not an objective"),
        ("0*fula", "a weight must be a positive number"),
        ("fula*2", "'fula*2' is not an objective"),
        ("dm_exact+slm", "takes no weight or depth, and part in no sum"),
        ("2*dm_exact", "takes no weight or depth, and part in no sum"),
    ],
)
def test_what_means_nothing_is_one_clear_line(written, said):
    with pytest.raises(InputError) as error:
        study(objectives=["slm", written])
    assert str(error.value).startswith(f"objectives.1 = {written!r}: ")
    assert said in str(error.value)


def units(config: StudyConfig) -> dict[str, str]:
    fits = expand(config, CATALOGUE).fits
    return {unit.objective: unit.id for unit in fits if unit.objective != "none" and unit.arm == "real"}


def test_units_of_the_method_are_what_they_were():
    """The recipe in a unit's id has no stitch unless it is another than the method's."""
    plain = units(study())
    assert plain == units(study(fit={"stitch": "affine"}))
    assert plain.items() <= units(study(objectives=["hlm", "slm", "dm", "fula", "fula@1", "fula+slm"])).items()
    for stitch in (
        "identity",
        {"kind": "low_rank", "rank": 2},
        {"kind": "low_rank", "rank": 3},
        {"kind": "mlp", "width": 3},
    ):
        other = units(study(fit={"stitch": stitch}))
        assert not set(other.values()) & set(plain.values())
        plain |= {f"{name} {stitch}": unit for name, unit in other.items()}


def test_a_solution_does_not_depend_on_how_others_are_trained():
    short, long = (units(study(objectives=["dm", "dm_exact"], fit={"epochs": n})) for n in (1, 2))
    assert short["dm_exact"] == long["dm_exact"]
    assert short["dm"] != long["dm"]


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        ({"stitch": "affin"}, "fit.stitch.kind = 'affin'"),
        ({"stitch": "low_rank"}, "fit.stitch.kind = 'low_rank': needs rank"),
        ({"stitch": {"kind": "mlp", "rank": 3}}, "fit.stitch.rank = 3: goes with kind low_rank, not mlp"),
        ({"stitch": {"kind": "affine", "width": 3}}, "fit.stitch.width = 3: goes with kind mlp, not affine"),
        ({"stitch": {"kind": "low_rank", "rank": 0}}, "fit.stitch.rank = 0"),
    ],
)
def test_stitches_that_say_too_little_or_too_much(fit, said):
    with pytest.raises(InputError) as error:
        study(fit=fit)
    assert said in str(error.value)


def test_stitches_have_names():
    names = ("affine", "identity", {"kind": "low_rank", "rank": 8}, {"kind": "mlp", "width": 64})
    assert [str(FitConfig(stitch=name).stitch) for name in names] == ["affine", "identity", "low_rank:8", "mlp:64"]


def test_what_cannot_be_exact_is_refused_with_the_config():
    with pytest.raises(InputError, match="objectives = 'dm_exact': an mlp"):
        study(objectives="dm_exact", fit={"stitch": {"kind": "mlp", "width": 3}})
    with pytest.raises(InputError, match="objectives = 'dm_exact': under protocol paper"):
        study(objectives="dm_exact", protocol="paper")
    assert study(objectives="dm_exact", protocol="paper", arms="iri").objectives == ("dm_exact",)


def test_reports_show_any_objective():
    names = ("fula@2", "dm_exact", "0.5*fula@2+slm", "1e+20*dm+hlm", "else")
    assert [objective_name(name) for name in names] == [
        "FuLA@2",
        "DM exact",
        "0.5·FuLA@2 + SLM",
        "1e+20·DM + HLM",
        "else",
    ]
    many = ["hlm", "slm", "dm", "fula", *(f"fula@{depth}" for depth in range(1, 25))]
    assert len({str(line_style(name, many)) for name in many}) == len(many)
    assert line_style("new", many[:4]).keys() == {"marker", "linestyle"}

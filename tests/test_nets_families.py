"""The table of timm families in the docs is what the code finds, and every net in it is exact or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystitch.nets.families import Row, check, page
from raystitch.nets.family_list import FAMILIES

TABLE = Path(__file__).parents[1] / "docs" / "timm_families.md"
SMALL = [
    "resnet18",
    "regnetx_002",
    "mobilenetv3_small_050",
    "convnext_atto",
    "ese_vovnet19b_slim_dw",
    "vit_tiny_patch16_224",
    "gmlp_ti16_224",
    "pit_ti_224",
]


def cells(text: str) -> list[list[str]]:
    """Rows of the table: family, timm name, px, points, kinds, first … last, spread, difference, result."""
    rows = [line.strip("|").split("|") for line in text.replace("\\|", "¦").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_table_lists_every_family_as_exact_or_refused() -> None:
    rows = cells(TABLE.read_text(encoding="utf-8"))
    assert [row[0] for row in rows] == [family.name for family in FAMILIES]
    assert len({row[0] for row in rows}) == len(rows) >= 40
    exact = [row for row in rows if row[8] == "exact"]
    assert len(exact) >= 30
    for row in exact:
        assert int(row[3]) >= 2
        assert float(row[7]) <= 1e-4
        assert float(row[6]) > 0
    for row in rows:
        assert row[8] == "exact" or row[8].startswith("refused: arch = ")
    assert f"{len(rows)} families: {len(exact)} exact, {len(rows) - len(exact)} refused" in TABLE.read_text("utf-8")


@pytest.mark.parametrize("arch", SMALL)
def test_rows_are_what_the_code_finds(arch: str) -> None:
    (family,) = [family for family in FAMILIES if family.arch == arch]
    row = check(family)
    assert row.verdict in ("exact", "refused")
    (found,), (written,) = (
        cells(page([row])),
        [kept for kept in cells(TABLE.read_text("utf-8")) if kept[0] == family.name],
    )
    assert found[:6] == written[:6]
    assert found[8].partition(":")[0] == written[8].partition(":")[0]


def test_a_net_that_differs_from_its_halves_would_be_told() -> None:
    family = FAMILIES[0]
    assert Row(family, difference=2e-4, spread=1.0).verdict == "differs"

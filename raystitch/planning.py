"""What studies would run: ``raystitch plan``, for one config or for several that share work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rich.table import Table

from raystitch.catalogue import inspect
from raystitch.config import StudyConfig
from raystitch.cost import Cost, Estimator
from raystitch.plan import Plan, expand
from raystitch.schedule import find_done, find_missing
from raystitch.store import Store
from raystitch.units import Unit


@dataclass(frozen=True)
class Planned:
    """One study's plan beside what its storage holds of it, and the cost of what is missing.

    ``assumed`` are the config's fields whose files are not there.
    """

    config: StudyConfig
    plan: Plan
    store: Store
    missing: AbstractSet[str]
    cost: Cost
    assumed: tuple[str, ...]

    @property
    def curves(self) -> int:
        """How many curves over stitch points the fits draw: one per setting, pair, objective, arm, level and seed."""
        fits = ((row.setting, row.unit) for row in self.plan.rows if row.unit.kind == "fit")
        curves = {(name, f.front.id, f.end.id, f.objective, f.arm, f.level, f.seed) for name, f in fits}
        return len(curves)


def look_ahead(config: StudyConfig, storage: str | None, counted: AbstractSet[str] = frozenset()) -> Planned:
    """Expand a study and list what its storage lacks.

    Args:
        config: the study.
        storage: in place of the config's own.
        counted: units whose cost is another study's.
    """
    catalogue = inspect(config, assume_missing=True)
    plan, store = expand(config, catalogue), Store(storage or config.storage)
    missing = find_missing(plan, find_done(plan, store))
    cost = Estimator(config, catalogue).total(plan, missing - counted)
    return Planned(config, plan, store, missing, cost, tuple(catalogue.assumed))


def study_table(planned: Planned) -> Table:
    """Units of one study by kind: how many uses share them, how many are done."""
    title = f"{planned.config.name} → {planned.store.url}"
    table = Table("kind", "units", "uses", "done", "missing", title=title, title_justify="left")
    uses = Counter(parent.id for fit in planned.plan.fits for parent in fit.parents)
    settings = Counter[str](row.unit.kind for row in planned.plan.rows)
    for kind, same in _by_kind(planned.plan.units).items():
        used = settings.get(kind) or sum(uses[unit.id] for unit in same.values())
        table.add_row(kind, *_counts(same, used, planned.missing))
    shards = sum(unit.shard_count for unit in planned.plan.iris)
    table.caption = (
        f"{planned.curves:,} curves; the IRI sets have {shards:,} shards; 'uses' counts how often fits, or settings, need "
        "these units"
    )
    table.caption_justify = "left"
    return table


def together_table(studies: Sequence[Planned]) -> Table:
    """Several studies side by side, their sum, and how many distinct units remain where they share work."""
    kinds = list(_by_kind(unit for planned in studies for unit in planned.plan.units))
    table = Table("study", "curves", *kinds, title="together", title_justify="left")
    for planned in studies:
        table.add_row(planned.config.name, f"{planned.curves:,}", *_sizes(kinds, planned.plan.units))
    table.add_section()
    total = [sum(len(_by_kind(p.plan.units).get(kind, {})) for p in studies) for kind in kinds]
    table.add_row("sum", f"{sum(p.curves for p in studies):,}", *(f"{count:,}" for count in total))
    table.add_row("distinct", "", *_sizes(kinds, (unit for p in studies for unit in p.plan.units)))
    return table


def cost_line(studies: Sequence[Planned]) -> str:
    """The estimated cost of what is missing."""
    model, iris, fit = (sum(getattr(p.cost, kind) for p in studies) for kind in ("model", "iris", "fit"))
    parts = [f"base models {flops(model)}", f"IRIs {flops(iris)}", f"fits {flops(fit)}"]
    return f"estimated cost of what is missing: {flops(model + iris + fit)} ({', '.join(parts)})"


def flops(count: float) -> str:
    """A number of floating-point operations with its unit."""
    for unit, scale in (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e9:.3g} GFLOP"


def _by_kind(units: Iterable[Unit]) -> dict[str, dict[str, Unit]]:
    """Distinct units by kind and id, kinds in the order of a plan."""
    found: dict[str, dict[str, Unit]] = {}
    for unit in units:
        found.setdefault(unit.kind, {})[unit.id] = unit
    return found


def _sizes(kinds: Sequence[str], units: Iterable[Unit]) -> list[str]:
    found = _by_kind(units)
    return [f"{len(found.get(kind, {})):,}" for kind in kinds]


def _counts(same: Mapping[str, Unit], used: int, missing: AbstractSet[str]) -> list[str]:
    absent = sum(unit in missing for unit in same)
    return [f"{count:,}" for count in (len(same), used, len(same) - absent, absent)]

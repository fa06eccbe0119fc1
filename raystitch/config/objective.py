"""How objectives are written: ``hlm``, ``slm``, ``dm``, ``fula``, ``fula@2``, ``dm_exact``, and sums such as ``0.5*fula+slm``.

One meaning has one spelling, the canonical form, which names it in units and results: terms in alphabetical order, equal
ones added up, weights of 1 left out, and ``fula@0``, which is direct matching, written ``dm``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, cast

from pydantic import AfterValidator

from raystitch.errors import did_you_mean

TermName = Literal["hlm", "slm", "dm", "fula"]
TERMS = ("hlm", "slm", "dm", "fula")
"""The four losses of METHOD §3, of which sums are made."""
EXACT = "dm_exact"
"""Direct matching solved by least squares instead of trained; it takes part in no sum."""
_MAX_WEIGHT = 1e30  # far below where a float32 loss overflows by its weight alone
_DEPTH_DIGITS = 4
_TERM = re.compile(r"(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\*)?([a-z_]+)(?:@(\d+))?", re.ASCII)


@dataclass(frozen=True)
class Term:
    """One loss of a sum.

    Attributes:
        name: one of the four.
        depth: of ``fula`` alone: how many points after the stitch take part, from 1; ``None`` for all.
        weight: its factor, > 0.
    """

    name: TermName
    depth: int | None = None
    weight: float = 1.0

    def __str__(self) -> str:
        factor = "" if self.weight == 1 else f"{self.weight!r}*".replace(".0*", "*")
        return factor + self.name + ("" if self.depth is None else f"@{self.depth}")


@lru_cache(256)
def objective_terms(objective: str) -> tuple[Term, ...]:
    """The terms of an objective in canonical order; none for ``dm_exact``.

    Raises:
        ValueError: it is not written as described in this module.
    """
    text = re.sub(r"\s+", "", objective.lower())
    if text == EXACT:
        return ()
    weights: dict[tuple[TermName, int | None], float] = {}
    for part in re.split(r"(?<!\de)\+", text):  # the plus of 1e+3 joins no terms
        term = _term(part)
        weights[term.name, term.depth] = weights.get((term.name, term.depth), 0.0) + term.weight
    if not max(weights.values()) <= _MAX_WEIGHT:
        raise ValueError(f"a weight is at most {_MAX_WEIGHT:g}")
    terms = (Term(name, depth, weight) for (name, depth), weight in weights.items())
    return tuple(sorted(terms, key=lambda term: (term.name, math.inf if term.depth is None else term.depth)))


def canonical_objective(objective: str) -> str:
    """The one spelling of an objective; raises ValueError as :func:`objective_terms`."""
    return "+".join(map(str, objective_terms(objective))) or EXACT


Objective = Annotated[str, AfterValidator(canonical_objective)]
"""An objective in its canonical form."""


def _term(text: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an objective; write fula, fula@2, or a sum such as 0.5*fula+slm")
    weight, name, depth = float(match[1] or 1), match[2], match[3]
    if name == EXACT:
        raise ValueError(f"{EXACT} is solved, not trained: it takes no weight or depth, and part in no sum")
    if name not in TERMS:
        raise ValueError(f"unknown objective {name!r}{did_you_mean(name, (*TERMS, EXACT))}")
    if depth is not None and name != "fula":
        raise ValueError(f"{name} has no depth; only fula has, as in fula@{depth}")
    if not 0 < weight < math.inf:
        raise ValueError("a weight must be a positive number")
    if depth is not None and len(depth) > _DEPTH_DIGITS:
        raise ValueError(f"a depth is at most {10**_DEPTH_DIGITS - 1}")
    if depth is not None and int(depth) == 0:
        return Term("dm", None, weight)
    return Term(cast("TermName", name), None if depth is None else int(depth), weight)


def why_not_exact(objectives: Sequence[str], kind: str, moving: bool) -> str | None:
    """Why ``dm_exact`` cannot be solved, if it is among the objectives: it needs an affine stitch and still nets.

    Args:
        objectives: in canonical form.
        kind: of the stitch.
        moving: whether images or BatchNorm statistics change while stitches are trained (``paper`` on real images).
    """
    if EXACT not in objectives:
        return None
    if kind == "mlp":
        return "an mlp stitch has no closed-form solution; use stitch affine or low_rank, or objective dm"
    if moving:
        return "under protocol paper the real arm's images and nets change as it trains; use protocol matched, or dm"
    return None

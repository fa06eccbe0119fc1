"""What must be computed: a config expanded into units with content-addressed ids.

A unit's id is a SHA-256 of the canonical JSON of everything that determines its output, its parents' ids included, and
of nothing else. So studies share work, a rerun is "list what is missing", and resuming needs no state. Pure: no torch, no Ray,
no file is read.
"""

from raystitch.plan.expand import Plan, Row, expand
from raystitch.plan.facts import Catalogue, DataFacts, ModelFacts
from raystitch.plan.pairing import interpolate, pair_points

__all__ = ["Catalogue", "DataFacts", "ModelFacts", "Plan", "Row", "expand", "interpolate", "pair_points"]

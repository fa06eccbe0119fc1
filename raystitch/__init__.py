"""raystitch: invariance-aware model stitching at scale.

``load_results`` reads the table of any study into pandas, ``load_predictions`` what the nets of a unit predict for each
sample; ``run_sweep`` runs a study. The pieces they are made of work on tensors
and without Ray: :mod:`raystitch.nets` cuts nets, :mod:`raystitch.iris` inverts representations, :mod:`raystitch.stitching`
fits, :mod:`raystitch.metrics` measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raystitch.errors import InputError

if TYPE_CHECKING:
    from raystitch.predictions import load_predictions
    from raystitch.results import load_results
    from raystitch.sweep import run_sweep

__all__ = ["InputError", "load_predictions", "load_results", "run_sweep"]

_LAZY = {
    "load_predictions": "raystitch.predictions",
    "load_results": "raystitch.results",
    "run_sweep": "raystitch.sweep",
}


def __getattr__(name: str) -> Any:
    """Import on first use: reading results needs no torch."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'raystitch' has no attribute {name!r}")

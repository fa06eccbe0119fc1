"""What the paper reports, as plain data (METHOD §8): curves read off its figures, and how far such a reading may be off.

Source: Athanasiadis, Karmush, Felsberg, "Grounding Functional Similarity by Invariance-Aware Model Stitching", ICML 2026.
The curves are those of ResNet-18 on CIFAR-10. A setting of a study stands for a published one if its name is, or ends in,
that one's name.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = (
    "Athanasiadis, Karmush, Felsberg, “Grounding Functional Similarity by Invariance-Aware Model Stitching”, ICML 2026"
)
READING_ERROR = 1.5
"""Points of percent by which a value read off a figure may be wrong, up or down."""

SETTINGS = {
    "information": ("identical", "cross-seed", "cross-supervision", "cross-bias"),
    "shortcuts": ("pixel+class", "pixel+random", "rand+random"),
    "robustness": tuple(
        f"{pair}{attacked}"
        for attacked in ("", " attacked")
        for pair in ("clean-to-clean", "clean-to-at", "at-to-clean", "at-to-at")
    ),
}
"""Names of the published settings by study. ``attacked``: T trained on adversarial images and evaluated on such."""

EVALUATION = {"information": "test", "shortcuts": "excess", "robustness": "test"}
"""The evaluation set of each study's scores; settings with ``attacked`` in their name are scored on ``apgd_ce_dlr``."""


@dataclass(frozen=True)
class PublishedCurve:
    """Agreement in percent at points 1 … n; one curve may stand for objectives that the figure does not tell apart."""

    setting: str
    arm: str
    objectives: tuple[str, ...]
    values: tuple[float, ...]


CURVES = {
    "information": (
        PublishedCurve("identical", "iri", ("slm", "fula", "dm"), (100, 100, 100, 100, 100, 100, 100, 100, 100)),
        PublishedCurve("cross-seed", "real", ("hlm", "slm", "fula", "dm"), (98.5, 97.5, 97, 96.5, 96, 95, 95, 95, 95)),
        PublishedCurve("cross-seed", "iri", ("hlm",), (98, 94, 93, 94, 92.5, 93, 94, 94.5, 95)),
        PublishedCurve("cross-seed", "iri", ("fula",), (98.5, 94, 92.5, 88.5, 86, 78, 73, 60, 50)),
        PublishedCurve("cross-seed", "iri", ("dm",), (98, 92, 79, 66, 75, 56, 71, 58, 50)),
        PublishedCurve("cross-supervision", "real", ("fula",), (98, 97, 95.5, 95, 93.5, 91.5, 89, 86, 81)),
        PublishedCurve("cross-supervision", "iri", ("fula",), (98, 90, 84, 77, 69, 28, 22, 18, 15)),
        PublishedCurve("cross-bias", "real", ("slm",), (95, 91, 88, 91.5, 92, 92, 92, 92, 92)),
        PublishedCurve("cross-bias", "real", ("dm",), (95, 78, 67, 47.5, 40, 39, 73, 89, 92)),
        PublishedCurve("cross-bias", "iri", ("fula",), (91.5, 50, 26, 12.5, 12, 12, 12, 12, 14)),
        PublishedCurve("cross-bias", "iri", ("dm",), (91, 16, 11.5, 11.5, 11.5, 11.5, 11.5, 12, 13)),
    ),
    "shortcuts": (),
    "robustness": (),
}
"""Published curves by study; of two studies there are statements alone."""

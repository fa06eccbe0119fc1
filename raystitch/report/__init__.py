"""Curves, maps, gaps and galleries of a study, as one self-contained HTML page and figures beside it."""

from raystitch.report.facts import GalleryEntry, IriFacts, IriLevel, StudyFacts
from raystitch.report.page import write_report

__all__ = ["GalleryEntry", "IriFacts", "IriLevel", "StudyFacts", "write_report"]

"""Nets: build them, load their weights, find their stitch points and cut them there."""

from raystitch.nets.build import NormalisedNet, build_net
from raystitch.nets.cut import CutNet, Point, cut
from raystitch.nets.fold import fold_batchnorm
from raystitch.nets.freeze import fingerprint, freeze, held
from raystitch.nets.outline import Outline, known_to_have_classifier, outline, segment_flops
from raystitch.nets.points import find_points
from raystitch.nets.soften import SoftPrefix
from raystitch.nets.weights import load_weights, read_weights, save_weights

__all__ = [
    "CutNet",
    "NormalisedNet",
    "Outline",
    "Point",
    "SoftPrefix",
    "build_net",
    "cut",
    "find_points",
    "fingerprint",
    "fold_batchnorm",
    "freeze",
    "held",
    "known_to_have_classifier",
    "load_weights",
    "outline",
    "read_weights",
    "save_weights",
    "segment_flops",
]

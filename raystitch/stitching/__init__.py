"""Stitches: small trainable maps from a front model's representation to an end model's, and how to train them.

Works on tensors and modules alone: no config file, storage or cluster is needed.
"""

from raystitch.stitching.diagnostics import affine_diagnostics
from raystitch.stitching.exact import check_exact
from raystitch.stitching.fit import epoch_batches, fit_stitches, learning_rate
from raystitch.stitching.fitted import Fitted
from raystitch.stitching.initialise import initialise
from raystitch.stitching.moments import InitReport
from raystitch.stitching.objectives import fula_loss, hard_label_loss, match_loss, reach, soft_label_loss
from raystitch.stitching.stitch import Stitch, make_stitch
from raystitch.stitching.stitched import StitchedNet
from raystitch.stitching.streams import as_float

__all__ = [
    "Fitted",
    "InitReport",
    "Stitch",
    "StitchedNet",
    "affine_diagnostics",
    "as_float",
    "check_exact",
    "epoch_batches",
    "fit_stitches",
    "fula_loss",
    "hard_label_loss",
    "initialise",
    "learning_rate",
    "make_stitch",
    "match_loss",
    "reach",
    "soft_label_loss",
]

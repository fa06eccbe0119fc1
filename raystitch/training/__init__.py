"""Training of base models: supervised, SimCLR and adversarial; exactly repeatable, and able to go on after a kill."""

from raystitch.training.accuracy import accuracy
from raystitch.training.checkpoints import Checkpoints
from raystitch.training.train import train

__all__ = ["Checkpoints", "accuracy", "train"]

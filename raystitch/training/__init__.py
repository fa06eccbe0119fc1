"""Training of base models."""

from raystitch.training.supervised import accuracy, train_supervised

__all__ = ["accuracy", "train_supervised"]

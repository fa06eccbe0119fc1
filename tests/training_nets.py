"""Small nets and recipes that the training tests share."""

from __future__ import annotations

import torch
from torch import nn

from raystitch.config import DataConfig, TrainConfig
from raystitch.data import ImageSet, load_images


def digits(split: str, limit: int | None = None) -> ImageSet:
    config = DataConfig.model_validate({"source": "digits", "limit": {split: limit}})
    return load_images(config, split, "data.digits")  # type: ignore[arg-type]


def tiny_net(seed: int = 0) -> nn.Module:
    """Has BatchNorm and dropout, so that statistics and the layers' own draws matter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Flatten(),
            nn.Linear(8 * 9, 10),
        )


def recipe(**changes: object) -> TrainConfig:
    return TrainConfig.model_validate({"epochs": 3, "lr": 0.05, "batch": 64, "augment": "crop", **changes})

"""How a base model is trained (METHOD §8): supervised, SimCLR or adversarial, with the published values as presets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from raystitch.config.values import FieldProblem, Part

_SMALL: Mapping[str, Any] = {"epochs": 200, "batch": 128, "augment": "flip_crop"}
_LARGE: Mapping[str, Any] = {"epochs": 200, "batch": 256, "augment": "resized_crop_flip"}
_LARGE_ATTACK: Mapping[str, Any] = {"eps": 4.3 / 255, "step": 1.1 / 255}

Preset = Literal["resnet", "vgg", "vit", "resnet_224", "vgg_224", "vit_224"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "resnet": {**_SMALL, "lr": 0.1},
    "vgg": {**_SMALL, "lr": 0.01},
    "vit": {**_SMALL, "lr": 0.01},
    "resnet_224": {**_LARGE, "lr": 0.1},
    "vgg_224": {**_LARGE, "lr": 0.01},
    "vit_224": {**_LARGE, "lr": 0.01},
}
"""The paper's hyper-parameters by family of nets, for 32-pixel images and (``_224``) for 224-pixel ones."""


def as_fraction(value: object) -> object:
    """``"8/255"`` → 8/255, so that pixel distances can be written as papers write them; anything else as it is."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*/\s*([1-9]\d{0,20})\s*", value, re.ASCII)
    return float(match[1]) / int(match[2]) if match else value


PixelDistance = Annotated[float, BeforeValidator(as_fraction), Field(gt=0, le=1)]


class PgdConfig(Part):
    """PGD from the clean image, L∞, in pixel units [0, 1] (METHOD §8). Distances may be written as ``8/255``."""

    steps: int = Field(default=10, ge=1, le=10_000)
    eps: PixelDistance = 8 / 255
    step: PixelDistance = 2 / 255


class AttackConfig(PgdConfig):
    """The attack of adversarial training: ``share`` of each batch is attacked (METHOD §8)."""

    share: float = Field(default=0.5, gt=0, le=1)


class SimclrConfig(Part):
    """What SimCLR adds: InfoNCE's temperature, and the linear head, by default with the epochs and rate of the trunk."""

    temperature: float = Field(default=0.5, gt=0)
    head_epochs: int | None = Field(default=None, ge=1, le=100_000)
    head_lr: float | None = Field(default=None, gt=0)


class TrainConfig(Part):
    """Recipe of a base model (METHOD §8): SGD with Nesterov momentum, lr ×0.1 at 1/3 and 2/3 of the epochs.

    ``preset`` fills in the paper's values for a family of nets; keys given beside it win. ``schedule: cosine`` falls to zero
    instead of in steps; the rate rises linearly over the first ``warmup`` epochs. ``simclr`` and ``attack`` go with the
    methods ``simclr`` and ``adversarial``.
    """

    preset: Preset | None = Field(default=None, exclude=True)
    method: Literal["supervised", "simclr", "adversarial"] = "supervised"
    epochs: int = Field(default=200, ge=1, le=100_000)
    lr: float = Field(default=0.1, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    batch: int = Field(default=128, ge=2, le=1_000_000)
    augment: Literal["flip_crop", "crop", "resized_crop_flip", "none"] = "flip_crop"
    schedule: Literal["step", "cosine"] = "step"
    warmup: int = Field(default=0, ge=0, le=100_000)
    simclr: SimclrConfig = SimclrConfig()
    attack: AttackConfig = AttackConfig()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, value: object) -> object:
        if not isinstance(value, dict) or not isinstance(name := value.get("preset"), str) or name not in PRESETS:
            return value
        filled = {**PRESETS[name], **value}
        own = value.get("attack", {})
        if name.endswith("_224") and value.get("method") == "adversarial" and isinstance(own, dict):
            filled["attack"] = {**_LARGE_ATTACK, **own}
        return filled

    @model_validator(mode="after")
    def _goes_together(self) -> TrainConfig:
        for key, method in (("simclr", "simclr"), ("attack", "adversarial")):
            if key in self.model_fields_set and self.method != method:
                raise FieldProblem(key, None, f"goes with method: {method}, but the method is {self.method}")
        if self.warmup >= self.epochs:
            raise FieldProblem("warmup", self.warmup, f"must be shorter than the {self.epochs} epochs")
        return self

    @property
    def head(self) -> TrainConfig:
        """The recipe of SimCLR's linear head: its own epochs and rate, without warm-up, otherwise like the trunk's."""
        own = {"epochs": self.simclr.head_epochs or self.epochs, "lr": self.simclr.head_lr or self.lr}
        return self.model_copy(update={**own, "warmup": 0})

    def identity(self) -> dict[str, Any]:
        """What determines the trained weights, as plain values: what the method does not use is left out."""
        always = {"epochs", "lr", "momentum", "weight_decay", "batch", "augment"}
        spec = self.model_dump(mode="json", include=always)
        if self.schedule != "step":
            spec["schedule"] = self.schedule
        if self.warmup:
            spec["warmup"] = self.warmup
        if self.method == "simclr":
            head = {"head_epochs": self.head.epochs, "head_lr": self.head.lr}
            spec |= {"method": self.method, "simclr": {"temperature": self.simclr.temperature, **head}}
        if self.method == "adversarial":
            spec |= {"method": self.method, "attack": self.attack.model_dump(mode="json")}
        return spec

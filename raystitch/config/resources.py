"""What workers ask Ray for: shares of CPUs and GPUs, a type of accelerator, and whatever else a cluster's nodes declare."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from raystitch.config.values import Part

_OF_RAY = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "", "object_store_memory": ""}
"""Names that a custom resource cannot have, with the key to give instead."""
_UNITS_OF_RAY = ("TPU", "NPU", "HPU", "RBLN", "neuron_cores")
"""Accelerators that Ray hands out one by one: more than one of them is a whole number, and a TPU is never shared."""
_LEAST = 0.0001
"""The smallest share of a resource that Ray counts."""
_LONG_NAMES = {"num_cpus": "cpus", "num_gpus": "gpus"}


class Resources(Part):
    """What one worker asks Ray for. Its torch threads are ``cpus`` rounded up, so results do not depend on the machine.

    Attributes:
        cpus: cores, also as ``num_cpus``.
        gpus: GPUs, also as ``num_gpus``: a share of one, or a whole number.
        accelerator_type: as Ray names it, such as ``A100``; only nodes that have it are used.
        custom: further resources that nodes declare, name → amount.
    """

    cpus: float = Field(default=1, ge=0.001, le=10_000)
    gpus: float = Field(default=0, ge=0, le=10_000)
    accelerator_type: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    custom: dict[str, Annotated[float, Field(ge=_LEAST, le=1_000_000)]] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _names_of_ray(cls, value: object) -> object:
        """``num_cpus`` and ``num_gpus``, as Ray calls them, are understood as well."""
        if not isinstance(value, dict):
            return value
        for long, short in _LONG_NAMES.items():
            if long in value and short in value:
                raise ValueError(f"{short} and {long} are the same; give one of them")
        return {_LONG_NAMES.get(key, key): amount for key, amount in value.items()}

    @field_validator("gpus")
    @classmethod
    def _share_or_whole(cls, value: float) -> float:
        if 0 < value < _LEAST:
            raise ValueError(f"must be 0, or greater than or equal to {_LEAST}")
        if value > 1 and value != int(value):
            raise ValueError("give a share of one GPU, such as 0.25, or a whole number of them")
        return value

    @field_validator("custom")
    @classmethod
    def _not_those_of_ray(cls, value: dict[str, float]) -> dict[str, float]:
        for name, amount in value.items():
            if amount != int(amount) and (name == "TPU" or (amount > 1 and name in _UNITS_OF_RAY)):
                raise ValueError(f"{name}: give a whole number" + ("" if name == "TPU" else ", or a share of one"))
            if name in _OF_RAY:
                other = _OF_RAY[name]
                raise ValueError(f"{name!r} is no custom resource" + (f"; give {other}" if other else ""))
            if not name.strip() or not name.isprintable() or name.startswith("node:"):
                raise ValueError(f"{name!r} is no name of a resource that a node declares")
        return value


class ResourcesConfig(Part):
    """Per kind of worker: ``iri`` workers invert images, ``train`` workers make base models, ``fit`` workers the fits.

    Without ``train`` the ``iri`` workers make the models too. Each asks for half a core by default, so that both kinds overlap
    and every core serves one of each. ``iri_actors`` is the largest number of ``iri`` workers, and of ``train`` workers: by
    default, on one machine one per core or share of a GPU, and on a cluster as many as there is work and room for.
    """

    iri: Resources = Resources(cpus=0.5)
    train: Resources | None = None
    fit: Resources = Resources(cpus=0.5)
    iri_actors: int | None = Field(default=None, ge=1, le=10_000)

    @property
    def training(self) -> Resources:
        """What a worker asks for that makes base models."""
        return self.train or self.iri

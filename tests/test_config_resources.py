"""What workers ask for: Ray's names are understood, and what Ray cannot give is refused in one line."""

from __future__ import annotations

import pytest
from test_config_bad_input import STUDY, refusal, with_value

from raystitch.config import parse_config


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (
            "resources.fit.num_gpus",
            1.5,
            "resources.fit.gpus = 1.5: give a share of one GPU, such as 0.25, or a whole number",
        ),
        ("resources.iri.gpus", 0.00001, "resources.iri.gpus = 1e-05: must be 0, or greater than or equal to 0.0001"),
        (
            "resources.train",
            {"cpus": 1, "num_cpus": 2},
            "resources.train: cpus and num_cpus are the same; give one of them",
        ),
        ("resources.fit.custom", {"GPU": 1}, "resources.fit.custom: 'GPU' is no custom resource; give num_gpus"),
        ("resources.fit.custom", {"memory": 1}, "resources.fit.custom: 'memory' is no custom resource"),
        ("resources.fit.custom", {"slot": 0}, "resources.fit.custom.slot = 0: must be greater than or equal to 0.0001"),
        (
            "resources.fit.custom",
            {"TPU": 1.5},
            "resources.fit.custom: TPU: give a whole number",
        ),
        ("resources.fit.accelerator_type", "A 100", "resources.fit.accelerator_type = 'A 100': use letters, digits"),
        ("resources.fit.num_gpu", 1, "resources.fit.num_gpu = 1: unknown key 'num_gpu'"),
    ],
)
def test_resources_that_ray_cannot_give(path: str, value: object, told: str) -> None:
    assert refusal(with_value(path, value)).startswith(told)


@pytest.mark.parametrize(("name", "amount"), [("TPU", 0.5), ("NPU", 2.5)])
def test_accelerators_that_ray_does_not_split(name: str, amount: float) -> None:
    assert "give a whole number" in refusal(with_value("resources.fit.custom", {name: amount}))


@pytest.mark.parametrize(("name", "amount"), [("slot", 1.5), ("NPU", 0.5), ("TPU", 4)])
def test_other_amounts_pass(name: str, amount: float) -> None:
    study = parse_config(with_value("resources.fit.custom", {name: amount}))
    assert study.resources.fit.custom == {name: amount}


def test_resources_as_ray_names_them() -> None:
    need = {"num_cpus": 2, "num_gpus": 0.25, "accelerator_type": "A100", "custom": {"slot": 0.5}}
    resources = parse_config(with_value("resources", {"train": need, "iri": {"gpus": 2}})).resources
    assert (resources.training.cpus, resources.training.gpus, resources.training.custom) == (2, 0.25, {"slot": 0.5})
    assert resources.iri.gpus == 2
    assert parse_config(STUDY).resources.training == parse_config(STUDY).resources.iri

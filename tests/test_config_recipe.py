"""Recipes: the paper's presets, what overrides them, ids of older studies, and learning rates by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from raystitch.config import PRESETS, TrainConfig, parse_config
from raystitch.cost import passes
from raystitch.errors import InputError
from raystitch.training.schedule import learning_rate


def study(train: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "s",
        "data": {"d": "digits"},
        "models": {"m": {"arch": "resnet_mini", "data": "d", "train": train}},
        "settings": {"p": {"front": "m", "end": "m"}},
    }


def parsed(**train: Any) -> TrainConfig:
    recipe = parse_config(study(train)).models["m"].train
    assert recipe is not None
    return recipe


@pytest.mark.parametrize(
    ("preset", "lr", "batch", "augment"),
    [
        ("resnet", 0.1, 128, "flip_crop"),
        ("vgg", 0.01, 128, "flip_crop"),
        ("vit", 0.01, 128, "flip_crop"),
        ("resnet_224", 0.1, 256, "resized_crop_flip"),
        ("vgg_224", 0.01, 256, "resized_crop_flip"),
        ("vit_224", 0.01, 256, "resized_crop_flip"),
    ],
)
def test_presets_are_the_papers(preset: str, lr: float, batch: int, augment: str) -> None:
    recipe = parsed(preset=preset)
    assert (recipe.epochs, recipe.lr, recipe.batch, recipe.augment) == (200, lr, batch, augment)
    assert (recipe.momentum, recipe.weight_decay, recipe.schedule, recipe.warmup) == (0.9, 1e-4, "step", 0)
    assert preset in PRESETS


def test_keys_beside_a_preset_win_and_its_name_does_not_count() -> None:
    recipe = parsed(preset="vgg_224", lr=0.5, epochs=3)
    assert (recipe.lr, recipe.epochs, recipe.batch, recipe.augment) == (0.5, 3, 256, "resized_crop_flip")
    written_out = parsed(lr=0.5, epochs=3, batch=256, augment="resized_crop_flip")
    assert recipe.identity() == written_out.identity()
    assert parsed(preset="resnet").identity() == parsed().identity()


def test_attacks_by_size_and_by_hand() -> None:
    small, large = parsed(preset="resnet", method="adversarial"), parsed(preset="resnet_224", method="adversarial")
    assert (small.attack.steps, small.attack.eps, small.attack.step, small.attack.share) == (10, 8 / 255, 2 / 255, 0.5)
    assert (large.attack.steps, large.attack.eps, large.attack.step) == (10, 4.3 / 255, 1.1 / 255)
    own = parsed(preset="resnet_224", method="adversarial", attack={"eps": "2/255", "steps": 3})
    assert (own.attack.steps, own.attack.eps, own.attack.step) == (3, 2 / 255, 1.1 / 255)


def test_older_recipes_keep_their_identity() -> None:
    six = {"epochs": 20, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4, "batch": 128, "augment": "none"}
    assert parsed(epochs=20, lr=0.05, augment="none").identity() == six


def test_what_a_method_uses_is_part_of_its_identity() -> None:
    recipes = [
        parsed(),
        parsed(schedule="cosine"),
        parsed(warmup=5),
        parsed(method="simclr"),
        parsed(method="simclr", simclr={"temperature": 0.1}),
        parsed(method="simclr", simclr={"head_epochs": 7}),
        parsed(method="simclr", simclr={"head_lr": 0.3}),
        parsed(method="adversarial"),
        parsed(method="adversarial", attack={"steps": 3}),
    ]
    specs = [recipe.identity() for recipe in recipes]
    assert all(specs[i] != specs[j] for i in range(len(specs)) for j in range(i))
    assert parsed(method="simclr", simclr={"head_epochs": 200}).identity() == parsed(method="simclr").identity()


@pytest.mark.parametrize(
    ("train", "parts"),
    [
        ({"preset": "resnt"}, ["models.m.train.preset", "'resnet'"]),
        ({"method": "simclrr"}, ["models.m.train.method", "'simclr'"]),
        ({"attack": {"steps": 3}}, ["models.m.train.attack", "goes with method: adversarial"]),
        ({"method": "adversarial", "simclr": {}}, ["models.m.train.simclr", "goes with method: simclr"]),
        ({"method": "adversarial", "attack": {"eps": "8/0"}}, ["models.m.train.attack.eps", "'8/0'"]),
        ({"method": "adversarial", "attack": {"eps": 8}}, ["models.m.train.attack.eps", "less than or equal to 1"]),
        ({"method": "adversarial", "attack": {"epss": 1}}, ["models.m.train.attack.epss", "did you mean 'eps'"]),
        ({"epochs": 5, "warmup": 5}, ["models.m.train.warmup = 5", "must be shorter than the 5 epochs"]),
    ],
)
def test_wrong_recipes_give_one_line(train: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_config(study(train))
    assert str(caught.value).startswith(parts[0])
    assert parts[1] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("train", "rates"),
    [
        ({"epochs": 4, "schedule": "cosine", "lr": 1.0}, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
        ({"epochs": 6, "schedule": "cosine", "lr": 0.3, "warmup": 2}, [0.1, 0.2, 0.3, 0.256066, 0.15, 0.043934]),
        ({"epochs": 6, "lr": 0.4, "warmup": 1}, [0.2, 0.4, 0.04, 0.04, 0.004, 0.004]),
        ({"epochs": 3, "lr": 0.4}, [0.4, 0.04, 0.004]),
    ],
)
def test_rates_by_hand(train: dict[str, Any], rates: list[float]) -> None:
    recipe = parsed(**train)
    assert [learning_rate(recipe, epoch) for epoch in range(recipe.epochs)] == pytest.approx(rates, rel=1e-5)


def test_the_head_has_the_trunks_recipe_unless_told_otherwise() -> None:
    own = parsed(method="simclr", epochs=8, lr=0.2, warmup=3, simclr={"head_epochs": 2, "head_lr": 1.5}).head
    assert (own.epochs, own.lr, own.warmup, own.batch) == (2, 1.5, 0, 128)
    assert [learning_rate(own, epoch) for epoch in range(2)] == pytest.approx([1.5, 0.15])
    same = parsed(method="simclr", epochs=8, lr=0.2).head
    assert (same.epochs, same.lr) == (8, 0.2)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"epochs": 10}, 10 * 3),
        ({"epochs": 10, "method": "simclr", "simclr": {"head_epochs": 4}}, 10 * 2 * 3 + 4),
        ({"epochs": 10, "method": "adversarial"}, 10 * (3 + 0.5 * 10 * 2)),
    ],
)
def test_cost_in_forward_passes(train: dict[str, Any], expected: float) -> None:
    assert passes(parsed(**train)) == expected

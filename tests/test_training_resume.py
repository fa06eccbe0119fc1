"""A killed training goes on from its last checkpoint and ends with the same weights, bit for bit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from training_nets import digits, recipe, tiny_net

from raystitch import execute
from raystitch.catalogue import inspect
from raystitch.config import CueConfig, TrainConfig, parse_config
from raystitch.plan import expand
from raystitch.store import Store
from raystitch.training import Checkpoints, train
from raystitch.training.checkpoints import decode_state, encode_state

METHODS: dict[str, dict[str, Any]] = {
    "supervised": {"schedule": "cosine", "warmup": 1, "augment": "resized_crop_flip"},
    "adversarial": {"attack": {"steps": 2}},
    "simclr": {"simclr": {"head_epochs": 2}},
}
EPOCHS = {"supervised": 3, "adversarial": 3, "simclr": 3 + 2}


class Killed(Exception):
    pass


class Kept:
    """Keeps the last state; may die right after a save."""

    def __init__(self, dies: bool = False) -> None:
        self.state: bytes | None = None
        self.saves, self.dies = 0, dies

    def save(self, state: bytes) -> None:
        self.state, self.saves = state, self.saves + 1
        if self.dies:
            raise Killed

    def load(self) -> bytes | None:
        return self.state


def a_recipe(method: str) -> TrainConfig:
    return recipe(method=method, **METHODS[method])


def trained(method: str, checkpoints: Checkpoints | None = None) -> dict[str, torch.Tensor]:
    net = tiny_net()
    train(net, digits("train", 128), a_recipe(method), 1, CueConfig(size=2), checkpoints=checkpoints)
    return net.state_dict()


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("method", METHODS)
def test_killed_after_every_epoch_the_weights_are_the_same(method: str) -> None:
    kept, deaths = Kept(dies=True), 0
    while True:
        torch.manual_seed(deaths)  # what the process drew before has no influence
        try:
            found = trained(method, Checkpoints(kept.save, kept.load, seconds=0))
            break
        except Killed:
            deaths += 1
    assert deaths == EPOCHS[method], "one per epoch: none was trained twice"
    assert equal(found, trained(method))


@pytest.mark.parametrize("method", METHODS)
def test_saving_changes_nothing(method: str) -> None:
    kept, seldom = Kept(), Kept()
    plain = trained(method)
    assert equal(trained(method, Checkpoints(kept.save, kept.load, seconds=0)), plain)
    assert kept.saves == EPOCHS[method]
    assert equal(trained(method, Checkpoints(seldom.save, seldom.load, seconds=1e9)), plain)
    assert seldom.saves == 0


@pytest.mark.parametrize("state", [b"", b"not a state", b"PK\x03\x04", encode_state({"format": 0})])
def test_a_state_that_cannot_be_read_is_not_used(state: bytes, caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.state = state
    with caplog.at_level(logging.WARNING):
        assert equal(trained("supervised", Checkpoints(kept.save, kept.load)), trained("supervised"))
    assert "training starts anew" in caplog.text


def test_a_state_is_read_as_data_never_as_code() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (Path("/tmp/raystitch-never"),)

    assert decode_state(encode_state({"phase": Evil()})) is None
    assert not Path("/tmp/raystitch-never").exists()


STUDY = {
    "name": "tiny",
    "data": {"digits": {"source": "digits", "limit": {"train": 128, "test": 64}}},
    "models": {
        "clr": {
            "arch": "resnet_mini",
            "args": {"width": 4, "blocks": [1, 1]},
            "data": "digits",
            "train": {"method": "simclr", "epochs": 2, "batch": 32, "lr": 0.05, "augment": "none"},
        }
    },
    "settings": {"self": {"front": "clr", "end": "clr"}},
    "fit": {"batch": 32, "init_images": 64},
}


def test_a_killed_worker_leaves_a_state_that_the_next_one_takes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config(STUDY)
    (unit,) = expand(config, inspect(config)).models
    monkeypatch.setattr(execute, "CHECKPOINT_SECONDS", 0)
    store, whole = Store(str(tmp_path / "killed")), Store(str(tmp_path / "whole"))
    execute.Bench(execute.Job(config, whole, {}), "cpu").make_model(unit)
    replace, saves = Store.replace, []

    def dies_at_third(self: Store, name: str, data: bytes) -> None:
        replace(self, name, data)
        saves.append(name)
        if len(saves) == 3:
            raise Killed

    monkeypatch.setattr(Store, "replace", dies_at_third)
    bench = execute.Bench(execute.Job(config, store, {}), "cpu")
    with pytest.raises(Killed):
        bench.make_model(unit)
    assert store.names("models") == {f"{unit.id}.training"}
    bench.make_model(unit)
    assert saves == [unit.training] * 4, "two epochs of the trunk and two of the head, each once"
    assert store.names("models") == {f"{unit.id}.safetensors", f"{unit.id}.json"}
    assert store.read(unit.weights) == whole.read(unit.weights)

"""The epoch loop that all methods share: phases of training, checked for divergence and resumable between epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from raystitch.config import TrainConfig
from raystitch.data import overlapped
from raystitch.training.batches import Batch, Batches
from raystitch.training.checkpoints import Keeper
from raystitch.training.schedule import learning_rate, make_optimiser

OnEpoch = Callable[[int, float], None]
Prepared = tuple[Tensor, ...]
"""What the loss of a batch takes, on the device."""
Prepare = Callable[[Batch], Prepared]
Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Phase:
    """A number of epochs that train one thing with one loss.

    Attributes:
        whole: everything with weights that the training holds now; its state is what a checkpoint keeps.
        trained: the part whose parameters are trained, in train mode; the rest is in eval mode.
        recipe: epochs, rates and so on.
        prepare: everything of a step that is drawn from the batches' generator or needs no net; may run steps ahead.
        loss: the mean loss of a batch, differentiable in the trained part, from what ``prepare`` made of it.
        name: for errors, such as " of the linear head".
    """

    whole: nn.Module
    trained: nn.Module
    recipe: TrainConfig
    prepare: Prepare
    loss: Loss
    name: str = ""


class Run:
    """One training: phases one after the other, taken up where the last checkpoint left them.

    Args:
        batches: the training set; its generator is part of the state.
        device: where the nets are.
        keeper: of checkpoints.
        on_epoch: called after each epoch of each phase with its number, from 0, and its mean training loss.
    """

    def __init__(self, batches: Batches, device: torch.device, keeper: Keeper, on_epoch: OnEpoch | None) -> None:
        self.batches, self._device, self._keeper, self._on_epoch = batches, device, keeper, on_epoch
        self._left_off = keeper.last()
        self._phases = 0

    def phase(self, phase: Phase) -> None:
        """Train; a phase that was over at the last checkpoint is skipped.

        Raises:
            FloatingPointError: the loss or a weight is no longer finite; names the epoch.
        """
        number, self._phases = self._phases, self._phases + 1
        if self._left_off is not None and self._left_off["phase"] > number:
            return
        optimiser = make_optimiser(phase.trained, phase.recipe)
        for epoch in range(self._take_up(phase, optimiser), phase.recipe.epochs):
            phase.whole.eval()
            phase.trained.train()
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(phase.recipe, epoch)
            loss = self._epoch(phase, optimiser)
            _check_finite(loss, phase, epoch)
            self._keeper.offer(partial(self._state, number, epoch + 1, phase, optimiser))
            if self._on_epoch is not None:
                self._on_epoch(epoch, loss)
        optimiser.zero_grad(set_to_none=True)
        phase.whole.eval()

    def _epoch(self, phase: Phase, optimiser: torch.optim.Optimizer) -> float:
        """One pass over the batches; returns the mean loss."""
        losses = []
        for prepared in overlapped(map(phase.prepare, self.batches), self._device, self.batches.mapped):
            loss = phase.loss(*prepared)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
            losses.append(loss.detach())  # read once per epoch: a GPU need not wait for each step
        return float(torch.stack(losses).mean())

    def _state(self, number: int, epochs_done: int, phase: Phase, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        on_gpu = self._device.type == "cuda"
        return {
            "phase": number,
            "epochs_done": epochs_done,
            "weights": phase.whole.state_dict(),
            "optimiser": optimiser.state_dict(),
            "batches": self.batches.generator.get_state(),
            "layers": torch.get_rng_state(),
            "layers_gpu": torch.cuda.get_rng_state(self._device) if on_gpu else None,
        }

    def _take_up(self, phase: Phase, optimiser: torch.optim.Optimizer) -> int:
        """Restore the last checkpoint if it belongs to this phase. Returns how many epochs are done."""
        state, self._left_off = self._left_off, None
        if state is None:
            return 0
        phase.whole.load_state_dict(state["weights"])
        optimiser.load_state_dict(state["optimiser"])
        self.batches.generator.set_state(state["batches"])
        torch.set_rng_state(state["layers"])
        if state["layers_gpu"] is not None and self._device.type == "cuda":
            torch.cuda.set_rng_state(state["layers_gpu"], self._device)
        return int(state["epochs_done"])


def _check_finite(loss: float, phase: Phase, epoch: int) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(f"the training loss is {loss} in epoch {epoch}{phase.name}; lower the learning rate")
    if not all(bool(torch.isfinite(parameter).all()) for parameter in phase.trained.parameters()):
        raise FloatingPointError(f"a weight is not finite after epoch {epoch}{phase.name}; lower the learning rate")


@contextmanager
def reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seed what layers such as dropout draw, ask cuDNN for deterministic kernels, and put both back afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        torch.manual_seed(seed)
        yield

"""Full standard AutoAttack (Croce & Hein 2020), run by the package ``pyautoattack`` (extra ``robust``).

APGD-CE, targeted APGD-DLR, targeted FAB and Square, with the package's own budgets. Each works on the images that are
still right.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from raystitch.attacks.ask import Model, is_right_in_batches
from raystitch.attacks.ball import check_inputs
from raystitch.attacks.combined import BATCH, Attacked
from raystitch.errors import InputError
from raystitch.nets import held

_TARGETS = 9  # of the standard version, where there are as many other classes


def standard_autoattack(
    model: Model, x: Tensor, labels: Tensor, eps: float, *, seed: int = 0, batch: int = BATCH
) -> Attacked:
    """Attack with the standard version of AutoAttack in L∞.

    The package draws from torch's global generator, which is seeded for it and put back: unlike ``apgd_ce_dlr``, results
    depend on the batch size and on which images share a batch.

    Args:
        model: images in [0, 1] → logits (B, C), C ≥ 4, on the device of ``x``.
        x: float32 (N, 3, H, W) in [0, 1].
        labels: int64 (N,).
        eps: L∞ radius in pixel units.
        seed: of all random starts.
        batch: images per pass.

    Returns:
        The adversarial set and which images withstood all four attacks. With fewer than ten classes, every other class is
        a target once.

    Raises:
        InputError: ``pyautoattack`` is not installed, or the net has fewer than four classes, so that the targeted DLR
            loss is undefined.
        ValueError: see :func:`raystitch.attacks.ball.check_inputs`.
        FloatingPointError: the logits of the clean or attacked images are not finite.
    """
    check_inputs(x, labels, eps)
    make = _package()
    if not len(x):
        return Attacked(x.clone(), torch.zeros(0, dtype=torch.bool, device=x.device))
    with held(model), _own_generator(x), _trace_kept():
        classes = _classes(model, x)
        require_autoattack(classes)
        attack = make(model, norm="Linf", eps=eps, version="standard", seed=seed, device=x.device)
        targets = min(_TARGETS, classes - 1)
        attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = targets
        images = attack.run_standard_evaluation(x.detach(), labels, batch_size=batch)[0].detach()
        right, withstood = (is_right_in_batches(model, whole, labels, batch) for whole in (x, images))
    return Attacked(images, right & withstood)


def require_autoattack(classes: int) -> None:
    """Refuse full AutoAttack where it cannot run.

    Args:
        classes: of the nets to attack.

    Raises:
        InputError: ``pyautoattack`` is not installed, or there are fewer than four classes.
    """
    _package()
    if classes < 4:
        problem = f"its targeted DLR loss needs at least 4 classes and the net has {classes}: use apgd_ce_dlr"
        raise InputError("attack", "autoattack", problem)


def _package() -> Any:
    try:
        from pyautoattack import AutoAttack
    except ImportError as error:
        problem = "needs the package pyautoattack: pip install 'raystitch[robust]'"
        raise InputError("attack", "autoattack", problem) from error
    return AutoAttack


@torch.no_grad()
def _classes(model: Model, x: Tensor) -> int:
    return int(model(x[:1]).shape[1])


@contextmanager
def _own_generator(x: Tensor) -> Iterator[None]:
    """Put torch's global random state back."""
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        yield


@contextmanager
def _trace_kept() -> Iterator[None]:
    """The package switches the interpreter's trace function off; a debugger or a coverage run gets its own back."""
    trace = sys.gettrace()
    try:
        yield
    finally:
        sys.settrace(trace)

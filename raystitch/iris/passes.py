"""A step of an inversion: measure every image, and move it; as it is written, or compiled.

It is a function of tensors without any memory, so that ``torch.compile`` can fuse what is light into few passes over memory:
the errors and activations with one another, and the optimiser's arithmetic.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from raystitch.config import IriConfig
from raystitch.iris.optimisers import Optimiser, State
from raystitch.nets import SoftPrefix

_log = logging.getLogger(__name__)

Prefix = Callable[[Tensor], Tensor]
Age = int | Tensor
"""The steps taken: one number for all images, or one for each, int64 (B,)."""


class Kept(NamedTuple):
    """An iterate of each image: the best so far, or the first that reached a level.

    Attributes:
        images: float32 (B, 3, H, W).
        residual: float32 (B,); inf before the first.
        steps: int64 (B,).
    """

    images: Tensor
    residual: Tensor
    steps: Tensor

    @classmethod
    def unseen(cls, start: Tensor) -> Kept:
        """Room for one iterate of each image; the first one seen beats what is there."""
        residual = torch.full((len(start),), torch.inf, device=start.device)
        return cls(start.clone(), residual, torch.zeros(len(start), dtype=torch.int64, device=start.device))

    def recorded(self, x: Tensor, r: Tensor, age: Age, better: Tensor) -> Kept:
        """With the iterates marked in ``better`` (B,) in place of those kept."""
        images = torch.where(better[:, None, None, None], x, self.images)
        return Kept(images, torch.where(better, r, self.residual), torch.where(better, age, self.steps))

    def take(self, which: Tensor) -> Kept:
        """Some of the images, by their places (K,)."""
        return Kept(self.images[which], self.residual[which], self.steps[which])

    def joined(self, other: Kept) -> Kept:
        """The images of both."""
        return Kept(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


Moved = tuple[Tensor, State, tuple[Kept, ...], Tensor]
"""The next x, state, kept and sound."""


class Passes:
    """A prefix, an optimiser and a configuration, as one step of all images.

    Attributes:
        compiled: whether the step is. It then takes each image's age as a tensor, since a number would be compiled in.
    """

    def __init__(self, prefix: Prefix, optimiser: Optimiser, config: IriConfig, compiled: bool = False) -> None:
        self.prefix, self.optimiser, self.config, self.compiled = prefix, optimiser, config, compiled
        self._softens = optimiser.softens and isinstance(prefix, SoftPrefix)
        self._fast: Callable[..., Moved] | None = compiled_whole(self._step) if compiled else None

    def step(self, *given: Any) -> Moved:
        """Take a step, of the arguments of :meth:`_step`.

        A step that cannot be compiled is taken as it is written, and so are all after it: a net whose operations depend on the
        values of its tensors, say, or a compiler without Python's headers.
        """
        if self._fast:
            try:
                return self._fast(*given)
            except (torch.cuda.OutOfMemoryError, MemoryError):
                raise
            except Exception as error:  # whatever else it is: if the step itself is wrong, it says so below
                _log.warning(
                    "iri.compile: goes on without, since this net's steps do not compile: %s", reason_of(error)
                )
            self._fast, self.compiled = None, False
        return self._step(*given)

    def residual(self, x: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """r of each image in full precision, float32 (B,)."""
        return relative_error(self.prefix(x), target, scale)

    def record(
        self, x: Tensor, r: Tensor, kept: tuple[Kept, ...], sound: Tensor, age: Age
    ) -> tuple[tuple[Kept, ...], Tensor]:
        """Keep the iterates that are the best so far, or the first to reach a level."""
        best, *levels = kept
        found = [best.recorded(x, r, age, r < best.residual)]
        for level, first in zip(self.config.levels, levels, strict=True):
            found.append(first.recorded(x, r, age, (r < first.residual) & (first.residual > level)))
        return tuple(found), sound + r.sum()

    def _represent(self, x: Tensor, age: Age, low: bool) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=low):
            if self._softens:
                z: Tensor = self.prefix(x, 1 - age / self.config.steps)  # type: ignore[call-arg]
                return z
            return self.prefix(x)

    def _measure(self, x: Tensor, target: Tensor, age: Age, low: bool) -> tuple[Tensor, Tensor]:
        """Norm of the error ‖prefix(x) − target‖₂ (B,), and the gradient of half its square to the images."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            z = self._represent(x, age, low)
        error = z.detach().float() - target
        (grad,) = torch.autograd.grad(z, x, error.to(z.dtype))
        return norm_of(error), grad

    def _measure_traced(self, x: Tensor, target: Tensor, age: Age, low: bool) -> tuple[Tensor, Tensor]:
        """The same in the form of autograd that a compiler can follow."""
        z, pull, *_ = torch.func.vjp(lambda images: self._represent(_as_folded(images), age, low), x)
        error = z.float() - target
        (grad,) = pull(error.to(z.dtype))
        return norm_of(error), grad

    def _step(
        self,
        x: Tensor,
        target: Tensor,
        scale: Tensor,
        state: State,
        kept: tuple[Kept, ...],
        sound: Tensor,
        age: Age,
        low: bool,
    ) -> Moved:
        """The prefix runs forward and backward, in bfloat16 if ``low``; what it gives is measured and recorded; x moves."""
        measure = self._measure_traced if self.compiled else self._measure
        error, grad = measure(x, target, age, low)
        r = error / scale
        kept, sound = self.record(x, r, kept, sound, age)
        weight = self.optimiser.slope(r) / scale  # applied to the images, which are smaller than z
        # in two factors, as their product may overflow; in the layout of x and the state
        grad = (grad * weight[:, None, None, None] / scale[:, None, None, None]).contiguous()
        each = age.view(-1, 1, 1, 1) if isinstance(age, Tensor) else age
        x, state = self.optimiser.update(x, grad, state, each, self.config)
        return x, state, kept, sound


def _as_folded(x: Tensor) -> Tensor:
    """Images in the layout of folded nets, channels-last on the CPU: else each pass of a compiled step copies them twice."""
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x


def scale_of(target: Tensor) -> Tensor:
    """Norm of each target (N,), or 1 where it is zero: there the error is taken as it is."""
    norm = norm_of(target.float())
    return torch.where(norm > 0, norm, 1.0)


def relative_error(z: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    """‖z − target‖₂ / scale of each image, float32 (N,)."""
    return norm_of(z.float() - target.float()) / scale


def norm_of(z: Tensor) -> Tensor:
    """Over all but the first dimension; no copy, whatever the order in memory."""
    norm: Tensor = torch.linalg.vector_norm(z, dim=tuple(range(1, z.dim()))) if z.dim() > 1 else z.abs()
    return norm


def compiled_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """As one graph or not at all: in pieces a step gains nothing.

    Each with a cache of its own, where torch offers it: all prefixes share a code, of which torch compiles only eight. Of its
    tensors the first dimension alone may vary, as batches do: torch takes any that were others for another prefix for variable,
    and what cannot be compiled for a variable size of images would end it.
    """
    known = inspect.signature(torch.compile).parameters
    isolated: dict[str, Any] = {"isolate_recompiles": True} if "isolate_recompiles" in known else {}
    done: Callable[..., Any] = torch.compile(function, fullgraph=True, **isolated)

    def call(*given: Any) -> Any:
        for tensor in tree_leaves(given):
            if isinstance(tensor, Tensor):
                for dimension in range(1, tensor.dim()):
                    torch._dynamo.mark_static(tensor, dimension)
        return done(*given)

    return call


def reason_of(error: BaseException) -> str:
    """The first line of what began it: what is raised at last may only say that it is the end."""
    seen = {id(error)}
    while error.__cause__ and id(error.__cause__) not in seen:
        error = error.__cause__
        seen.add(id(error))
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

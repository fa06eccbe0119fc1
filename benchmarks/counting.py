"""Count the floating-point operations of a piece of work, and the bytes that its operations read and write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.turns import Work

_FREE = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "is_same_size"}
)
"""Operations that look at no element."""
_OVERWRITING = frozenset({"copy_", "fill_", "zero_"})
"""Operations that change their first argument and do not read it."""


class Count(NamedTuple):
    """What a piece of work takes; :class:`Counter` says how it is counted."""

    flops: int
    bytes: int


def count(work: Work) -> Count:
    """Run it once and count."""
    with Counter() as counter:
        work()
    return Count(counter.flops, counter.bytes)


class Counter(TorchDispatchMode):
    """Counts what every ATen operation in its context takes.

    FLOPs are those of convolutions and matrix products, by the formulas of ``torch.utils.flop_counter`` (whose own mode
    does not go with ``torch.autograd.grad``); a multiply and an add are two.

    Bytes: every tensor that the operation needs is read once, every one that it gives is written once. Views and
    uninitialised memory are free; what is broadcast counts without its repetitions; a backward convolution reads only what
    the gradients asked of it need. What an operation moves within itself is not counted.

    Attributes:
        flops: so far.
        bytes: so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation and count it."""
        named = kwargs or {}
        out, name = func(*args, **named), func.overloadpacket.__name__
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **named, out_val=out)
        if not func.is_view and name not in _FREE:
            self.bytes += sum(map(_size, _tensors([_read(name, args), _given(func, named), out])))
        return out


def _read(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """The positional arguments that an operation reads."""
    if name in _OVERWRITING:
        return args[1:]
    if name == "convolution_backward":
        grad, image, weight, *_, (for_image, for_weight, _) = args
        return [grad, image if for_weight else None, weight if for_image else None]
    return args


def _given(func: Any, named: Mapping[str, Any]) -> list[Any]:
    """The named arguments that it reads: all but those that it writes, such as ``out``."""
    written = {one.name for one in func._schema.arguments if one.is_write}
    return [value for name, value in named.items() if name not in written]


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _size(tensor: Tensor) -> int:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(length for length, stride in steps if stride or not length)

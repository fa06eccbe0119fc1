"""Make a net from the name a config uses, with its normalisation inside and a seeded start.

A :class:`NormalisedNet` takes images in [0, 1], so nothing outside a net ever normalises.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import UninitializedParameter

from raystitch.errors import InputError, did_you_mean
from raystitch.nets.cifar_resnet import DEPTHS, CifarResNet
from raystitch.nets.resnet_mini import MiniResNet

_OWN: Mapping[str, Callable[..., nn.Module]] = {
    "resnet_mini": MiniResNet,
    **{f"cifar_resnet{depth}": partial(CifarResNet, depth) for depth in DEPTHS},
}
_RESERVED = ("pretrained", "num_classes", "checkpoint_path", "in_chans", "features_only", "scriptable", "exportable")


def float_images(x: Tensor) -> Tensor:
    """Return ``x`` unchanged; integer images (0 to 255) would pass through a net unnoticed and are refused.

    Raises:
        TypeError: ``x`` is not a floating-point tensor.
    """
    if not x.is_floating_point():
        raise TypeError(f"images at a net's door are floats in [0, 1], not {x.dtype}")
    return x


fx.wrap("float_images")


class NormalisedNet(nn.Module):
    """``net`` with channel normalisation inside: images (N, 3, H, W), float in [0, 1] → logits (N, C).

    Args:
        net: takes normalised images; it stays as it is.
        mean: three channel means in pixel units [0, 1].
        std: three channel standard deviations in the same units.
        label: what errors call it; by default the name of its class.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float], label: str | None = None) -> None:
        super().__init__()
        self.net, self.label = net, label or type(net).__name__
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) in [0, 1] → logits (N, C)."""
        logits: Tensor = self.net((float_images(x) - self.mean) / self.std)
        return logits


def build_net(
    arch: str,
    num_classes: int,
    args: Mapping[str, Any],
    mean: Sequence[float],
    std: Sequence[float],
    seed: int = 0,
) -> NormalisedNet:
    """Build ``arch`` with freshly initialised weights, on the CPU and in train mode.

    Args:
        arch: a timm name, ``cifar_resnet20``/``32``/``44``/``56``, ``resnet_mini``, or ``module:function``, which is
            called as ``function(num_classes=…, **args)``.
        num_classes: classes of the dataset.
        args: keyword arguments of the architecture. timm ResNets also take ``stem: cifar``, a 3×3 stem with stride 1
            and no max-pool (METHOD §6: 32-pixel ResNets).
        mean: channel means, see :class:`NormalisedNet`.
        std: channel standard deviations.
        seed: of the initialisation; torch's global random state is left as it was.

    Raises:
        InputError: unknown architecture, arguments it does not take, code of the user that fails, or a net without
            parameters.
    """
    maker = _find(arch, args)
    with _seeded(seed):
        try:
            net = maker(num_classes=num_classes, **args)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            if _is_users(arch):
                raise InputError("arch", arch, f"{arch} failed: {_told(error)}") from error
            raise InputError("args", dict(args), f"{arch} cannot be built so: {error}") from error
    if not isinstance(net, nn.Module):
        raise InputError("arch", arch, f"returned {type(net).__name__}, not a torch module")
    parameters = list(net.parameters())
    if not parameters or any(isinstance(parameter, UninitializedParameter) for parameter in parameters):
        raise InputError("arch", arch, "its net has lazy layers" if parameters else "its net has no parameters")
    return NormalisedNet(net, mean, std, label=arch)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the CPU generator only, and put its state back (``torch.manual_seed`` would also reseed every GPU)."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _find(arch: str, args: Mapping[str, Any]) -> Callable[..., Any]:
    if arch in _OWN:
        return _OWN[arch]
    if timm.is_model(arch):
        for name in _RESERVED:
            if name in args:
                raise InputError(f"args.{name}", args[name], "is set by the study itself: leave it out")
        return lambda **kwargs: _timm_net(arch, **kwargs)
    if _is_users(arch):
        return _imported(arch)
    raise InputError("arch", arch, f"unknown architecture{did_you_mean(arch, [*_OWN, *timm.list_models()])}")


def _imported(arch: str) -> Callable[..., Any]:
    module, _, function = arch.partition(":")
    if not all(name.isidentifier() for name in (*module.split("."), function)):
        raise InputError(
            "arch", arch, "write module:function, with the module's full name, as in package.module:function"
        )
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError("arch", arch, f"cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError("arch", arch, f"{arch} failed: its module cannot be imported: {_told(error)}") from error
    if not callable(found):
        raise InputError("arch", arch, f"{function!r} is not a function")
    return found  # type: ignore[no-any-return]


def _is_users(arch: str) -> bool:
    """Whether the architecture is code of the user, ``module:function``."""
    return ":" in arch and arch not in _OWN and not arch.startswith(("hf-hub:", "hf_hub:", "local-dir:"))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _timm_net(arch: str, stem: str | None = None, **kwargs: Any) -> nn.Module:
    if stem is not None and stem != "cifar":
        # some timm nets have a `stem` argument of their own
        kwargs["stem"] = stem
    net: nn.Module = timm.create_model(arch, pretrained=False, **kwargs)
    if stem == "cifar":
        _cifar_stem(arch, net)
    return net


def _cifar_stem(arch: str, net: nn.Module) -> None:
    conv, pool = getattr(net, "conv1", None), getattr(net, "maxpool", None)
    if not isinstance(conv, nn.Conv2d) or pool is None:
        raise InputError("args.stem", "cifar", f"{arch} has no ResNet stem (conv1 and maxpool); leave it out")
    net.conv1 = nn.Conv2d(conv.in_channels, conv.out_channels, 3, padding=1, bias=conv.bias is not None)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    net.maxpool = nn.Identity()

"""Load the nets and images through the product's own code."""

from __future__ import annotations

import torch

from benchmarks.subjects import Options, study
from raystitch import catalogue, nets
from raystitch.config import StudyConfig, parse_config
from raystitch.data import ImageSet, Split, load_images
from raystitch.errors import InputError
from raystitch.nets import CutNet

CLASSES, SIDE = 10, 32


def load_net(options: Options, name: str) -> CutNet:
    """The net called ``front`` or ``end``, frozen, cut at its default points, BatchNorm not folded."""
    model, where = _config(options).models[name], f"models.{name}"
    net = catalogue.build(model, CLASSES, 0, where)
    catalogue.load_checkpoint(net, model, 0, where)
    points = catalogue.find_points(nets.freeze(net), model, CLASSES, SIDE, where)
    return nets.freeze(nets.cut(net, points)).to(options.device)


def load_set(options: Options, split: Split, count: int) -> ImageSet:
    """``count`` evenly spaced images of a split, uint8, with labels.

    Raises:
        InputError: they are fewer, or not those of CIFAR-10.
    """
    found = load_images(_config(options, count).data["cifar10"], split, "data.cifar10")
    shape, expected = tuple(found.images.shape), (count, 3, SIDE, SIDE)
    if shape != expected or found.num_classes != CLASSES:
        has = f"{split} split has {shape[0]} of {count} images, of {shape[2]} pixels, in {found.num_classes} classes"
        raise InputError(
            "--data", options.data, f"is not CIFAR-10: its {has}; {SIDE} pixels and {CLASSES} classes are right"
        )
    return found


def load_float(options: Options, count: int) -> torch.Tensor:
    """``count`` training images, float32 in [0, 1], on the device."""
    return load_set(options, "train", count).images.to(options.device).float() / 255


def _config(options: Options, count: int = 1) -> StudyConfig:
    return parse_config(study(options, {"train": count, "test": count}, {}, [1]))

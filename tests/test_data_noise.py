"""Noise sets: the spectra they promise, independence, and content that depends on seed, split and index only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from raystitch.config import DataConfig
from raystitch.data import count, fingerprint, image_size, load_images, num_classes

WHERE = "data.noise"


def noise(**fields: object) -> DataConfig:
    return DataConfig.model_validate({"source": "noise", **fields})


def amplitude_slope(images: torch.Tensor) -> float:
    """Slope of log mean amplitude against log frequency, over rings one frequency step wide, up to the Nyquist frequency."""
    pixels = images.double().numpy()
    side = pixels.shape[-1]
    amplitude = np.abs(np.fft.fft2(pixels - pixels.mean((2, 3), keepdims=True))).mean((0, 1))
    radius = np.hypot(*np.meshgrid(*2 * [np.fft.fftfreq(side) * side]))
    rings = np.arange(2, side // 2)
    mean = [amplitude[(radius >= ring - 0.5) & (radius < ring + 0.5)].mean() for ring in rings]
    return float(np.polyfit(np.log(rings), np.log(mean), 1)[0])


@pytest.mark.parametrize("side", [32, 63])
@pytest.mark.parametrize(("kind", "slope"), [("uniform", 0.0), ("pink", -1.0)])
def test_amplitude_falls_as_promised(kind: str, slope: float, side: int) -> None:
    images = load_images(noise(kind=kind, count=100, size=side), "train", WHERE).images
    assert images.shape == (100, 3, side, side)
    assert amplitude_slope(images) == pytest.approx(slope, abs=0.03)


def test_uniform_noise_has_every_level_equally_often_and_no_correlation() -> None:
    images = load_images(noise(count=200), "train", WHERE).images
    n = images.numel()
    levels = torch.bincount(images.flatten().int(), minlength=256)
    assert float((levels - n / 256).abs().max()) < 5 * (n / 256) ** 0.5
    centred = images.double() - 127.5
    for a, b in ((centred[:-1], centred[1:]), (centred[:, :2], centred[:, 1:]), (centred[..., 1:], centred[..., :-1])):
        assert abs(float((a * b).mean())) / 73.9**2 < 5 / a.numel() ** 0.5


def test_pink_noise_fills_the_range_and_its_channels_are_independent() -> None:
    images = load_images(noise(kind="pink", count=200), "train", WHERE).images
    assert (images.flatten(1).min(1).values == 0).all()
    assert (images.flatten(1).max(1).values == 255).all()
    centred = images.double() - images.double().mean((2, 3), keepdim=True)
    red, green = centred[:, 0].flatten(1), centred[:, 1].flatten(1)
    correlation = (red * green).sum(1) / (red.norm(dim=1) * green.norm(dim=1))
    assert abs(float(correlation.mean())) < 5 * float(correlation.std()) / 200**0.5


@pytest.mark.parametrize("kind", ["uniform", "pink"])
def test_an_image_depends_on_seed_split_and_index_only(kind: str) -> None:
    small, large = noise(kind=kind, count=5, size=8), noise(kind=kind, count=40, size=8)
    whole = load_images(large, "train", WHERE)
    part = load_images(small, "train", WHERE)
    assert torch.equal(part.images, whole.images[:5])
    assert torch.equal(part.labels, whole.labels[:5])
    limited = load_images(noise(kind=kind, count=40, size=8, limit={"train": 4}), "train", WHERE)
    assert torch.equal(limited.images, whole.images[::10])
    first = load_images(noise(kind=kind, count=40, size=8, limit={"train": 4, "rows": "first"}), "train", WHERE)
    assert torch.equal(first.images, whole.images[:4])
    others = [
        load_images(large, "test", WHERE),
        load_images(noise(kind=kind, count=40, size=8, seed=1), "train", WHERE),
    ]
    for other in others:
        assert (other.images != whole.images).any((1, 2, 3)).all()
        assert not torch.equal(other.labels, whole.labels)
    assert len({image.numpy().tobytes() for image in whole.images}) == 40


def test_labels_are_uniform_over_the_classes_asked_for() -> None:
    config = noise(count=2000, size=4, classes=4)
    data = load_images(config, "train", WHERE)
    assert data.num_classes == num_classes(config, WHERE) == 4
    assert torch.bincount(data.labels, minlength=4).sub(500).abs().max() < 5 * (2000 * 3 / 16) ** 0.5


def test_defaults_and_fingerprints() -> None:
    assert (image_size(noise(), WHERE), count(noise(), "test", WHERE), num_classes(noise(), WHERE)) == (32, 1000, 10)
    changes = [{}, {"kind": "pink"}, {"seed": 1}, {"size": 8}, {"classes": 3}, {"count": 9}, {"greyscale": True}]
    prints = {fingerprint(noise(**change), "train", WHERE) for change in changes}
    assert len(prints) == len(changes)


def test_greyscale_is_the_luma_of_itu_r_601() -> None:
    colour = load_images(noise(count=20, size=8), "train", WHERE).images.double()
    grey = load_images(noise(count=20, size=8, greyscale=True), "train", WHERE).images
    assert torch.equal(grey[:, 0], grey[:, 1])
    assert torch.equal(grey[:, 0], grey[:, 2])
    luma = 0.299 * colour[:, 0] + 0.587 * colour[:, 1] + 0.114 * colour[:, 2]
    assert float((grey[:, 0] - luma).abs().max()) <= 0.51


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "noise", "classes": ["cat", "dog"]}, "give their number"),
        ({"source": "noise", "classes": 0}, "give their number"),
        ({"source": "noise", "path": "x"}, "built in"),
        ({"source": "noise", "kind": "brown"}, "'uniform' or 'pink'"),
        ({"source": "digits", "kind": "pink", "seed": 1}, "kind and seed only go with source 'noise'"),
        ({"source": "digits", "classes": 3}, "list of names"),
        ({"source": "digits", "classes": []}, "list of names"),
        ({"source": "cifar", "train": "a", "test": "b"}, "needs path"),
    ],
)
def test_fields_that_do_not_go_together(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DataConfig.model_validate(fields)

"""STIR and invariance-aware CKA on linear nets whose invariances are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raystitch.metrics import representation_cka, representation_metrics, stir

COUNT = 64


def _images(seed: int) -> Tensor:
    return torch.rand(COUNT, 3, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _sees_red(x: Tensor) -> Tensor:
    return x[:, :1]


def _sees_green(x: Tensor) -> Tensor:
    return x[:, 1:2]


def _iris_of_red() -> tuple[Tensor, Tensor]:
    """Perfect IRIs of the net that sees red only: equal red, the rest from noise."""
    x, iri = _images(0), _images(1)
    iri[:, 0] = x[:, 0]
    return x, iri


def _batches(*sets: Tensor, size: int = 10) -> list[tuple[Tensor, ...]]:
    return list(zip(*(whole.split(size) for whole in sets), strict=True))


def test_shared_invariance_is_one_and_an_unshared_one_is_chance() -> None:
    pairs = [(x, iri) for x, iri in _batches(*_iris_of_red())]
    assert stir(_sees_red, pairs) == pytest.approx(1, abs=1e-12)
    assert abs(stir(_sees_green, pairs)) < 0.15
    assert 0.15 < stir(lambda x: x, pairs) < 0.85  # sees both: one third of the variance is shared


def test_stir_is_not_symmetric() -> None:
    # Whatever a net that sees all cannot tell apart, no net can: IRIs of the identity are the images themselves.
    x, iri = _iris_of_red()
    assert stir(_sees_red, [(x, x.clone())]) == pytest.approx(1)
    assert stir(lambda z: z, [(x, iri)]) < 0.85


def test_cka_on_iris_reveals_what_correlated_images_hide() -> None:
    x, iri = _iris_of_red()
    x[:, 1] = x[:, 0]  # in real images green always equals red
    found = representation_metrics(_sees_red, _sees_green, [(a, b) for a, b in _batches(x, iri)])
    assert found["cka"] == pytest.approx(1, abs=1e-12)
    assert abs(found["cka_iri"]) < 0.15
    assert abs(found["stir"]) < 0.15
    assert found["stir_front"] == pytest.approx(1, abs=1e-12)


def test_one_pass_gives_the_same_as_each_alone() -> None:
    x, iri = _iris_of_red()
    pairs = [(a, b) for a, b in _batches(x, iri, size=7)]

    def end(z: Tensor) -> Tensor:
        return z.flatten(1)[:, :7].square()

    found = representation_metrics(_sees_red, end, pairs)
    assert found["cka"] == pytest.approx(representation_cka(_sees_red, end, [x]), abs=1e-12)
    assert found["cka_iri"] == pytest.approx(representation_cka(_sees_red, end, [iri]), abs=1e-12)
    assert found["stir"] == pytest.approx(stir(end, [(x, iri)]), abs=1e-12)


def test_no_graph_is_kept() -> None:
    layer = torch.nn.Linear(12, 3).double()
    seen: list[bool] = []

    def end(x: Tensor) -> Tensor:
        z: Tensor = layer(x.flatten(1))
        seen.append(z.requires_grad)
        return z

    representation_metrics(_sees_red, end, [_iris_of_red()])
    assert seen == [False, False]

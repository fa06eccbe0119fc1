"""Representation metrics on identically represented inputs: invariance-aware CKA, and STIR (Nanda et al. 2022).

A representation is any function from images (B, 3, H, W) in [0, 1] to (B, ...) that treats images one by one, such as
``lambda x: net.run(x, 0, i)``. Images come in batches; x and x′ of one batch are the same samples in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from raystitch.metrics.cka import BLOCK, LinearCKA

Representation = Callable[[Tensor], Tensor]


@torch.no_grad()
def representation_cka(
    front: Representation, end: Representation, images: Iterable[Tensor], block: int = BLOCK
) -> float:
    """Unbiased linear CKA of f(x) and g(x); on IRIs of f this is the invariance-aware CKA (METHOD §7).

    Values and errors as for :meth:`LinearCKA.compute`.
    """
    cka = LinearCKA(block)
    for x in images:
        cka.update(front(x), end(x))
    return cka.compute()


@torch.no_grad()
def stir(end: Representation, pairs: Iterable[tuple[Tensor, Tensor]], block: int = BLOCK) -> float:
    """STIR(g | f): unbiased linear CKA of g(x) and g(x′), x′ the IRIs of f (Nanda et al. 2022, eq. 4).

    1 if g, too, cannot tell x′ from x; about 0 if g sees nothing that the two have in common. Not symmetric in f and g.
    Values and errors as for :meth:`LinearCKA.compute`.

    Args:
        end: g.
        pairs: batches (x, x′).
        block: see :class:`LinearCKA`.
    """
    cka = LinearCKA(block)
    for x, iri in pairs:
        cka.update(end(x), end(iri))
    return cka.compute()


@torch.no_grad()
def representation_metrics(
    front: Representation, end: Representation, pairs: Iterable[tuple[Tensor, Tensor]], block: int = BLOCK
) -> dict[str, float]:
    """All representation metrics of one pair of points in one pass over the images.

    Args:
        front: f.
        end: g.
        pairs: batches (x, x′), x′ the IRIs of f.
        block: see :class:`LinearCKA`.

    Returns:
        ``cka``: of f(x) and g(x). ``cka_iri``: of f(x′) and g(x′), the invariance-aware CKA. ``stir``: of g(x) and g(x′).
        ``stir_front``: of f(x) and f(x′), which is 1 for perfect IRIs: the ceiling that their residual r sets.
    """
    parts = {name: LinearCKA(block) for name in ("cka", "cka_iri", "stir", "stir_front")}
    for x, iri in pairs:
        f, f_iri, g, g_iri = front(x), front(iri), end(x), end(iri)
        parts["cka"].update(f, g)
        parts["cka_iri"].update(f_iri, g_iri)
        parts["stir"].update(g, g_iri)
        parts["stir_front"].update(f, f_iri)
    return {name: part.compute() for name, part in parts.items()}

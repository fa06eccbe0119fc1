"""Compute what a unit leaves: load its nets and images, fit, measure, and name the rows and predictions that come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from raystitch.config import ATTACKS, AttackName, EvalSet
from raystitch.data import ImageSet, evenly_spaced, make_cue, overlapped, to_device
from raystitch.evaluate import (
    BATCH,
    Measured,
    evaluate,
    evaluate_attacked,
    evaluate_unstitched,
    evaluate_unstitched_attacked,
)
from raystitch.metrics import representation_cka, representation_metrics
from raystitch.predictions import Predictions
from raystitch.shelf import Shelf
from raystitch.stitching import Fitted, as_float, fit_stitches
from raystitch.stitching.streams import Paste
from raystitch.units import FitUnit


@dataclass(frozen=True)
class Outcome:
    """What a unit leaves.

    Attributes:
        rows: of the results table, one per evaluation set.
        predictions: by evaluation set; none where nothing is predicted.
    """

    rows: list[dict[str, Any]]
    predictions: dict[str, Predictions]


def measure(shelf: Shelf, units: Sequence[FitUnit]) -> dict[str, Outcome]:
    """Compute a group of units, which share their passes; returns the outcome of each by its id."""
    outcomes = {unit.id: Outcome([], {}) for unit in units}
    if units[0].kind == "similarity":
        outcomes[units[0].id].rows.append(_similarity_row(shelf, units[0]))
        return outcomes
    found = _stitched(shelf, units) if units[0].kind == "fit" else _unstitched(shelf, units[0])
    for unit, eval_set, measured in found:
        outcome = outcomes[unit.id]
        names = _names(unit, eval_set, len(measured.labels))
        outcome.rows.append({**names, **measured.columns, **_residuals(shelf, unit)})
        outcome.predictions[eval_set] = _kept(measured, attacked=eval_set in ATTACKS)
    return outcomes


def _stitched(shelf: Shelf, units: Sequence[FitUnit]) -> Iterator[tuple[FitUnit, EvalSet, Measured]]:
    front, end = shelf.net(units[0].front), shelf.net(units[0].end)
    fitted = _fit(shelf, units)
    for eval_set in units[0].eval_sets:
        shown, attack = _shown(shelf, units[0], eval_set)
        if attack is None:
            together = evaluate(list(fitted.values()), front, end, shown, shelf.device)
            yield from ((unit, eval_set, together[unit.objective]) for unit in units)
            continue
        for unit in units:
            fit, robust = fitted[unit.objective], shelf.config.robust
            yield unit, eval_set, evaluate_attacked(fit, front, end, shown, attack, robust, shelf.device)


def _unstitched(shelf: Shelf, unit: FitUnit) -> Iterator[tuple[FitUnit, EvalSet, Measured]]:
    front, end = shelf.net(unit.front), shelf.net(unit.end)
    alone = end if unit.front_point == 0 else front
    for eval_set in unit.eval_sets:
        shown, attack = _shown(shelf, unit, eval_set)
        if attack is None:
            yield unit, eval_set, evaluate_unstitched(alone, front, end, shown, shelf.device)
        else:
            robust, device = shelf.config.robust, shelf.device
            yield unit, eval_set, evaluate_unstitched_attacked(alone, front, end, shown, attack, robust, device)


def _similarity_row(shelf: Shelf, unit: FitUnit) -> dict[str, Any]:
    """Representation metrics on evenly spaced training images, with the cue as trained, and on their IRIs if it has any."""
    front, end = shelf.net(unit.front), shelf.net(unit.end)
    real, wanted = shelf.images(unit.data, "train", "test"), shelf.config.similarity
    rows = torch.from_numpy(evenly_spaced(len(real), None if wanted is None else wanted.images))

    def f(x: Tensor) -> Tensor:
        return front.run(x, 0, unit.front_point)

    def g(x: Tensor) -> Tensor:
        return end.run(x, 0, unit.end_point)

    if unit.iris is None:
        values = {"cka": representation_cka(f, g, _batches(shelf, real, rows))}
    else:
        iris = shelf.iri_set(unit.iris, unit.level)[0]
        pairs = zip(_batches(shelf, real, rows), _batches(shelf, iris, rows), strict=True)
        values = representation_metrics(f, g, pairs)
    return {**_names(unit, "train", len(rows)), **values, **_residuals(shelf, unit)}


def _fit(shelf: Shelf, units: Sequence[FitUnit]) -> dict[str, Fitted]:
    unit = units[0]
    data, end_data, paste = _training_images(shelf, unit)
    return fit_stitches(
        shelf.net(unit.front),
        shelf.net(unit.end),
        unit.front_point,
        unit.end_point,
        [u.objective for u in units if u.objective != "none"],
        data,
        _init_images(shelf, unit),
        unit.config,
        "paper" if unit.augmented else "matched",
        "real" if unit.arm == "none" else unit.arm,
        unit.seed,
        device=shelf.device,
        paste=paste,
        attack=unit.attack,
        end_data=end_data,
        folded=(shelf.folded(unit.front), shelf.folded(unit.end)),
    )


def _training_images(shelf: Shelf, unit: FitUnit) -> tuple[ImageSet, ImageSet | None, Paste | None]:
    """What the stitch is trained on, what the end's own stream sees if that is something else, and the cue to plant."""
    if unit.iris is not None:
        iris = shelf.iri_set(unit.iris, unit.level)[0]
        if unit.arm == "iri":
            return iris, None, None
        real = shelf.images(unit.data, "train", "test")
        return (iris, real, None) if unit.arm == "iri_front" else (real, iris, None)
    plain, cue = shelf.plain(unit.data, "train"), shelf.config.data[unit.data].cue
    if cue is None:
        return plain, None, None
    return plain, None, make_cue(cue, plain.num_classes, plain.images.shape[-1], "train").paste


def _init_images(shelf: Shelf, unit: FitUnit) -> Tensor:
    """Real training images that the initialisation is solved on, drawn by the fit's seed; the same on every arm."""
    images = shelf.images(unit.data, "train", "test").images
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(unit.seed))
    return images[order[: unit.config.init_images]]


def _shown(shelf: Shelf, unit: FitUnit, eval_set: EvalSet) -> tuple[ImageSet, AttackName | None]:
    """The images of an evaluation set, and how they are to be attacked."""
    attack = next((name for name in ATTACKS if name == eval_set), None)
    return shelf.images(unit.test_data, "test", eval_set if attack is None else "test"), attack


def _batches(shelf: Shelf, data: ImageSet, rows: Tensor) -> Iterator[Tensor]:
    parts = (as_float(to_device(data.images[part], shelf.device)) for part in torch.split(rows, BATCH))
    return overlapped(parts, shelf.device, data.key is not None)


def _names(unit: FitUnit, eval_set: str, count: int) -> dict[str, Any]:
    fit = unit.kind == "fit"
    return {
        "unit": unit.id,
        "objective": unit.objective,
        "stitch": str(unit.config.stitch) if fit else "none",
        "arm": unit.arm,
        "inputs": ("clean" if unit.attack is None else "adversarial") if fit else "none",
        "seed": unit.seed,
        "eval_set": eval_set,
        "n_eval": count,
    }


def _residuals(shelf: Shelf, unit: FitUnit) -> Mapping[str, Any]:
    if unit.iris is None:
        return {}
    return {**shelf.iri_set(unit.iris, unit.level)[1], "iri_level": unit.level}


def _kept(measured: Measured, attacked: bool) -> Predictions:
    labels, h = measured.labels.numpy(), measured.h.float().numpy()
    if not attacked:
        return Predictions(labels, h)
    return Predictions(labels, h, measured.end.float().numpy(), measured.front.float().numpy())

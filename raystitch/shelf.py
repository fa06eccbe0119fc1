"""What a worker loads to compute units, and keeps for the next ones: images, nets, IRI sets.

Whatever it reads back from the store is checked; a damaged file is set aside, so that the next run makes it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from raystitch import catalogue, iris, nets
from raystitch.config import EvalSet, StudyConfig
from raystitch.data import ImageSet, Split, fits_in_memory, hold, image_size, load_images, num_classes, with_cue
from raystitch.errors import DamagedError, InputError
from raystitch.iris import Inverter, Shard
from raystitch.nets import CutNet, NormalisedNet
from raystitch.records import IriRecord, ResidualRecord, read_record
from raystitch.store import Store
from raystitch.units import IriUnit, ModelUnit


class Shelf:
    """Loads images, nets and IRI sets of a study, and keeps those used last.

    Attributes:
        images: (dataset, split, evaluation set) → the images as that set shows them; ``test`` carries the cue as trained.
        frame: dataset → its number of classes and the side of its images in pixels; decodes no set.
        net: model unit → its frozen net, cut at its points.
        folded: model unit → the same with BatchNorm folded into its convolutions.
        inverter: IRI set unit → what searches its images, compiled once where that pays.

    Args:
        config: the study.
        store: where units are published.
        device: torch device of the nets.
    """

    def __init__(self, config: StudyConfig, store: Store, device: str) -> None:
        self.config, self.store, self.device = config, store, device
        self.images = lru_cache(8)(self._load_images)
        self.frame = lru_cache(64)(self._look_at_data)
        self.net = lru_cache(8)(self._load_net)
        self.folded = lru_cache(8)(self._fold_net)
        self.inverter = lru_cache(8)(self._make_inverter)
        self._iri_sets = lru_cache(2)(self._load_iri_set)

    def plain(self, name: str, split: Split) -> ImageSet:
        """A split without any cue."""
        return self.images(name, split, "clean")

    def _load_images(self, name: str, split: Split, eval_set: EvalSet) -> ImageSet:
        dataset = self.config.data[name]
        plain = load_images(dataset, split, f"data.{name}") if eval_set == "clean" else self.plain(name, split)
        return with_cue(plain, dataset.cue, eval_set, split)

    def _look_at_data(self, name: str) -> tuple[int, int]:
        dataset, where = self.config.data[name], f"data.{name}"
        return num_classes(dataset, where), image_size(dataset, where)

    def _load_net(self, unit: ModelUnit) -> CutNet:
        model, where = self.config.models[unit.name], f"models.{unit.name}"
        net = self.new_net(unit)
        try:
            nets.load_weights(net, nets.read_weights(self.store.read(unit.weights), unit.weights), unit.weights)
        except InputError as error:
            raise self._damaged(unit.weights) from error
        points = catalogue.find_points(net, model, *self.frame(model.data), where)
        cut = nets.cut(nets.freeze(net), points)
        nets.freeze(cut)
        return cut.to(self.device)

    def _fold_net(self, unit: ModelUnit) -> CutNet:
        return nets.fold_batchnorm(self.net(unit))

    def _make_inverter(self, unit: IriUnit) -> Inverter:
        prefix = nets.SoftPrefix(self.folded(unit.model), unit.point)
        return Inverter(prefix, unit.config, expected=sum(part.stop - part.start for part in unit.shards))

    def new_net(self, unit: ModelUnit) -> NormalisedNet:
        """The unit's net with seeded initial weights."""
        model = self.config.models[unit.name]
        return catalogue.build(model, self.frame(model.data)[0], unit.seed, f"models.{unit.name}")

    def shards(self, unit: IriUnit, level: float | None = None) -> Iterator[tuple[str, bytes, Shard]]:
        """Name, bytes and content of each shard of a set at one residual level, in order, one at a time."""
        for part in unit.shards:
            name = part.tar(level)
            content = self.store.read(name)
            try:
                shard = iris.decode_shard(content)
            except (InputError, ValueError) as error:
                raise self._damaged(name) from error
            yield name, content, shard

    def iri_set(self, unit: IriUnit, level: float | None = None) -> tuple[ImageSet, dict[str, float]]:
        """The IRIs of a set with the labels of their originals, and the residual columns of the results.

        Args:
            unit: the set.
            level: one of its ``config.levels``; by default the best images.
        """
        return self._iri_sets(unit, level)

    def _damaged(self, name: str) -> DamagedError:
        """Set a damaged file aside, so that the next run makes it again; returns what to raise."""
        self.store.quarantine(name)
        return DamagedError(f"{name} was damaged and is now under damaged/; the next run makes it again")

    def _load_iri_set(self, unit: IriUnit, level: float | None) -> tuple[ImageSet, dict[str, float]]:
        plain, dtype = self.plain(unit.data, "train"), unit.config.dtype
        shape = (unit.count, *plain.images.shape[1:])
        residual, written = self._read_index(unit, level, (shape, dtype))

        def parts() -> Iterator[NDArray[Any]]:
            for name, content, shard in self.shards(unit, level):
                if hashlib.sha256(content).hexdigest() != written[name]:
                    raise self._damaged(name)
                yield shard.images

        key = None if fits_in_memory(shape, dtype) else f"{unit.id} {json.dumps(written)}"
        images = hold(shape, parts, key, dtype)
        return ImageSet(images, plain.labels, plain.num_classes, key), {
            "iri_r_median": residual.median,
            "iri_r_p90": residual.p90,
        }

    def _read_index(
        self, unit: IriUnit, level: float | None, kind: tuple[tuple[int, ...], str]
    ) -> tuple[ResidualRecord, dict[str, str]]:
        """Residuals of a set, and the checksum of each of its shards; ``kind`` is the shape and dtype that it must have."""
        index = read_record(IriRecord, self.store.read(unit.marker))
        part = None if index is None else index.at(level)
        if index is None or part is None or ((index.count, *index.shape), index.dtype) != kind:
            raise self._damaged(unit.marker)
        written = {shard.name: shard.sha256 for shard in part.shards}
        if written.keys() != {shard.tar(level) for shard in unit.shards}:
            raise self._damaged(unit.marker)
        return part.residual, written

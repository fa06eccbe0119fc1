"""Look at everything a config names, before any work starts.

Builds each net, finds its stitch points, reads each checkpoint, fingerprints each dataset, and checks that settings go
together: class counts, image sizes, stitches that exist, batches that the data can fill. Whatever is wrong comes out here as
one :class:`~raystitch.errors.InputError`; what is right becomes the :class:`~raystitch.plan.Catalogue` that planning needs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import cast

from raystitch import attacks, data, nets
from raystitch.config import ATTACKS, EXACT, ModelConfig, StitchConfig, StudyConfig, setting_pairs
from raystitch.errors import InputError, MissingError, NotFiniteError
from raystitch.expected import assumed_digest, is_assumed, look_at_data, look_or_assume
from raystitch.metrics.cka import LEAST_SAMPLES
from raystitch.nets import NormalisedNet
from raystitch.nets.head import find_classifier
from raystitch.plan import Catalogue, DataFacts, ModelFacts, pair_points
from raystitch.remote import read_url
from raystitch.stitching import check_exact, make_stitch

Digest = Callable[[NormalisedNet, ModelConfig, int, str], str]
"""Loads the checkpoint of one seed into a net and returns the SHA-256 of the file, or what stands in its place."""
_OF_A_NET = {"arch", "args", "normalise", "points"}
"""What of a model decides whether its net, with initial weights, can be cut."""


def inspect(
    config: StudyConfig, look_at_images: bool = False, assume_missing: bool = False, poison: bool = False
) -> Catalogue:
    """Gather the facts of a study.

    Args:
        config: the study.
        look_at_images: also decode every image of datasets that are small enough, so that a bad one is found now, and run
            every net; without, nets that have no weights yet are known by their shapes alone, which takes milliseconds.
        assume_missing: take what the config expects of datasets whose files are not there, and made-up digests of such
            checkpoints: enough to count units and cost, not to run them.
        poison: let checkpoints pass that hold NaN or infinite values: their models will fail alone, and the rest can run,
            unless there is no other model.

    Raises:
        InputError: anything named by the config is missing, unreadable or does not fit the rest.
    """
    if look_at_images:
        for name, dataset in config.data.items():
            for split in ("train", "test"):
                data.check_images(dataset, split, f"data.{name}")
    look = look_or_assume if assume_missing else look_at_data
    poisoned: list[NotFiniteError] = []
    forgiving = partial(_digest_though_poisoned, poisoned)
    weights = _digest_or_assume if assume_missing else forgiving if poison else load_checkpoint
    datasets = {name: look(dataset, f"data.{name}") for name, dataset in config.data.items()}
    models = {
        name: _look_at_model(config, name, datasets[model.data], weights, run=look_at_images)
        for name, model in config.models.items()
    }
    if poisoned and len(poisoned) == sum(len(model.seeds) for model in config.models.values()):
        raise poisoned[0]
    catalogue = Catalogue(datasets, models)
    for name in config.settings:
        _check_setting(config, catalogue, name)
    return catalogue


def build(config: ModelConfig, num_classes: int, seed: int, where: str) -> NormalisedNet:
    """The net of a model config with seeded initial weights; errors name the config field."""
    with _fields_of(where):
        mean, std = config.normalise.mean, config.normalise.std
        return nets.build_net(config.arch, num_classes, config.args, mean, std, seed=seed)


def load_checkpoint(net: NormalisedNet, config: ModelConfig, seed: int, where: str) -> str:
    """Load the checkpoint of one seed into a net. Returns the SHA-256 of the file.

    Raises:
        MissingError: there is no such file.
        NotFiniteError: it holds NaN or infinite values.
        InputError: it holds no weights, or not those of this net.
    """
    url = _checkpoint_url(config, seed)
    content = _read_checkpoint(url, where)
    try:
        nets.load_weights(net, nets.read_weights(content, url), url)
    except InputError as error:
        raise type(error)(f"{where}.checkpoint", url, error.problem) from error
    except Exception as error:  # whatever a strange file makes of torch
        raise InputError(f"{where}.checkpoint", url, f"cannot be read: {error}") from error
    return hashlib.sha256(content).hexdigest()


def _read_checkpoint(url: str, where: str) -> bytes:
    try:
        return read_url(url)
    except FileNotFoundError as error:
        raise MissingError(f"{where}.checkpoint", url, "no such file") from error
    except Exception as error:  # remote filesystems raise whatever their client raises
        raise InputError(f"{where}.checkpoint", url, f"cannot be read: {error}") from error


def _digest_though_poisoned(
    poisoned: list[NotFiniteError], net: NormalisedNet, config: ModelConfig, seed: int, where: str
) -> str:
    """As :func:`load_checkpoint`; NaN or infinite values are only added to a list, and the net keeps the weights it has."""
    try:
        return load_checkpoint(net, config, seed, where)
    except NotFiniteError as error:
        poisoned.append(error)
        return hashlib.sha256(_read_checkpoint(_checkpoint_url(config, seed), where)).hexdigest()


def _checkpoint_url(config: ModelConfig, seed: int) -> str:
    return str(config.checkpoint).replace("{seed}", str(seed))


def _digest_or_assume(net: NormalisedNet, config: ModelConfig, seed: int, where: str) -> str:
    """As :func:`load_checkpoint`; where there is no file, a digest of its URL that says so."""
    try:
        return load_checkpoint(net, config, seed, where)
    except MissingError:
        return assumed_digest(_checkpoint_url(config, seed))


def find_points(
    net: NormalisedNet, config: ModelConfig, num_classes: int, size: int, where: str
) -> tuple[nets.Point, ...]:
    """Stitch points of a model; errors name the config field."""
    with _fields_of(where):
        return nets.find_points(net, size, config.points, num_classes)


def _look_at_model(config: StudyConfig, name: str, dataset: DataFacts, digest: Digest, run: bool) -> ModelFacts:
    model, where = config.models[name], f"models.{name}"
    if model.train is not None and model.train.batch > dataset.train_count:
        problem = f"the batch is larger than the training set, {dataset.train_count} images"
        raise InputError(f"{where}.train.batch", model.train.batch, problem)
    seen = nets.outline(model.arch, dataset.num_classes, model.args, dataset.size, model.points)
    if seen is None or model.checkpoint is not None or not _head_is_clear(model, dataset):
        return _look_inside(model, dataset, where, digest)
    if run:
        with _fields_of(where):
            _try_out(model.model_dump_json(include=_OF_A_NET), dataset.num_classes, dataset.size)
    return ModelFacts(seen.points, {}, None, seen.flops)


def _look_inside(model: ModelConfig, dataset: DataFacts, where: str, digest: Digest) -> ModelFacts:
    """Facts of a model whose net must be built to know them: one with checkpoints, or code of the user."""
    net = build(model, dataset.num_classes, 0, where)
    seeds = model.seeds if model.checkpoint is not None else ()
    weights = {seed: digest(net, model, seed, where) for seed in seeds}
    if _needs_head(model):
        with _fields_of(where):
            find_classifier(net, dataset.size)
    points = find_points(net, model, dataset.num_classes, dataset.size, where)
    seen = nets.outline(model.arch, dataset.num_classes, model.args, dataset.size, model.points)
    flops = seen.flops if seen else nets.segment_flops(nets.cut(nets.freeze(net), points), dataset.size)
    assumed = any(map(is_assumed, weights.values()))
    return ModelFacts(points, weights, _code_digest(model.arch), flops, assumed)


def _needs_head(model: ModelConfig) -> bool:
    """Whether training it needs to know the layer that gives the logits."""
    return model.train is not None and model.train.method == "simclr"


def _head_is_clear(model: ModelConfig, dataset: DataFacts) -> bool:
    return not _needs_head(model) or nets.known_to_have_classifier(
        model.arch, dataset.num_classes, model.args, dataset.size
    )


@lru_cache(maxsize=64)
def _try_out(fields: str, num_classes: int, size: int) -> None:
    """Build a net and run it whole and cut. One look serves every model, and every study of the process, with such a net."""
    net = json.loads(fields)
    mean_and_std = net["normalise"]["mean"], net["normalise"]["std"]
    built = nets.build_net(net["arch"], num_classes, net["args"], *mean_and_std)
    nets.find_points(built, size, net["points"], num_classes)


@contextmanager
def _fields_of(where: str) -> Iterator[None]:
    """Errors within name the config's field."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}.{error.where}", error.value, error.problem) from error


def _code_digest(arch: str) -> str | None:
    """SHA-256 of the file that defines a ``module:function`` net: other code is another model."""
    module, colon, _ = arch.partition(":")
    if not colon:
        return None
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def _check_setting(config: StudyConfig, catalogue: Catalogue, name: str) -> None:
    setting, where = config.settings[name], f"settings.{name}"
    for front, end in dict.fromkeys((f, g) for (f, _), (g, _) in setting_pairs(config, name)):
        dataset = setting.data or config.models[front].data
        shown = setting.test or dataset
        _check_counts(config, catalogue, dataset, name)
        _check_eval(config, catalogue, shown, name)
        for model in dict.fromkeys((front, end)):
            for used in dict.fromkeys((dataset, shown)):
                _check_model_fits(config, catalogue, model, used, where)
        _check_stitches(config, catalogue, front, end, name)


def _check_counts(config: StudyConfig, catalogue: Catalogue, dataset: str, setting: str) -> None:
    count, fit = catalogue.data[dataset].train_count, config.grid(setting).fit
    for field, needed in (("batch", fit.batch), ("init_images", fit.init_images if fit.init == "pinv" else 0)):
        if needed > count:
            where = "fit" if config.settings[setting].fit is None else f"settings.{setting}.fit"
            problem = f"settings.{setting} trains its stitches on {dataset!r}, which has {count} images"
            raise InputError(f"{where}.{field}", needed, problem)
    if config.similarity is not None and count < LEAST_SAMPLES:
        problem = f"CKA and STIR need at least {LEAST_SAMPLES} training images; dataset {dataset!r} has {count}"
        raise InputError("similarity", None, problem)


def _check_eval(config: StudyConfig, catalogue: Catalogue, dataset: str, setting: str) -> None:
    own, wanted = config.settings[setting].eval, config.grid(setting).eval
    where = "eval" if own is None else f"settings.{setting}.eval"
    if config.data[dataset].cue is None and set(wanted) & {"shuffled", "clean"}:
        problem = f"settings.{setting} shows {dataset!r}, which has no cue, so no 'shuffled' or 'clean' test images"
        raise InputError(where, list(wanted), problem)
    if catalogue.data[dataset].num_classes < 3 and set(wanted) & set(ATTACKS):
        raise InputError(where, list(wanted), f"attacks need three classes or more; dataset {dataset!r} has two")
    if "autoattack" in wanted:
        try:
            attacks.require_autoattack(catalogue.data[dataset].num_classes)
        except InputError as error:
            raise InputError(where, error.value, error.problem) from error


def _check_model_fits(config: StudyConfig, catalogue: Catalogue, model: str, dataset: str, where: str) -> None:
    own, used = catalogue.data[config.models[model].data], catalogue.data[dataset]
    if own.num_classes != used.num_classes:
        problem = f"model {model!r} has {own.num_classes} classes but dataset {dataset!r} has {used.num_classes}"
        raise InputError(where, None, problem)
    if own.size != used.size:
        problem = f"model {model!r} takes {own.size}-pixel images but dataset {dataset!r} has {used.size}-pixel ones"
        raise InputError(where, None, f"{problem}; set data.{dataset}.size: {own.size}")


def _check_stitches(config: StudyConfig, catalogue: Catalogue, front: str, end: str, setting: str) -> None:
    f, g = (cast("tuple[nets.Point, ...]", catalogue.models[name].points) for name in (front, end))
    grid = config.grid(setting)
    for i, j in pair_points(grid, len(f), len(g)):
        error = _why_not_stitched(f[i - 1], g[j - 1], grid.fit.stitch, EXACT in grid.objectives)
        if error is not None:
            ends = f"front {front!r} point {i} ({f[i - 1].module}) → end {end!r} point {j} ({g[j - 1].module})"
            raise InputError(f"settings.{setting}: {ends}", error.value, error.problem)


@lru_cache(maxsize=4096)
def _why_not_stitched(front: nets.Point, end: nets.Point, config: StitchConfig, exact: bool) -> InputError | None:
    """What is wrong with a stitch between two points, if anything; the same for every setting that has it."""
    try:
        stitch = make_stitch(front, end, config=config)
        if exact:
            check_exact(stitch, config.kind, moving=False)  # protocol and arms are checked with the config
    except InputError as error:
        return error
    return None

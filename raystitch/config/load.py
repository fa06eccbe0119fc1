"""Read a study from YAML; whatever is wrong becomes one line that names the field and the nearest right name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raystitch.access import CREDENTIALS, holds_credentials, is_secret_name
from raystitch.config.objective import EXACT, why_not_exact
from raystitch.config.problems import first_problem, refuse_credentials
from raystitch.config.schema import ITSELF, StudyConfig
from raystitch.config.values import SINGLE_SIDED, as_tuple, expand_range
from raystitch.config.yamlfile import parse_yaml, read_file
from raystitch.errors import InputError, did_you_mean


def load_config(path: str, overrides: Sequence[str] = ()) -> StudyConfig:
    """Read a YAML study from a path or URL and apply ``key.path=value`` overrides (values are YAML).

    Raises:
        InputError: the file cannot be read or is not YAML, a key is there twice, or a field is unknown or has a wrong value.
    """
    raw = parse_yaml(read_file(path), path)
    if not isinstance(raw, dict):
        raise InputError(path, None, "a study is a mapping with keys such as name, data, models, settings")
    for override in overrides:
        _apply_override(raw, override)
    raw.setdefault("name", Path(path).stem)
    return parse_config(raw)


def parse_config(raw: Mapping[str, Any]) -> StudyConfig:
    """Validate a mapping as a study; every problem becomes one :class:`InputError` naming its field."""
    refuse_credentials(raw)
    try:
        config = StudyConfig.model_validate(raw)
    except ValidationError as error:
        raise first_problem(error, StudyConfig) from None
    _check_references(config)
    for setting in config.settings:
        _check_grid(config, setting)
    return config


_SHORT_FORMS: Mapping[tuple[str, ...], str | None] = {
    ("data", "*"): "source",
    ("data", "*", "cue"): "kind",
    ("fit", "stitch"): "kind",
    ("iri",): "preset",
    ("similarity",): None,
    ("settings", "*", "fit", "stitch"): "kind",
    ("settings", "*", "iri"): "preset",
    ("settings", "*", "attack"): None,
}
"""Sections that may be one word, and the key which that word is the value of, if any; * is any name."""


def _apply_override(raw: dict[str, Any], override: str) -> None:
    if holds_credentials(override):
        raise InputError("--set", None, CREDENTIALS)
    key, equals, text = override.partition("=")
    shown = None if re.match(r"\s*(s3|track)\b", key) or is_secret_name(key.rsplit(".", 1)[-1]) else override
    if not equals or not all(key.split(".")):
        raise InputError("--set", shown, "write it as key.path=value")
    *parents, leaf = key.split(".")
    node = raw
    for depth, parent in enumerate(parents, 1):
        child = node.get(parent)
        place = _place(parents[:depth])
        if child is None:
            child = {}
        elif isinstance(child, (str, bool)) and place in _SHORT_FORMS:
            word = _SHORT_FORMS[place]
            child = {} if word is None else {word: child}
        elif not isinstance(child, dict):
            raise InputError("--set", shown, f"{parent!r} is not a mapping, so it has no key {leaf!r}")
        node[parent] = node = dict(child)  # a copy: YAML's aliases share theirs, and only this one is meant
    node[leaf] = parse_yaml(text, "--set", shown)


def _place(path: Sequence[str]) -> tuple[str, ...]:
    """A path with * in the place of a name that the user chose."""
    named = path[0] in ("data", "models", "settings")
    return tuple("*" if depth == 1 and named else part for depth, part in enumerate(path))


def _check_grid(config: StudyConfig, setting: str) -> None:
    """What a setting's own values and the study's must be to each other."""
    grid, own = config.grid(setting), config.settings[setting]
    moving = grid.protocol == "paper" and "real" in grid.arms
    problem = why_not_exact(grid.objectives, grid.fit.stitch.kind, moving)
    if problem is not None:
        raise InputError("objectives" if own.objectives is None else f"settings.{setting}.objectives", EXACT, problem)
    if own.attack is None:
        return
    sided = [arm for arm in grid.arms if arm in SINGLE_SIDED]
    if sided:
        problem = f"arm {sided[0]!r} shows the two nets different images, so no attack is defined"
        raise InputError(f"settings.{setting}.attack", None, problem)
    if EXACT in grid.objectives:
        raise InputError(f"settings.{setting}.attack", None, f"{EXACT} is solved, not trained: nothing can be attacked")


def _check_references(config: StudyConfig) -> None:
    if ITSELF in config.models:
        raise InputError(f"models.{ITSELF}", None, f"the name is taken: end: {ITSELF} stitches each front to itself")
    for name, model in config.models.items():
        _check_dataset(config, f"models.{name}.data", model.data)
    for name, setting in config.settings.items():
        where = f"settings.{name}"
        _check_dataset(config, f"{where}.data", setting.data)
        _check_dataset(config, f"{where}.test", setting.test)
        expand_refs(config, setting.front, f"{where}.front")
        if setting.end != (ITSELF,):
            expand_refs(config, setting.end, f"{where}.end")


def _check_dataset(config: StudyConfig, where: str, name: str | None) -> None:
    if name is not None and name not in config.data:
        raise InputError(where, name, f"unknown dataset{did_you_mean(name, config.data)}")


def expand_refs(config: StudyConfig, refs: Sequence[str], where: str) -> list[tuple[str, int]]:
    """``("clean/1-3", "pixel")`` → [("clean", 1), …, ("pixel", s) for each seed s of the model].

    Raises:
        InputError: an unknown model, or a seed that the model does not list.
    """
    pairs: dict[tuple[str, int], None] = {}
    for ref in refs:
        name, slash, seeds = ref.partition("/")
        if name not in config.models:
            if ref == ITSELF:
                raise InputError(where, ref, f"{ITSELF!r} is the end of a setting, alone")
            raise InputError(where, ref, f"unknown model {name!r}{did_you_mean(name, config.models)}")
        known = dict.fromkeys(config.models[name].seeds)
        try:
            wanted = expand_range(seeds) if slash else tuple(known)
        except ValueError as error:
            raise InputError(where, ref, str(error)) from None
        for seed in as_tuple(wanted):
            if seed not in known:
                raise InputError(where, ref, f"model {name!r} has no seed {seed}; its seeds: {_few(list(known))}")
            pairs[(name, int(str(seed)))] = None
    return list(pairs)


def _few(seeds: Sequence[int]) -> str:
    shown = [str(seed) for seed in seeds]
    return ", ".join(shown if len(shown) <= 10 else [*shown[:9], "…", shown[-1]])


def setting_pairs(config: StudyConfig, name: str) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """(front, end) pairs of a setting, each a model's name and seed: every front with every end, or with itself."""
    setting, where = config.settings[name], f"settings.{name}"
    fronts = expand_refs(config, setting.front, f"{where}.front")
    if setting.end == (ITSELF,):
        return [(front, front) for front in fronts]
    return [(front, end) for front in fronts for end in expand_refs(config, setting.end, f"{where}.end")]
